//go:build api

package move_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestAPIMoveWithoutRecordsResumesFromItsJournal: without ownership records only the journal knows
// of a hand-over. A crash behind it is resumed, one before it can be rolled back. One in a
// pre-copy, of which the target lacked the namespace when the move was planned, can be resumed.
func TestAPIMoveWithoutRecordsResumesFromItsJournal(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "nofence")
	fx.noFence = true
	for _, c := range []crash{
		{First: kill{Point: before, Step: "ns/w-00003/release"}},
		{First: kill{Point: inside, Step: "-/create-p1/02", Write: 1, Answered: true}, Back: true},
		{First: kill{Point: inside, Step: "ns/w-00003/pre-create/02", Write: 1, Answered: true},
			Fresh: true},
	} {
		r := fx.crash(c)
		if r.states == 0 {
			t.Errorf("%s: not reached", c)
		}
		fx.report(r.problems)
	}
	if names, err := os.ReadDir(filepath.Join(fx.dir, "store", "owners")); err == nil &&
		len(names) > 0 {
		t.Errorf("there are %d ownership records", len(names))
	}
}

// TestAPIMoveStopsBeforeTheHandOverOfAChangedSource: somebody writes to a Machine of the paused
// source after it was copied. The hand-over finds it, no record names the target, and the rollback
// leaves that write alone.
func TestAPIMoveStopsBeforeTheHandOverOfAChangedSource(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "changed")
	unit := classyUnits[0]
	var machine object.Ref
	for ref := range fx.was {
		if ref.Kind == "Machine" && unitName(ref.Name) == unit {
			machine = ref
		}
	}
	e := fx.carryOut(fx.order(doMove).restrict(fx.namespace, unit), catalog.Failed,
		func(_ context.Context, r catalog.StepRecord) error {
			if r.Step.Phase != "hand-over" || r.State != catalog.StepBegun {
				return nil
			}
			return fx.tryChange(fx.at, machine, func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object,
					"example.test/by", "somebody")
			})
		})
	if !strings.Contains(e.Message, "the source changed") ||
		!strings.Contains(e.Message, machine.Name) {
		t.Errorf("it ended with: %s", e.Message)
	}
	if st, err := fx.state(); err != nil || st.handed[unit] {
		t.Errorf("the ownership record names the target, or %v", err)
	}
	fx.was[machine] = fx.get(fx.at, machine)
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkBack(st))
}

// TestAPIMoveLeavesASharedClassOnBothSides moves one of two workload clusters with the same class.
// What they share is copied, stays on the source, and is paused on neither side. Then the others
// follow, and nothing is left.
func TestAPIMoveLeavesASharedClassOnBothSides(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "shared")
	fx.carryOut(fx.order(doMove).restrict(fx.namespace, classyUnits[0]), catalog.Succeeded, nil)
	st, err := fx.state()
	must(t, err)
	moved, stay := fx.split(classyUnits[0])
	fx.report(fx.checkStays(st.source, stay))
	for ref, was := range moved {
		if st.source[ref] != nil {
			t.Errorf("%s is still on the source", ref)
		}
		if u := st.target[ref]; u == nil || len(equality.Differences(nil, was.Object, u.Object,
			equality.All)) > 0 {
			t.Errorf("%s is not on the target as it was", ref)
		}
	}
	for ref, u := range st.target {
		if was := fx.was[ref]; was == nil || isPaused(u) != isPaused(was) {
			t.Errorf("%s on the target: paused is %v", ref, isPaused(u))
		}
	}
	if class := (object.Ref{Group: "cluster.x-k8s.io", Kind: "ClusterClass", Namespace: fx.namespace,
		Name: "in-memory"}); st.source[class] == nil || st.target[class] == nil {
		t.Error("the class is not on both sides")
	}
	fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
	st, err = fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
}

