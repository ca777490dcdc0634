package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Resources implements lister.
func (m *memory) Resources(context.Context) (kinds []kube.Kind, dead []string, err error) {
	return m.kinds, nil, nil
}

// mortal removes objects of a management cluster in memory, in a process that dies at a write.
type mortal struct {
	*memory
	writes int  // that it does before it dies; negative is never
	after  bool // it dies once the last of them is done, and hears no answer
	// keeps is an object of which every write is refused.
	keeps object.Ref

	mu   sync.Mutex
	done int
}

func (m *mortal) at(write func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dies := m.writes >= 0 && m.done >= m.writes
	if dies && (!m.after || m.done > m.writes) {
		return errDied
	}
	m.done++
	if err := write(); err != nil {
		return err
	}
	if dies {
		return errDied
	}
	return nil
}

func (m *mortal) refuses(k kube.Kind, namespace, name string) error {
	if m.keeps != (object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}) {
		return nil
	}
	return apierrors.NewForbidden(resourceOf(k), name, errors.New("it is protected"))
}

// live returns an object for a write at this version.
func (m *memory) live(k kube.Kind, namespace, name string, uid types.UID, version string) (
	*unstructured.Unstructured, error) {
	u := m.objects[object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}]
	switch {
	case u == nil:
		return nil, apierrors.NewNotFound(resourceOf(k), name)
	case u.GetUID() != uid || u.GetResourceVersion() != version:
		return nil, apierrors.NewConflict(resourceOf(k), name, errors.New("it was changed"))
	}
	return u, nil
}

// PatchMetadata implements Remover.
func (m *mortal) PatchMetadata(_ context.Context, k kube.Kind, namespace, name string,
	metadata map[string]any) (out *unstructured.Unstructured, err error) {
	if err := m.refuses(k, namespace, name); err != nil {
		return nil, err
	}
	return out, m.at(func() error {
		m.memory.mu.Lock()
		defer m.memory.mu.Unlock()
		u, err := m.live(k, namespace, name, metadata["uid"].(types.UID),
			metadata["resourceVersion"].(string))
		if err != nil {
			return err
		}
		u.SetFinalizers(nil)
		m.version++
		u.SetResourceVersion(fmt.Sprint(m.version))
		out = u.DeepCopy()
		return nil
	})
}

// Delete implements Remover. An object with finalizers would be seen by its controllers.
func (m *mortal) Delete(_ context.Context, k kube.Kind, namespace, name string, uid types.UID,
	version string) error {
	if err := m.refuses(k, namespace, name); err != nil {
		return err
	}
	return m.at(func() error {
		m.memory.mu.Lock()
		defer m.memory.mu.Unlock()
		u, err := m.live(k, namespace, name, uid, version)
		if err != nil {
			return err
		}
		if len(u.GetFinalizers()) > 0 {
			return fmt.Errorf("%s/%s is deleted with finalizers", namespace, name)
		}
		delete(m.objects, refOf(u))
		return nil
	})
}

