package move

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// policies is an API server in memory for a policy and its list. By kind, it has one object each.
type policies struct {
	fence.Reader
	fence.Prober
	objects map[string]*unstructured.Unstructured
}

func (p *policies) Get(_ context.Context, k kube.Kind, _, name string) (*unstructured.Unstructured,
	error) {
	if u := p.objects[k.Kind]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.Resource}, name)
}

func (p *policies) Create(_ context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	p.objects[k.Kind] = u.DeepCopy()
	return u, nil
}

func (p *policies) Update(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return p.Create(ctx, k, u)
}

func (p *policies) Delete(_ context.Context, k kube.Kind, _, _ string, _ types.UID, _ string) error {
	delete(p.objects, k.Kind)
	return nil
}

// takenOver returns the journal of an operation that another host has taken over, as of the first
// write to its mirror.
func takenOver(t *testing.T) (*catalog.Catalog, *catalog.Journal) {
	t.Helper()
	c, j := newJournal(t, catalog.Options{})
	lost := func(context.Context) error { return &mirror.FencedError{Operation: j.Operation()} }
	return c, c.Journal(j.Operation(), catalog.JournalOptions{Sync: lost, Alive: lost})
}

// TestAHostThatWakesUpArmsNothing before it removes units from the source: they may be back there
// by now. The retirement ends the run, so that it reports nothing either.
func TestAHostThatWakesUpArmsNothing(t *testing.T) {
	c, journal := takenOver(t)
	m, err := newRun(t.Context(), Options{Catalog: c, Journal: journal}, &StoredPlan{})
	if err != nil {
		t.Fatal(err)
	}
	for side, p := range map[string]*fence.Policy{"source": m.policy, "target": m.returns} {
		if !isFenced(p.Alive(t.Context())) {
			t.Errorf("the policy of the %s does not ask whether the run was taken over", side)
		}
	}
	server := &policies{objects: map[string]*unstructured.Unstructured{}}
	m.policy.Reader, m.policy.Writer = server, server
	m.armLeaving(t.Context(), []*leaving{leavingUnits("ns/a", "ns/b")})
	if list := server.objects["ConfigMap"]; list != nil {
		t.Errorf("it writes %v", list.Object)
	}
	if found := findingsOf(t, c, journal); len(found) > 0 {
		t.Errorf("it reports %v", found)
	}
}

func isFenced(err error) bool {
	_, is := errors.AsType[*mirror.FencedError](err)
	return is
}

// TestAHostThatWakesUpInItsLockTakesTheListBack: the other host may have ended the operation, and
// then the source would deny to unpause the Cluster for ever.
func TestAHostThatWakesUpInItsLockTakesTheListBack(t *testing.T) {
	_, journal := takenOver(t)
	k := kube.Kind{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters", Namespaced: true}
	ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: "ns", Name: "a"}
	m := &run{Options: Options{Journal: journal}, Operation: string(journal.Operation())}
	cluster := &unstructured.Unstructured{Object: map[string]any{}}
	capi.Annotate(cluster.Object, capi.AnnotationOperation, m.lock())
	server := &policies{objects: map[string]*unstructured.Unstructured{"Cluster": cluster,
		"ConfigMap": {Object: map[string]any{"data": map[string]any{"ns.a": "id", "ns.b": "id"}}}}}
	m.policy = &fence.Policy{Reader: server, Writer: server, Alive: journal.Alive}
	m.pauser = fence.NewPauser(server, server, []kube.Kind{k}, nil)
	err := journal.Do(t.Context(), lockStep("ns/a"), func(ctx context.Context,
		h *catalog.StepHandle) error {
		return m.confirmLock(ctx, h, ref, nil)
	})
	listed, _, _ := unstructured.NestedStringMap(server.objects["ConfigMap"].Object, "data")
	if !isFenced(err) || len(listed) != 1 || listed["ns.b"] == "" {
		t.Errorf("listed %v, %v", listed, err)
	}
}

// TestI2AHostThatWakesUpInARetirementRemovesNothing more: another host may have brought the
// workload cluster back to the source. An object that has changed there since is removed only under
// the lock of its Cluster, unless that is gone.
func TestI2AHostThatWakesUpInARetirementRemovesNothing(t *testing.T) {
	k := kube.Kind{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters", Namespaced: true}
	_, lost := takenOver(t)
	m := &run{Options: Options{Journal: lost}}
	if err := m.remove(t.Context(), &batch{}, k, restore.Object{}, objectState{},
		&ownersOfKept{}); !isFenced(err) {
		t.Errorf("it removes an object: %v", err)
	}

	_, alive := newJournal(t, catalog.Options{})
	server := &policies{objects: map[string]*unstructured.Unstructured{}}
	m.pauser = fence.NewPauser(server, server, []kube.Kind{k}, nil)
	isLocked := func(err error) bool {
		_, is := errors.AsType[*LockedError](err)
		return is
	}
	for _, tt := range []struct {
		holder  string // of the lock of the Cluster; "" means that it has none
		there   bool
		journal *catalog.Journal
		want    func(error) bool // nil for no error
	}{
		{"id/3", true, alive, nil},
		{"id/3", true, lost, isFenced},
		{"id/4", true, alive, isLocked},
		{"other/1", true, alive, isLocked},
		{"", true, alive, isLocked},
		{"", false, alive, nil},
		{"", false, lost, isFenced},
	} {
		m.Operation, m.Attempt, m.Journal = "id", 3, tt.journal
		delete(server.objects, k.Kind)
		if tt.there {
			cluster := &unstructured.Unstructured{Object: map[string]any{}}
			if tt.holder != "" {
				capi.Annotate(cluster.Object, capi.AnnotationOperation, tt.holder)
			}
			server.objects[k.Kind] = cluster
		}
		if err := m.checkLock(t.Context(), "ns/a"); err == nil != (tt.want == nil) ||
			err != nil && !tt.want(err) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