// TestAPIMoveBlocksOnlyUnitsWithFindings: what the garbage collector would delete with a unit, and
// the lock of another operation, block these units and no others. The foreign object and the lock
// are left alone. Without them a new move takes the rest.
func TestAPIMoveBlocksOnlyUnitsWithFindings(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "blocked")
	owned, locked := classyUnits[0], classyUnits[1]
	lease := kube.Kind{GroupKind: object.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"},
		Version: "v1", Resource: "leases", Namespaced: true}
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"namespace": fx.namespace, "name": "foreign"}}}
	for ref, u := range fx.was {
		if ref.Kind == "Machine" && unitName(ref.Name) == owned {
			foreign.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: u.GetAPIVersion(),
				Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}})
		}
	}
	foreign, err := fx.source().Writer().Create(t.Context(), lease, foreign)
	must(t, err)
	const lock = "0123456789ab/1"
	fx.change(fx.at, clusterRef(fx.namespace, locked),
		func(u *unstructured.Unstructured) { capi.Annotate(u.Object, capi.AnnotationOperation, lock) })
	must(t, fx.awaitQuiet())

	ends, err := fx.order(doMove).connect(t.Context(), newWitness(nil, nil))
	must(t, err)
	plan, err := move.NewPlan(t.Context(), ends, fx.order(doMove).Spec)
	must(t, err)
	codes := map[string]string{}
	for _, f := range plan.Copy.Findings {
		if f.Severity == object.Error {
			codes[f.Unit] += string(f.Code)
		}
	}
	want := map[string]string{fx.namespace + "/" + owned: "gc-would-cascade", fx.namespace + "/" +
		locked: "locked"}
	if !maps.Equal(codes, want) {
		t.Errorf("findings that block: %v, want %v", codes, want)
	}
	for _, u := range plan.Copy.Units {
		if u.Blocked != (want[u.Name] != "") {
			t.Errorf("%s: blocked is %v", u.Name, u.Blocked)
		}
	}

	fx.carryOut(fx.order(doMove), catalog.Failed, nil)
	st, err := fx.state()
	must(t, err)
	_, stay := fx.split(pausedUnit)
	fx.report(fx.checkStays(st.source, stay))
	for _, unit := range allUnits {
		ref := clusterRef(fx.namespace, unit)
		if there, here := st.target[ref] != nil, st.source[ref] != nil; there != (unit == pausedUnit) ||
			here == there {
			t.Errorf("%s: on the source %v, on the target %v", unit, here, there)
		}
	}
	if _, err := fx.source().Reader().Get(t.Context(), lease, fx.namespace, "foreign"); err != nil {
		t.Errorf("foreign object: %v", err)
	}

	must(t, fx.source().Writer().Delete(t.Context(), lease, fx.namespace, "foreign", foreign.GetUID(),
		""))
	fx.change(fx.at, clusterRef(fx.namespace, locked),
		func(u *unstructured.Unstructured) { capi.Unannotate(u.Object, capi.AnnotationOperation) })
	fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
	st, err = fx.state()
	must(t, err)
	fx.report(fx.checkMoved(st))
}

// TestAPIMoveRespectsALockSetAfterPlanning: another operation locks a workload cluster after the
// plan was made. Its lock is respected, and the rollback changes nothing.
func TestAPIMoveRespectsALockSetAfterPlanning(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "locked")
	unit, lock := classyUnits[0], "0123456789ab/1"
	ref := clusterRef(fx.namespace, unit)
	e := fx.carryOut(fx.order(doMove).restrict(fx.namespace, unit), catalog.Failed,
		func(_ context.Context, r catalog.StepRecord) error {
			if r.Step.Phase != "lock" || r.State != catalog.StepBegun {
				return nil
			}
			return fx.tryChange(fx.at, ref, func(u *unstructured.Unstructured) {
				capi.Annotate(u.Object,
					capi.AnnotationOperation, lock)
			})
		})
	if !strings.Contains(e.Message, "locked by operation "+lock) {
		t.Errorf("it ended with: %s", e.Message)
	}
	fx.was[ref] = fx.get(fx.at, ref)
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkStays(st.source, fx.was))
	if len(st.target) > 0 {
		t.Errorf("%d objects are left on the target", len(st.target))
	}
}

// TestAPIMoveRollbackLeavesUnitsThatAreHandedOver: with one unit past its hand-over, a rollback
// unpauses the others and reports that this one can only be resumed; a resume finishes it.
func TestAPIMoveRollbackLeavesUnitsThatAreHandedOver(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "forward")
	unit := classyUnits[0]
	o := fx.order(doMove)
	o.Canary, o.Kill = fx.namespace+"/"+unit, &kill{Point: before, Step: "ns/" + unit + "/retire"}
	began := time.Now()
	_, err := fx.run(o)
	must(t, err)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkCrashed(st, began))
	if e := fx.carryOut(fx.order(doRollback), catalog.Failed, nil); !strings.Contains(e.Message,
		"cannot be rolled back") {
		t.Errorf("it ended with: %s", e.Message)
	}
	moved, stay := fx.split(unit)
	if st, err = fx.state(); err != nil {
		t.Fatal(err)
	}
	fx.report(fx.checkStays(st.source, stay))
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if st, err = fx.state(); err != nil {
		t.Fatal(err)
	}
	fx.report(fx.checkStays(st.source, stay))
	for ref := range moved {
		if st.source[ref] != nil || st.target[ref] == nil {
			t.Errorf("%s has not moved", ref)
		}
	}
}
