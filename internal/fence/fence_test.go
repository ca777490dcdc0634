package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

func fenced(why string) map[string]string {
	return map[string]string{capi.AnnotationFenced: why, capi.AnnotationWasPaused: capi.WasAbsent}
}

func isPaused(u *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	return paused
}

// TestAFenceThatIsRefusedQuotesNoValue: a webhook may quote the variables of a topology.
func TestAFenceThatIsRefusedQuotesNoValue(t *testing.T) {
	m := newMemory()
	c := m.addCluster("w", false, nil)
	m.refuse = func(*unstructured.Unstructured) error {
		return apierrors.NewForbidden(resourceOf(c.Ref), "w", errors.New("token hunter2"))
	}
	r := m.fence().Pause(t.Context(), []Cluster{c}, capi.FencedByOperator)
	if len(r.Findings) == 0 || !strings.Contains(fmt.Sprint(r.Findings), "Forbidden (403)") ||
		strings.Contains(fmt.Sprint(r.Findings), "hunter2") {
		t.Errorf("findings %v", r.Findings)
	}
}

// TestFenceByAnOlderRecordLeavesAClusterThatWasReleasedMeanwhile: the record was read before a move
// back claimed the workload cluster and released it. Fenced, it would be reconciled nowhere.
func TestFenceByAnOlderRecordLeavesAClusterThatWasReleasedMeanwhile(t *testing.T) {
	m := newMemory()
	listed := m.addCluster("w", true, map[string]string{capi.AnnotationWasPaused: capi.WasAbsent})
	m.addCluster("w", false, map[string]string{capi.AnnotationEpoch: "s1/2"})
	f := m.fence()
	r := f.Pause(t.Context(), []Cluster{listed}, capi.FencedByRecord)
	f.Arm(t.Context(), r.FencedOf([]Cluster{listed}))
	if u := m.cluster(t, listed); isPaused(u) || len(r.Paused)+len(r.Already)+len(m.listed()) > 0 {
		t.Errorf("it is paused: %v; result %v; listed %v", isPaused(u), r, m.listed())
	}
	if r = m.fence().Pause(t.Context(), []Cluster{listed}, capi.FencedByOperator); len(r.Paused) != 1 {
		t.Errorf("an operator fences it: %v", r)
	}
}

// TestLiftWithoutRecordsLeavesWhatARecordHasFenced (I1): nothing shows that the other management
// cluster gave the workload cluster back.
func TestLiftWithoutRecordsLeavesWhatARecordHasFenced(t *testing.T) {
	m := newMemory()
	lost := m.addCluster("lost", true, fenced(capi.FencedByRecord))
	own := m.addCluster("own", true, fenced(capi.FencedByOperator))
	by := ownership.Record{By: object.Side{Name: "here", UID: "here"}, Epoch: 2} // not trusted
	stores := []Owners{{StoreID: "s1", UID: "here", Records: map[string]ownership.Record{lost.ID: by}}}
	r := m.fence().Lift(t.Context(), []Cluster{lost, own}, stores)
	if !isPaused(m.cluster(t, lost)) || isPaused(m.cluster(t, own)) ||
		!slices.Equal(r.Lifted, []string{"ns/own"}) {
		t.Errorf("lifted %v, findings %v", r.Lifted, r.Findings)
	}
	if len(r.Findings) != 1 || r.Findings[0].Unit != "ns/lost" ||
		r.Findings[0].Severity != object.Error {
		t.Errorf("findings %v", r.Findings)
	}
	by.Trusted = true
	stores[0].Records[lost.ID] = by
	if r = m.fence().Lift(t.Context(), []Cluster{lost}, stores); isPaused(m.cluster(t, lost)) {
		t.Errorf("given back by record: findings %v", r.Findings)
	}
}

