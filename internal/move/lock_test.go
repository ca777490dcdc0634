package move

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// oneCluster is a source with a Cluster, whose next write takes effect without an answer.
type oneCluster struct {
	live *unstructured.Unstructured
	lost bool
	// beforeWrite is called before each write; may be nil.
	beforeWrite func()
}

func newOneCluster(lock string) *oneCluster {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2",
		"kind": "Cluster", "metadata": map[string]any{"namespace": "ns", "name": "w"}}}
	capi.Annotate(u.Object, capi.AnnotationOperation, lock)
	return &oneCluster{live: u}
}

func (o *oneCluster) Get(context.Context, kube.Kind, string, string) (*unstructured.Unstructured,
	error) {
	return o.live.DeepCopy(), nil
}

func (o *oneCluster) List(context.Context, kube.Kind, kube.ListOptions, func(raw []byte) error) (
	kube.ListResult, error) {
	return kube.ListResult{}, errors.New("it has no lists")
}

func (o *oneCluster) Update(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if o.beforeWrite != nil {
		o.beforeWrite()
	}
	o.live = u.DeepCopy()
	if o.lost {
		o.lost = false
		return nil, apierrors.NewServiceUnavailable("the answer is lost")
	}
	return u, nil
}

func (o *oneCluster) isPaused() bool {
	paused, _, _ := unstructured.NestedBool(o.live.Object, "spec", "paused")
	return paused
}

// errCaptured ends a run that waits for the acknowledgement of a pause.
var errCaptured = errors.New("it is captured")

// holder is a run that holds the lock of the Cluster of a source.
func holder(t *testing.T, o *oneCluster) (*run, *catalog.Catalog) {
	t.Helper()
	c, j := newJournal(t, catalog.Options{})
	kinds := []kube.Kind{{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters",
		Namespaced: true}}
	return &run{Options: Options{Journal: j}, Operation: "0123456789ab", Attempt: 2,
		Plan:   &Plan{Source: sideOf("source"), Target: sideOf("target")},
		pauser: fence.NewPauser(o, o, kinds, nil),
		captures: &captureCache{capture: func(context.Context, []string) (*snapshot.Snapshot,
			*snapshot.Contents, error) {
			return nil, nil, errCaptured
		}}}, c
}

// TestAPauseThatIsSetAgainIsAwaitedAlthoughItsAnswerWasLost: the write takes effect, and is tried
// again. The controllers have not acknowledged it yet, and the operator has to know, also when the
// process ends right after the write.
func TestAPauseThatIsSetAgainIsAwaitedAlthoughItsAnswerWasLost(t *testing.T) {
	o := newOneCluster("0123456789ab/1")
	o.lost = true
	m, c := holder(t, o)
	o.beforeWrite = func() {
		if found := findingsOf(t, c, m.Journal); len(found) != 1 {
			t.Errorf("before the write: findings %v, want one", found)
		}
	}
	err := m.holdLock(t.Context(), "ns/w", true)
	found := findingsOf(t, c, m.Journal)
	if !errors.Is(err, errCaptured) || !o.isPaused() || len(found) != 1 ||
		found[0].Code != object.CodePauseEnded {
		t.Errorf("it is paused: %t; findings %v; it ended with: %v", o.isPaused(), found, err)
	}
}

// TestI1AHandOverThatIsNotJournaledPausesItsSourceAgain: the run died after it had written the
// ownership record. One that was not handed over stays as somebody left it, with an error.
func TestI1AHandOverThatIsNotJournaledPausesItsSourceAgain(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		o := newOneCluster("0123456789ab/1")
		m, _ := holder(t, o)
		m.Store, _ = newStore(t)
		u := restore.Unit{Name: "ns/w", WorkloadID: "id-w"}
		if recorded {
			if err := ownership.Claim(t.Context(), m.Store, m.request(u)); err != nil {
				t.Fatal(err)
			}
		}
		err := m.lockAgain(t.Context(), u)
		changed, _ := errors.AsType[*ChangedError](err)
		if o.isPaused() != recorded || (changed == nil) != recorded ||
			errors.Is(err, errCaptured) != recorded {
			t.Errorf("recorded %t: it is paused: %t; it ended with: %v", recorded, o.isPaused(), err)
		}
	}
}

