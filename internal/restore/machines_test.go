package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// scaledReader is a target with Machines and a MachineSet that has some replicas.
type scaledReader struct {
	machineReader
	set         object.Ref
	replicas    int64 // negative: there is no MachineSet
	annotations map[string]string
}

func (r *scaledReader) Get(_ context.Context, k kube.Kind, _, name string) (
	*unstructured.Unstructured, error) {
	if r.replicas < 0 || k.GroupKind != r.set.GroupKind() {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.Kind}, name)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAnnotations(r.annotations)
	return u, unstructured.SetNestedField(u.Object, r.replicas, "spec", "replicas")
}

// notLoaded are the contents of a unit that is done: they were dropped.
type notLoaded struct{ oneContent }

func (notLoaded) Bytes(object.Ref) ([]byte, error) { return nil, snapshot.ErrNotLoaded }

// TestMachinesOfAMachineSetThatBeganAtZeroAreNoSign: observing has no contents of it any more. When
// it had Machines in the snapshot, an earlier run had its contents, and what comes is a sign.
func TestMachinesOfAMachineSetThatBeganAtZeroAreNoSign(t *testing.T) {
	set := object.Ref{Group: capi.GroupCore, Kind: "MachineSet", Namespace: "n", Name: "s"}
	machine := func(name string) Object {
		return Object{Owners: []object.Ref{set}, Ref: object.Ref{Group: capi.GroupCore,
			Kind: "Machine", Namespace: "n", Name: name}}
	}
	scaled := map[string]string{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0"}
	for name, tt := range map[string]struct {
		annotations map[string]string
		objects     []Object
		grown       int64
	}{"scaled": {scaled, nil, 2}, "nobody scales it": {nil, nil, 0},
		"it had a Machine": {scaled, []Object{machine("old")}, 0}} {
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Contents: notLoaded{},
			Reader: &scaledReader{set: set, replicas: 2, annotations: tt.annotations}})
		r.kinds[set.GroupKind()] = kube.Kind{GroupKind: set.GroupKind()}
		grown, err := r.autoscaled(t.Context(), Unit{Name: "n/w",
			Objects: append([]Object{{Ref: set}}, tt.objects...)}, set)
		if err != nil || grown != tt.grown {
			t.Errorf("%s: it has grown by %d, %v; want %d", name, grown, err, tt.grown)
		}
	}
}

// TestMachinesThatAnAutoscalerAskedForAreNoSign: as many new Machines as the MachineSet grew, or as
// many gone as it shrank, when an autoscaler owns its replicas. More of them, or those of another
// owner, are a sign.
func TestMachinesThatAnAutoscalerAskedForAreNoSign(t *testing.T) {
	set := object.Ref{Group: capi.GroupCore, Kind: "MachineSet", Namespace: "n", Name: "s"}
	const autoscaled = `"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size":"1"`
	for _, tt := range []struct {
		name, annotations, owner string
		replicas                 int64 // 3 in the snapshot
		came, gone, reported     int
	}{
		{"it grew by one", autoscaled, "s", 4, 1, 0, 0},
		{"it grew by two", autoscaled, "s", 5, 2, 0, 0},
		{"more Machines than it grew", autoscaled, "s", 4, 2, 0, 2},
		{"it did not grow", autoscaled, "s", 3, 1, 0, 1},
		{"it is gone", autoscaled, "s", -1, 1, 0, 1},
		{"nobody scales it", "", "s", 4, 1, 0, 1},
		{"another MachineSet", autoscaled, "other", 4, 1, 0, 1},
		{"it shrank by one", autoscaled, "s", 2, 0, 1, 0},
		{"fewer Machines than it shrank", autoscaled, "s", 2, 0, 2, 2},
		{"it did not shrink", autoscaled, "s", 3, 0, 1, 1},
		{"nobody scales it down", "", "s", 2, 0, 1, 1},
		{"one was replaced", autoscaled, "s", 3, 1, 1, 2},
	} {
		owner, err := json.Marshal([]any{map[string]any{"apiVersion": capi.GroupCore + "/v1beta2",
			"kind": "MachineSet", "name": tt.owner, "controller": true}})
		if err != nil {
			t.Fatal(err)
		}
		reader := &scaledReader{set: set, replicas: tt.replicas}
		for i := range tt.came {
			reader.list = append(reader.list, fmt.Sprintf(`{"metadata":{"name":"new-%d","namespace":"n",`+
				`"uid":"u%d","labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":%s}}`, i, i, owner))
		}
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Reader: reader,
			Contents: oneContent(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineSet","metadata":` +
				`{"name":"s","namespace":"n","annotations":{` + tt.annotations + `}},"spec":{"replicas":3}}`),
			Kinds: []kube.Kind{{GroupKind: capi.Machine, Version: "v1beta2"}}})
		r.kinds[set.GroupKind()] = kube.Kind{GroupKind: set.GroupKind()}
		objects := []Object{{Ref: set}}
		for i := range tt.gone {
			objects = append(objects, Object{Owners: []object.Ref{set}, Ref: object.Ref{
				Group: capi.GroupCore, Kind: "Machine", Namespace: "n", Name: fmt.Sprintf("old-%d", i)}})
		}
		err = r.compareMachines(t.Context(), Unit{Name: "n/w", Objects: objects})
		reported := 0
		if e, ok := err.(*machinesError); ok { //nolint:errorlint // it is returned as it is
			reported = len(e.Came) + len(e.Gone)
		} else if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if reported != tt.reported {
			t.Errorf("%s: %d Machines are reported, want %d", tt.name, reported, tt.reported)
		}
	}
}