// TestLiftAsksTheRecordsOfEachStore (I1): a record in any store of a daemon names the owner.
func TestLiftAsksTheRecordsOfEachStore(t *testing.T) {
	m := newMemory()
	c := m.addCluster("w", true, fenced(capi.FencedByOperator))
	record := ownership.Record{By: object.Side{Name: "there", UID: "there"}, Epoch: 1, Seen: 1,
		Trusted: true}
	stores := []Owners{{StoreID: "s1", UID: "here"}, {StoreID: "s2", UID: "here",
		Records: map[string]ownership.Record{c.ID: record}}}
	r := m.fence().Lift(t.Context(), []Cluster{c}, stores)
	if !isPaused(m.cluster(t, c)) || len(r.Lifted) > 0 || len(r.Findings) != 1 ||
		r.Findings[0].Code != object.CodeOwnedElsewhere {
		t.Errorf("lifted %v, findings %v", r.Lifted, r.Findings)
	}
}

// TestI1LiftReadsTheRecordsOnceMore: a restore elsewhere claims the workload cluster while its
// fence is lifted. It finds a Cluster that it cannot rely on, or the lift finds its claim.
func TestI1LiftReadsTheRecordsOnceMore(t *testing.T) {
	errAway := errors.New("the store is away")
	for name, tt := range map[string]struct {
		owner string
		err   error
		lifts bool
	}{
		"claimed":           {owner: "there"},
		"the store is away": {err: errAway},
		"not claimed":       {owner: "here", lifts: true},
	} {
		m := newMemory()
		c := m.addCluster("w", true, fenced(capi.FencedByOperator))
		f := m.fence()
		if err := f.Policy.Arm(t.Context(), []Cluster{c}); err != nil {
			t.Fatal(err)
		}
		f.Owners = func(context.Context, Cluster) ([]Owners, error) {
			u := m.cluster(t, c)
			if why := u.GetAnnotations()[capi.AnnotationFenced]; !isPaused(u) ||
				why != capi.FencedByOperator+capi.FenceLifting {
				t.Errorf("%s: at the question it is paused: %v, and fenced by %q", name, isPaused(u), why)
			}
			return []Owners{{StoreID: "s1", UID: "here", Records: map[string]ownership.Record{c.ID: {
				By: object.Side{Name: tt.owner, UID: tt.owner}, Epoch: 1, Seen: 1, Trusted: true}}}}, tt.err
		}
		r := f.Lift(t.Context(), []Cluster{c}, nil)
		u := m.cluster(t, c)
		why, marked := u.GetAnnotations()[capi.AnnotationFenced]
		if isPaused(u) == tt.lifts || marked == tt.lifts || len(r.Lifted) > 0 != tt.lifts ||
			len(m.listed()) > 0 == tt.lifts || len(r.Findings) > 0 == tt.lifts ||
			marked && why != capi.FencedByOperator {
			t.Errorf("%s: lifted %v, findings %v, fenced by %q, listed %v", name, r.Lifted, r.Findings, why,
				m.listed())
		}
	}
}

// addAddOn stores an object with a switch of its own, which Capture shows for a Cluster.
func (m *memory) addAddOn(f *Fence, c Cluster, annotations map[string]string) *graph.Node {
	k := kube.Kind{GroupKind: object.GroupKind{Group: "addons.stackhpc.com", Kind: "HelmRelease"},
		Version: "v1", Namespaced: true}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.APIVersion(),
		"kind": k.Kind, "metadata": map[string]any{"name": "cni", "namespace": c.Namespace},
		"spec": map[string]any{"paused": true}}}
	u.SetAnnotations(annotations)
	m.store(u)
	n := &graph.Node{Ref: refOfObject(u), Unit: c.Unit()}
	f.Pauser = NewPauser(m, m, []kube.Kind{clusterKind, k}, nil)
	f.Capture = func(context.Context) (*graph.Graph, error) {
		return &graph.Graph{Nodes: []*graph.Node{n}}, nil
	}
	return n
}

