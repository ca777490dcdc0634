package restore

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestAMarkAloneIsNoLeftover: the mark stays on a finished copy. A later plan adopts the copy as
// long as it is good enough, calls it different when somebody changed it, and left by an operation
// only when its status was never written.
func TestAMarkAloneIsNoLeftover(t *testing.T) {
	const head = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"name":"a",` +
		`"namespace":"n"`
	const created = `{"manager":"mgmtd-0123456789ab","operation":"Update","fieldsV1":{}}`
	const finished = created + `,{"manager":"mgmtd-0123456789ab","operation":"Update",` +
		`"subresource":"status","fieldsV1":{}}`
	for _, tt := range []struct {
		name, live string
		want       object.Code
	}{
		{"finished", `,"managedFields":[` + finished + `]},"spec":{"a":"b"},"status":{"c":"d"}}`, ""},
		{"finished, and changed since",
			`,"managedFields":[` + finished + `]},"spec":{"a":"x"},"status":{"c":"d"}}`,
			object.CodeExistsDifferent},
		{"completed by another operation, and changed since",
			`,"managedFields":[` + created + `,{"manager":"mgmtd-ba9876543210","operation":"Update",` +
				`"subresource":"status"}]},"spec":{"a":"x"},"status":{"c":"d"}}`,
			object.CodeExistsDifferent},
		{"without its status", `,"managedFields":[` + created + `]},"spec":{"a":"b"}}`,
			object.CodeLeftByOperation},
		{"of somebody else", `,"managedFields":[{"manager":"mgmtd-x","operation":"Update"}]}}`,
			object.CodeExistsDifferent},
		{"by an earlier version",
			`,"annotations":{"mgmtd.dev/operation":"0123456789ab"}},"spec":{"a":"b"},"status":{"c":"d"}}`,
			object.CodeLeftByOperation},
	} {
		n := &graph.Node{Ref: object.Ref{Group: capi.GroupCore, Kind: "Machine", Namespace: "n",
			Name: "a"}, Unit: "n/w"}
		p := &planner{Input: Input{Snapshot: &snapshot.Snapshot{Graph: &graph.Graph{}}},
			kinds: map[object.GroupKind]kube.Kind{n.GroupKind(): {Status: true}},
			left:  map[*graph.Node]bool{}}
		p.collide(t.Context(), n, decoded(t, head+`},"spec":{"a":"b"},"status":{"c":"d"}}`),
			decoded(t, head+tt.live), false, &notes{})
		var got object.Code
		if len(p.findings) > 0 {
			got = p.findings[0].Code
		}
		if got != tt.want || len(p.findings) > 1 {
			t.Errorf("%s: %v, want %q", tt.name, p.findings, tt.want)
		}
	}
}

// TestI5UndoFindsWhatWasNotJournaled: a process dies in the middle of a wave, before it journals
// the UIDs of what it created. A rollback finds the object by its mark, and nothing else.
func TestI5UndoFindsWhatWasNotJournaled(t *testing.T) {
	o, s := newOneRestore(t, plain), &oneObject{dies: -1}
	r := o.run(t, s)
	err := r.Journal.Do(t.Context(), r.createStep("", 1), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		_, err := r.createOrFind(ctx, r.kinds[o.object.GroupKind()], decoded(t, plain), "", o.object)
		return errors.Join(err, errDied)
	})
	if !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mark string
		want string
	}{{string(o.id), "u"}, {"ba9876543210", ""}} {
		fields := []any{map[string]any{"manager": "mgmtd-" + tt.mark, "operation": "Update"}}
		if err := unstructured.SetNestedSlice(s.live.Object, fields, "metadata",
			"managedFields"); err != nil {
			t.Fatal(err)
		}
		r := o.run(t, s)
		if err := r.findMarked(t.Context(), r.Plan.parts()); err != nil {
			t.Fatal(err)
		}
		if got := r.uid(o.object.Ref); got != tt.want {
			t.Errorf("marked by %s: UID %q, want %q", tt.mark, got, tt.want)
		}
	}
}

// TestAnObjectOfThisOperationIsFinishedByItsStatusMark: a resume writes what is missing, and not
// the status again, which controllers may have changed since. An object without any entry, such as
// an empty ConfigMap, carries no mark.
func TestAnObjectOfThisOperationIsFinishedByItsStatusMark(t *testing.T) {
	const created = `{"manager":"mgmtd-0123456789ab","operation":"Update"}`
	const status = `{"manager":"mgmtd-0123456789ab","operation":"Update","subresource":"status"}`
	for _, tt := range []struct {
		name, managedFields   string
		unfinished, hasStatus bool
	}{
		{"created", created, true, false},
		{"with its status", created + "," + status, true, true},
		{"without entries", "", true, false},
		{"with the managedFields of the snapshot", `{"manager":"kubectl","operation":"Apply"}`, false,
			false},
		{"of another operation", `{"manager":"mgmtd-ba9876543210","operation":"Update"}`, false, false},
	} {
		r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Operation: "0123456789ab"})
		live := decoded(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",`+
			`"managedFields":[`+tt.managedFields+`]}}`)
		if r.isUnfinished(live) != tt.unfinished || r.hasStatus(live) != tt.hasStatus {
			t.Errorf("%s: unfinished %v, has its status %v", tt.name, r.isUnfinished(live),
				r.hasStatus(live))
		}
	}
}

// TestClusterKeepsItsMarkUntilItsUIDIsStored: it loses it with the managedFields of somebody who
// applies it. A host that goes on without this catalog would not know it any more.
func TestClusterKeepsItsMarkUntilItsUIDIsStored(t *testing.T) {
	source := oneTenant(t, "", false)
	source.set(t, clusterOne, func(u *unstructured.Unstructured) {
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl",
			APIVersion: u.GetAPIVersion(), Operation: metav1.ManagedFieldsOperationApply,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:paused":{}}}`)}})
	})
	x := newTrial(t, source, newMemory(t, "target"))
	stored, lost := false, false
	x.sync = func(ctx context.Context) error {
		steps, err := x.catalog.Steps(ctx, x.id)
		for _, s := range steps {
			values, valuesErr := x.journal().Values(ctx, s.Step)
			stored, err = stored || len(values[clusterOne]) > 0, errors.Join(err, valuesErr)
		}
		return err
	}
	x.target.refuseUpdate = func(u *unstructured.Unstructured) error {
		if u.GetKind() == "Cluster" && !hasUpdater(u, kube.MarkPrefix+string(x.id), "") && !lost {
			if lost = true; !stored {
				t.Error("it loses its mark before its UID is stored")
			}
		}
		return nil
	}
	if _, err := x.run(t); err != nil || !lost {
		t.Fatalf("%v; it lost its mark: %t", err, lost)
	}
}