// undo rolls the operation of a trial back in a process that dies at a write.
func (x *trial) undo(t *testing.T, w *mortal) error {
	t.Helper()
	ctx := t.Context()
	if _, err := x.catalog.SetState(ctx, x.id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range x.plan.Units {
		names = append(names, u.Name)
	}
	err := Undo(ctx, UndoOptions{RunOptions: RunOptions{Plan: x.plan, Reader: x.target,
		Writer: x.target, Kinds: x.target.kinds, Operation: string(x.id),
		Journal: x.journal(), Tuning: x.tuning},
		Remover: w, Lister: x.target, Units: names, Shared: true,
		Needed: x.needed, StayPaused: x.stayPaused})
	if _, err := x.catalog.SetState(ctx, x.id, catalog.Failed, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	return err
}

// pausedTrial is a restore that left two workload clusters with a Machine each paused on a target
// that has something of its own. The first one has further Machines, by their names.
func pausedTrial(t *testing.T, more ...string) *trial {
	t.Helper()
	machine := func(ns, name string) string {
		return fmt.Sprintf(`{"kind":"Machine","metadata":{"namespace":%q,"name":%q,
			"finalizers":["machine.cluster.x-k8s.io"],
			"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster",
				"name":"w"}]},
			"spec":{"clusterName":"w"}}`, ns, name)
	}
	machines := []string{machine("one", "m"), machine("two", "m")}
	for _, name := range more {
		machines = append(machines, machine("one", name))
	}
	source := twoTenantsOwning(t, machines...)
	for ref, u := range source.objects {
		if ref.Kind == "Cluster" {
			u.SetFinalizers([]string{"cluster.cluster.x-k8s.io"})
		}
	}
	x := newTrial(t, source, newMemory(t, "target",
		`{"kind":"Namespace","metadata":{"name":"one","labels":{"team":"one"}}}`,
		`{"kind":"ConfigMap","metadata":{"namespace":"one","name":"theirs"}}`))
	x.spec.NoRelease = true
	if _, err := x.run(t); err != nil {
		t.Fatal(err)
	}
	return x
}

// twoTenantsOwning is twoTenants whose objects have owners in their own namespace.
func twoTenantsOwning(t *testing.T, more ...string) *memory {
	t.Helper()
	m := twoTenants(t, more...)
	for ref, u := range m.objects {
		refs := u.GetOwnerReferences()
		for i := range refs {
			owner := m.get(t, "Cluster.cluster.x-k8s.io/"+ref.Namespace+"/w")
			refs[i].UID = owner.GetUID()
		}
		if len(refs) > 0 {
			u.SetOwnerReferences(refs)
		}
	}
	return m
}

// left returns what is on the target but for namespaces.
func left(m *memory) []string {
	var refs []string
	for ref := range m.objects {
		if ref.Kind != "Namespace" {
			refs = append(refs, ref.String())
		}
	}
	slices.Sort(refs)
	return refs
}

// TestUndoRemovesWhatWasCreatedWhereverItDied: the process dies before and after each write of an
// undo, and the next one goes on. Nothing else is touched.
func TestUndoRemovesWhatWasCreatedWhereverItDied(t *testing.T) {
	for _, after := range []bool{false, true} {
		x := pausedTrial(t)
		deaths := 0
		for n := 0; ; n++ {
			err := x.undo(t, &mortal{memory: x.target, writes: n % 3, after: after})
			if err == nil {
				break
			}
			if !errors.Is(err, errDied) || n > 200 {
				t.Fatalf("after %d deaths: %v", deaths, err)
			}
			deaths++
		}
		if got := left(x.target); !slices.Equal(got, []string{"ConfigMap/one/theirs"}) || deaths < 5 {
			t.Errorf("dies after a write %v: %d deaths, left %v", after, deaths, got)
		}
	}
}

// TestUndoLeavesAUnitThatWasReleased: nothing of a workload cluster is removed when its release was
// begun, when somebody ended its pause, when its Cluster is another one, or when it is paused by
// something that is done to a workload cluster which was at work here.
func TestUndoLeavesAUnitThatWasReleased(t *testing.T) {
	const cluster = "Cluster.cluster.x-k8s.io/one/w"
	for name, change := range map[string]func(x *trial){
		"its release was begun": func(x *trial) {
			if _, err := x.catalog.SetState(t.Context(), x.id, catalog.Running,
				catalog.Outcome{}); err != nil {
				t.Fatal(err)
			}
			_ = x.catalog.Journal(x.id, catalog.JournalOptions{}).Do(t.Context(), releaseStep("one/w"),
				func(context.Context, *catalog.StepHandle) error { return errDied })
			if _, err := x.catalog.SetState(t.Context(), x.id, catalog.Failed,
				catalog.Outcome{}); err != nil {
				t.Fatal(err)
			}
		},
		"somebody ended its pause": func(x *trial) {
			x.target.set(t, cluster, func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "paused")
			})
		},
		"it is fenced": func(x *trial) {
			x.target.set(t, cluster, func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object, capi.AnnotationFenced, capi.FencedByRecord)
			})
		},
		"a move away from here has locked it": func(x *trial) {
			x.target.set(t, cluster, func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object, annotationOperation, "another/1")
			})
		},
		"its Cluster is another one": func(x *trial) {
			x.target.set(t, cluster, func(u *unstructured.Unstructured) { u.SetUID("another") })
		},
	} {
		x := pausedTrial(t)
		before := left(x.target)
		change(x)
		err := x.undo(t, &mortal{memory: x.target, writes: -1})
		if err == nil || !strings.Contains(err.Error(), "one/w") {
			t.Errorf("%s: %v", name, err)
		}
		for _, ref := range before {
			if strings.Contains(ref, "/one/") && x.target.get(t, ref) == nil {
				t.Errorf("%s: %s was removed", name, ref)
			}
		}
	}
}

// TestUndoLeavesWhatAnotherPlanCreated: an object that this plan completed, or that a pre-copy
// created, is not its own. If the undo of a batch removed a Cluster of the pre-copy, the garbage
// collector would delete what is left of that.
func TestUndoLeavesWhatAnotherPlanCreated(t *testing.T) {
	r := newRun(t.Context(), RunOptions{Plan: &Plan{}})
	if r.isCreated(Object{Action: Create, UID: "1"}) || !r.isCreated(Object{Action: Create}) ||
		r.isCreated(Object{Action: Adopt, UID: "1"}) ||
		r.isCreated(Object{Action: Create, UID: "1", Ours: true}) {
		t.Error("an object of another plan counts as created")
	}
	r = newRun(t.Context(), RunOptions{Plan: &Plan{FromMarks: true}})
	if !r.isCreated(Object{Action: Create, UID: "1", Ours: true}) {
		t.Error("an object of a lost operation does not count as created")
	}
}