// TestI1LiftEndsWhenSomebodyChangesTheFenceMeanwhile: a restore elsewhere relies on a new fence. A
// Cluster that somebody else has given back is not paused again, and what a move has locked since
// stays as it is.
func TestI1LiftEndsWhenSomebodyChangesTheFenceMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		change         func(ctx context.Context, f *Fence, c Cluster) error
		late           bool // once the records are read
		paused, lifted bool // at the end
		addOn          bool // is paused then
	}{
		"fenced again": {func(ctx context.Context, f *Fence, c Cluster) error {
			f.Pause(ctx, []Cluster{c}, capi.FencedByRecord)
			return nil
		}, false, true, false, true},
		"fenced again, late": {func(ctx context.Context, f *Fence, c Cluster) error {
			f.Pause(ctx, []Cluster{c}, capi.FencedByRecord)
			return nil
		}, true, true, false, true},
		"given back": {func(ctx context.Context, f *Fence, c Cluster) error {
			return f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
				capi.Unannotate(u.Object, capi.AnnotationFenced)
				return f.Pauser.rows.Unpause(u.Object), nil
			})
		}, false, false, true, false},
		"given back and moved": {func(ctx context.Context, f *Fence, c Cluster) error {
			return f.Pauser.Change(ctx, c.Ref, func(u *unstructured.Unstructured) (bool, error) {
				capi.Unannotate(u.Object, capi.AnnotationFenced)
				capi.Annotate(u.Object, capi.AnnotationOperation, "0123456789ab/1")
				return f.Pauser.rows.Unpause(u.Object), nil
			})
		}, false, false, true, true},
	} {
		m := newMemory()
		c := m.addCluster("w", true, fenced(capi.FencedByOperator))
		f := m.fence()
		n := m.addAddOn(f, c, map[string]string{capi.AnnotationWasPaused: capi.WasAbsent})
		change := func(ctx context.Context) {
			if err := tt.change(ctx, f, c); err != nil {
				t.Fatal(err)
			}
		}
		f.Owners = func(ctx context.Context, _ Cluster) ([]Owners, error) {
			if !tt.late {
				change(ctx)
			}
			return []Owners{{StoreID: "s1", UID: "here"}}, nil
		}
		m.refuse = func(u *unstructured.Unstructured) error {
			if tt.late && u.GetKind() == n.Kind && !capi.PausedByUs(u.Object) {
				tt.late = false
				m.mu.Unlock()
				change(t.Context())
				m.mu.Lock()
			}
			return nil
		}
		r := f.Lift(t.Context(), []Cluster{c}, nil)
		u := m.cluster(t, c)
		addOn := m.objects[n.Ref]
		if isPaused(u) != tt.paused || len(r.Lifted) > 0 != tt.lifted || len(r.Findings) > 0 == tt.lifted ||
			capi.PausedByUs(addOn.Object) != tt.addOn {
			t.Errorf("%s: paused %v, the add-on %v, lifted %v, findings %v", name, isPaused(u),
				capi.PausedByUs(addOn.Object), r.Lifted, r.Findings)
		}
	}
}