// TestObserveNeedsTheMachinesOfAPlanAlone: a move forgets all other objects of workload clusters
// that it has moved.
func TestObserveNeedsTheMachinesOfAPlanAlone(t *testing.T) {
	x := newTrial(t, twoTenantsOwning(t, `{"kind":"Machine","metadata":{"namespace":"one","name":"m",
		"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster","name":"w"}]},
		"spec":{"clusterName":"w"}}`), newMemory(t, "target"))
	if failures, err := x.run(t); err != nil {
		t.Fatal(failures, err)
	}
	plan := *x.plan
	plan.Units = slices.Clone(plan.Units)
	for i, u := range plan.Units {
		plan.Units[i].Objects = slices.DeleteFunc(slices.Clone(u.Objects),
			func(o Object) bool { return o.GroupKind() != capi.Machine })
	}
	observe := func() error {
		return Observe(t.Context(), RunOptions{Plan: &plan, Contents: x.contents, Reader: x.target,
			Kinds: x.target.kinds, Operation: string(x.id), Tuning: Tuning{Observe: 1},
			Journal: x.catalog.Journal(x.id, catalog.JournalOptions{})})
	}
	if err := observe(); err != nil {
		t.Error(err)
	}
	x.target.set(t, "Machine.cluster.x-k8s.io/one/m", func(u *unstructured.Unstructured) {
		u.SetUID("another")
	})
	if _, ok := errors.AsType[*IncompleteError](observe()); !ok {
		t.Error("a Machine that was replaced is no error")
	}
	// Another restore finds it at work: its Machines may change.
	if failures, err := x.again(t); err != nil {
		t.Fatal(failures, err)
	}
	x.target.set(t, "Machine.cluster.x-k8s.io/one/m", func(u *unstructured.Unstructured) {
		u.SetUID("a third")
	})
	plan = *x.plan
	if err := observe(); err != nil {
		t.Error(err)
	}
}

// TestWhatIsReleasedIsObservedBesideABlockedUnit: a blocked unit keeps nobody from that.
func TestWhatIsReleasedIsObservedBesideABlockedUnit(t *testing.T) {
	x := newTrial(t, twoTenantsOwning(t, `{"kind":"Machine","metadata":{"namespace":"one","name":"m",
		"labels":{"cluster.x-k8s.io/cluster-name":"w"},"ownerReferences":[{"kind":"Cluster","name":"w"}]},
		"spec":{"clusterName":"w"}}`), newMemory(t, "target"))
	x.begin(t)
	for i := range x.plan.Units {
		x.plan.Units[i].Blocked = x.plan.Units[i].Name == "two/w"
	}
	x.tuning.Observe = 1
	x.hooks.OnHealthy = func(Unit, string) {
		x.target.set(t, "Machine.cluster.x-k8s.io/one/m", func(u *unstructured.Unstructured) {
			u.SetUID("another")
		})
	}
	failures, err := x.run(t)
	if !strings.Contains(strings.Join(failures, " "), "Machine.cluster.x-k8s.io/one/m") {
		t.Errorf("a Machine that was replaced is not reported: %q, %v", failures, err)
	}
}