// TestAnyWriteToWhatIsBoundToAClusterIsAChange: the controller of a ClusterResourceSet ignores the
// pause. It may change its binding on the source after the hand-over, or remove it.
func TestAnyWriteToWhatIsBoundToAClusterIsAChange(t *testing.T) {
	cluster := node("Cluster", "w", "u0", "1")
	bound := func(version string) *graph.Node {
		n := node("Cluster", "w", "u1", version)
		n.Ref.Group, n.Ref.Kind = capi.ClusterResourceSetBinding.Group,
			capi.ClusterResourceSetBinding.Kind
		return n
	}
	b := &batch{Source: map[string]objectState{
		bound("").Ref.String(): {Unit: "ns/w", UID: "u1", ResourceVersion: "10"}}}
	u := restore.Unit{Name: "ns/w", Objects: []restore.Object{{Ref: bound("").Ref}}}
	for _, tt := range []struct {
		version  string // empty: it is gone
		onlyGone bool
		changed  bool
	}{{"10", false, false}, {"11", false, true}, {"11", true, false}, {"", false, true},
		{"", true, true}} {
		nodes := []*graph.Node{cluster}
		if tt.version != "" {
			nodes = append(nodes, bound(tt.version))
		}
		why, err := (&run{}).changedSince(b, u, &sourceCapture{graph: graph.New(nodes, nil)}, tt.onlyGone)
		if err != nil || (why != "") != tt.changed {
			t.Errorf("%+v: %q, %v", tt, why, err)
		}
	}
}

// TestI1AHostThatMayHaveLostTheOperationPausesNothing: another host may have given the workload
// cluster back, whose lock is free then, and nobody would take this pause back.
func TestI1AHostThatMayHaveLostTheOperationPausesNothing(t *testing.T) {
	away := errors.New("the store does not answer")
	for name, tt := range map[string]struct {
		lock  string
		alive error
		want  error // nil: it is paused
	}{
		"it is alive":       {"0123456789ab/2", nil, nil},
		"it may be lost":    {"0123456789ab/2", away, away},
		"it was given back": {"", nil, &LockedError{}},
	} {
		o := newOneCluster(tt.lock)
		m, c := holder(t, o)
		if tt.lock == "" {
			capi.Unannotate(o.live.Object, capi.AnnotationOperation)
		}
		m.Journal = c.Journal(m.Journal.Operation(), catalog.JournalOptions{
			Alive: func(context.Context) error { return tt.alive }})
		ref, err := clusterRef("ns/w")
		if err != nil {
			t.Fatal(err)
		}
		err = m.Journal.Do(t.Context(), pauseStep("ns/w"), func(ctx context.Context,
			h *catalog.StepHandle) error {
			return m.takeLock(ctx, h, ref, nil, true)
		})
		_, locked := errors.AsType[*LockedError](err)
		_, wantLocked := errors.AsType[*LockedError](tt.want)
		if o.isPaused() != (tt.want == nil) || locked != wantLocked ||
			!locked && !errors.Is(err, tt.want) {
			t.Errorf("%s: it is paused: %t; %v", name, o.isPaused(), err)
		}
	}
}

// TestAUnitWithAKindThatCameIsNotPaused: nobody would pause the object, or retire it. A resume
// knows the kind.
func TestAUnitWithAKindThatCameIsNotPaused(t *testing.T) {
	m := &run{}
	cluster := &graph.Node{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind}}
	m.Source.Kinds = []kube.Kind{{GroupKind: capi.Cluster}}
	came := &graph.Node{Ref: object.Ref{Group: capi.GroupInfrastructure, Kind: "OpenStackServer",
		Namespace: "ns", Name: "s"}}
	if err := m.checkServed([]*graph.Node{cluster}); err != nil {
		t.Error(err)
	}
	err := m.checkServed([]*graph.Node{cluster, came})
	if is, ok := errors.AsType[*newKindError](err); !ok || is.Ref != came.Ref {
		t.Errorf("with a server: %v", err)
	}
}

// TestI1ARunWithoutItsLockUnpausesNothingThatTheTargetHas: what it has paused is taken back as long
// as no hand-over was begun.
func TestI1ARunWithoutItsLockUnpausesNothingThatTheTargetHas(t *testing.T) {
	for _, begun := range []bool{false, true} {
		o := newOneCluster("0123456789ab/2")
		m, _ := holder(t, o)
		check := kube.Kind{GroupKind: object.GroupKind{Group: capi.GroupCore,
			Kind: "MachineHealthCheck"}, Version: "v1beta2", Namespaced: true}
		o.live.SetKind(check.Kind)
		(*capi.Table)(nil).PauseFirst(o.live.Object)
		m.pauser = fence.NewPauser(o, o, []kube.Kind{check}, nil).WithLock(fence.Lock{Text: m.lock()})
		if begun {
			if err := m.Journal.Do(t.Context(), handOverStep("ns/w"), func(context.Context,
				*catalog.StepHandle) error {
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		nodes := []*graph.Node{{Ref: object.Ref{Group: check.Group, Kind: check.Kind, Namespace: "ns",
			Name: "w"}}}
		err := m.withoutLock(t.Context(), "ns/w", nodes, &LockedError{Workload: "ns/w"})
		if _, lost := errors.AsType[*LockedError](err); !lost ||
			capi.PausedByUs(o.live.Object) != begun {
			t.Errorf("handed over: %t; paused: %t; %v", begun, capi.PausedByUs(o.live.Object), err)
		}
	}
}