// TestLiftTakesAClusterOffTheListThatIsNotFenced: somebody created it again while there was no
// policy. On the list, it could be paused and never unpaused. What an operation holds stays listed.
func TestLiftTakesAClusterOffTheListThatIsNotFenced(t *testing.T) {
	m := newMemory()
	again := m.addCluster("again", false, nil)
	moving := m.addCluster("moving", true, map[string]string{
		capi.AnnotationOperation: "0123456789ab/1", capi.AnnotationWasPaused: capi.WasAbsent})
	copied := m.addCluster("copied", true, map[string]string{
		capi.AnnotationWasPaused: capi.WasAbsent})
	all := []Cluster{again, moving, copied}
	f := m.fence()
	if err := f.Policy.Arm(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	r := f.Lift(t.Context(), all, nil)
	if !slices.Equal(r.Lifted, []string{"ns/again"}) || len(r.Findings) > 0 {
		t.Errorf("lifted %v, findings %v", r.Lifted, r.Findings)
	}
	if listed := m.listed(); len(listed) != 2 || listed["ns.again"] != "" {
		t.Errorf("listed %v", listed)
	}
}

// TestAClusterThatStaysOnTheListIsNotLifted: the list cannot be written. The Cluster is at work,
// and could be paused and never unpaused.
func TestAClusterThatStaysOnTheListIsNotLifted(t *testing.T) {
	m := newMemory()
	listed, moved := m.addCluster("listed", false, nil), m.addCluster("moved", false, nil)
	f := m.fence()
	if err := f.Policy.Arm(t.Context(), []Cluster{listed, moved}); err != nil {
		t.Fatal(err)
	}
	m.refuse = func(u *unstructured.Unstructured) error {
		if u.GetKind() == "ConfigMap" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, u.GetName(), nil)
		}
		return nil
	}
	r := f.Lift(t.Context(), []Cluster{listed}, nil)
	if len(r.Lifted) > 0 || len(r.Findings) != 1 || r.Findings[0].Code != object.CodeNotFenced {
		t.Errorf("lifted %v, findings %v", r.Lifted, r.Findings)
	}
}

// TestAnotherWorkloadClusterOfANameIsListedByItsID: the one before it was moved away.
func TestAnotherWorkloadClusterOfANameIsListedByItsID(t *testing.T) {
	m := newMemory()
	c := m.addCluster("web", true, fenced(capi.FencedByRecord))
	f := m.fence()
	for _, id := range []string{"first", "second"} {
		c.ID = id
		if err := f.Policy.Arm(t.Context(), []Cluster{c}); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.listed()["ns.web"]; got != "second" {
		t.Errorf("it is listed as %q", got)
	}
}

// TestLiftLetsANameBeCreatedAgain: a Cluster was moved away, or deleted by hand. Its key stays
// listed until an operator names it.
func TestLiftLetsANameBeCreatedAgain(t *testing.T) {
	m := newMemory()
	c := m.addCluster("gone", true, fenced(capi.FencedByRecord))
	f := m.fence()
	if err := f.Policy.Arm(t.Context(), []Cluster{c}); err != nil {
		t.Fatal(err)
	}
	delete(m.objects, c.Ref)
	names := []object.Key{{Namespace: "ns", Name: "gone"}, {Namespace: "ns", Name: "unknown"}}
	gone, err := f.Gone(t.Context(), nil, names)
	if err != nil || len(gone) != 1 || gone[0].Ref != c.Ref || gone[0].ID != c.ID {
		t.Fatalf("gone %v, %v", gone, err)
	}
	record := ownership.Record{By: object.Side{Name: "there", UID: "there"}, Epoch: 1, Seen: 1,
		Trusted: true}
	o := Owners{StoreID: "s1", UID: "here", Records: map[string]ownership.Record{c.ID: record}}
	r := f.Forget(t.Context(), gone, []Owners{o}, true)
	if m.listed()["ns.gone"] != c.ID || len(r.Lifted) != 1 {
		t.Errorf("a dry run: listed %v, lifted %v", m.listed(), r.Lifted)
	}
	r = f.Forget(t.Context(), gone, []Owners{o}, false)
	if !slices.Equal(r.Lifted, []string{"ns/gone"}) || len(r.Findings) != 1 ||
		r.Findings[0].Severity != object.Warning {
		t.Errorf("lifted %v, findings %v", r.Lifted, r.Findings)
	}
	s, err := f.Policy.State(t.Context())
	if err != nil || s.Denies(c.Ref) || !s.Known(c.Ref) {
		t.Errorf("state %v, %v", s, err)
	}
	if gone, err = f.Gone(t.Context(), nil, names); err != nil || len(gone) > 0 {
		t.Errorf("the second time: %v, %v", gone, err)
	}
	if err := f.Policy.Arm(t.Context(), []Cluster{c}); err != nil || m.listed()["ns.gone"] != c.ID {
		t.Errorf("armed again: listed %v, %v", m.listed(), err)
	}
}
