//go:build api

package move_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// unitState returns the state of a unit in the newest operation.
func (fx *fixture) unitState(unit string) catalog.UnitState {
	fx.t.Helper()
	return fx.newest().Units[fx.namespace+"/"+unit]
}

// newest returns the newest operation.
func (fx *fixture) newest() catalog.Operation {
	fx.t.Helper()
	c, err := fx.order(doResume).openCatalog(fx.t.Context())
	must(fx.t, err)
	ops, err := c.Operations(fx.t.Context(), catalog.OperationFilter{Limit: 1})
	must(fx.t, err)
	must(fx.t, c.Close())
	return ops[0]
}

// TestAPIMoveOfWhatIsDeletedOnTheSource: somebody deletes a workload cluster of the source while it
// is moved. Before its pause it leaves the move. Once it is paused and copied, a resume touches
// nothing of it, and a rollback removes its copy. After its hand-over the move goes on. Each
// operation comes to its end.
func TestAPIMoveOfWhatIsDeletedOnTheSource(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "deleted")
	first, second, third := classyUnits[0], classyUnits[1], pausedUnit
	set := object.GroupKind{Group: "addons.cluster.x-k8s.io", Kind: "ClusterResourceSet"}
	fx.fill(fx.kind(fx.at, set), `{"metadata":{"name":"of-one"},"spec":{"clusterSelector":{
		"matchLabels":{"only":"one"}},"resources":[{"kind":"ConfigMap","name":"none"}]}}`)
	fx.change(fx.at, fx.one("ClusterResourceSetBinding", first), func(u *unstructured.Unstructured) {
		bindings, _, _ := unstructured.NestedSlice(u.Object, "spec", "bindings")
		_ = unstructured.SetNestedSlice(u.Object, append(bindings,
			map[string]any{"clusterResourceSetName": "of-one"}), "spec", "bindings")
	})
	must(t, fx.awaitQuiet())
	copied := 0
	deletes := func(unit string) {
		fx.remove(fx.at, func(name string) bool { return unitName(name) == unit })
	}
	on := func(i int, unit string) (n int) {
		for ref := range fx.live(i) {
			if unitName(ref.Name) == unit {
				n++
			}
		}
		return n
	}

	// It is alone in the first batch: that none of it comes on says nothing of the others.
	e := fx.carryOut(fx.order(doMove), catalog.Succeeded, fx.whenOnce(first, "pause",
		catalog.StepBegun, func() error {
			for ref := range fx.live(1 - fx.at) {
				if ref.Name == "of-one" {
					copied++
				}
			}
			deletes(first)
			return nil
		}))
	if want := string(object.CodeDeletedOnSource) + " " + fx.namespace + "/" +
		first; !slices.Contains(e.Warnings, want) {
		t.Errorf("it warns of %q", e.Warnings)
	}
	if n, state := on(1-fx.at, first), fx.unitState(first); n > 0 || state != catalog.UnitRolledBack {
		t.Errorf("%d objects of it are on the target, its state is %s", n, state)
	}
	for ref := range fx.live(fx.at) {
		if ref.Name != "of-one" {
			t.Errorf("%s is left on the source", ref)
		}
	}
	for ref, u := range fx.live(1 - fx.at) {
		if capi.PausedByUs(u.Object) != (ref.Name == "of-one") {
			t.Errorf("%s on the target: %v", ref, u.GetAnnotations())
		}
	}
	if copied == 0 || !slices.Contains(e.Warnings, string(object.CodeSharedKept)+" ") {
		t.Errorf("%d objects were copied that only the first one used; it warns of %q", copied, e.Warnings)
	}

	for i := range 2 {
		fx.remove(i, func(name string) bool { return name == "of-one" })
	}
	fx.at = 1 - fx.at
	must(t, fx.awaitQuiet())
	o := fx.order(doMove)
	o.Canary, o.Kill = fx.namespace+"/"+second, &notHandedOver
	_, err := fx.run(o)
	must(t, err)
	copied = on(1-fx.at, second)
	deletes(second)
	e = fx.carryOut(fx.order(doResume), catalog.Failed, nil)
	u := fx.get(1-fx.at, clusterRef(fx.namespace, second))
	if !strings.Contains(e.Message, "gone from the source") || on(1-fx.at, second) != copied ||
		!capi.PausedByUs(u.Object) {
		t.Errorf("%d of %d objects of its copy are there; it ended with: %s", on(1-fx.at, second), copied,
			e.Message)
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	if left := fx.live(1 - fx.at); len(left) > 0 {
		t.Errorf("%d objects are left on the target", len(left))
	}

	must(t, fx.awaitQuiet())
	o = fx.order(doMove)
	o.Kill = &handedOver
	_, err = fx.run(o)
	must(t, err)
	deletes(third)
	o = fx.order(doResume)
	o.NoIdentity = true
	e = fx.carryOut(o, catalog.Failed, nil)
	if !strings.Contains(e.Message, "its snapshot cannot be read") || len(e.Findings) != 1 {
		t.Errorf("without an identity it ended with: %s, %q", e.Message, e.Findings)
	}
	for ref := range fx.live(fx.at) {
		if name := unitName(ref.Name); name == first || name == second {
			t.Errorf("%s is left on the source: the identity was needed for %s only", ref, third)
		}
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if n, left := on(1-fx.at, third), fx.live(fx.at); n == 0 || len(left) > 0 {
		t.Errorf("%d objects are on the target, %d on the source", n, len(left))
	}
}

// TestAPIMoveWhoseCanaryIsDeleted: the run ends, since nothing has shown that the target is well,
// and a resume moves the others.
func TestAPIMoveWhoseCanaryIsDeleted(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "canary")
	unit := classyUnits[1]
	o := fx.order(doMove)
	o.Canary = fx.namespace + "/" + unit
	o.Spec.Selection = restore.Selection{}
	for _, name := range append(slices.Clone(classyUnits), pausedUnit) { // a resume finds one less
		o.Spec.Selection.Workloads = append(o.Spec.Selection.Workloads,
			object.Key{Namespace: fx.namespace, Name: name})
	}
	e := fx.carryOut(o, catalog.Failed, fx.whenOnce(unit, "lock", catalog.StepBegun, func() error {
		fx.remove(fx.at, func(name string) bool { return unitName(name) == unit })
		return nil
	}))
	if !strings.Contains(e.Message, "the canary "+o.Canary+" is gone") ||
		!strings.Contains(e.Message, "not released: 2") {
		t.Errorf("it ended with: %s", e.Message)
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	for ref := range fx.live(fx.at) {
		if ref.GroupKind() == capi.Cluster || ref.GroupKind() == capi.Machine {
			t.Errorf("%s is left on the source", ref)
		}
	}
}

// TestAPIMoveOfWhatIsBeingDeleted: a workload cluster that somebody is deleting is left to that. A
// resume after the deletion removes from the source what it has shared with the others.
func TestAPIMoveOfWhatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "deleting")
	unit := classyUnits[1]
	ref := clusterRef(fx.namespace, unit)
	k := fx.kind(fx.at, ref.GroupKind())
	e := fx.carryOut(fx.order(doMove), catalog.Failed, fx.whenOnce(unit, "pause", catalog.StepBegun,
		func() error {
			return fx.source().Writer().Delete(t.Context(), k, ref.Namespace, ref.Name,
				fx.was[ref].GetUID(), "")
		}))
	if u := fx.get(fx.at, ref); !strings.Contains(e.Message, "is being deleted") || isPaused(u) ||
		u.GetAnnotations()[capi.AnnotationOperation] != "" {
		t.Errorf("it is paused: %v, annotated %v; the move ended with: %s", isPaused(u),
			u.GetAnnotations(), e.Message)
	}
	fx.remove(fx.at, func(name string) bool { return unitName(name) == unit })
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	for ref := range fx.live(fx.at) {
		t.Errorf("%s is left on the source", ref)
	}
	for ref, u := range fx.live(1 - fx.at) {
		if capi.PausedByUs(u.Object) {
			t.Errorf("%s is paused on the target", ref)
		}
	}
}

// TestAPIAResumeTakesWhatIsHandedOverFromTheSnapshot: a run ends after the hand-over and before the
// release, and somebody deletes one object of the workload cluster on the source, begins to delete
// another one, and writes to a third. It is released as it was handed over. The writes are reported
// then, and what is gone at the end.
func TestAPIAResumeTakesWhatIsHandedOverFromTheSnapshot(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "strayed")
	o, unit := fx.order(doMove), classyUnits[0]
	o.Kill, o.Canary = &handedOver, fx.namespace+"/"+unit
	_, err := fx.run(o)
	must(t, err)
	written, gone := fx.one("MachineDeployment", unit), fx.one("DevCluster", unit)
	unreadable := func(ref object.Ref) {
		t.Helper()
		o := fx.order(doResume)
		o.NoIdentity = true
		e := fx.carryOut(o, catalog.Failed, nil) // with the findings of earlier runs
		if !slices.ContainsFunc(e.Findings, func(f string) bool {
			return strings.Contains(f, ref.String()) && strings.Contains(f, "its snapshot cannot be read")
		}) {
			t.Errorf("without an identity nothing is said of %s: %q", ref, e.Findings)
		}
	}
	had, _, _ := unstructured.NestedInt64(fx.get(fx.at, written).Object, "spec", "replicas")
	fx.change(fx.at, written, scale(7))
	unreadable(written)
	fx.change(fx.at, written, scale(had))
	fx.remove(fx.at, func(name string) bool { return name == gone.Name })
	unreadable(gone)
	fx.change(fx.at, written, scale(7))
	going := fx.one("KubeadmControlPlane", unit)
	must(t, fx.source().Writer().Delete(t.Context(), fx.kind(fx.at, going.GroupKind()), going.Namespace,
		going.Name, fx.get(fx.at, going).GetUID(), ""))
	e := fx.carryOut(fx.order(doResume), catalog.Failed, nil)
	e.hasLateWrite(t, written.Name, going.Name)
	if warning := string(object.CodeDeletedOnSource) + " " + o.Canary; !slices.Contains(e.Warnings,
		warning) {
		t.Errorf("it warns of %q, not of %q", e.Warnings, warning)
	}
	if isPaused(fx.get(1-fx.at, clusterRef(fx.namespace, unit))) || fx.live(1 - fx.at)[gone] == nil {
		t.Errorf("it is paused on the target, or %s is not there", gone)
	}
	o = fx.order(doResume) // its post-flight has passed: nothing is compared with the snapshot any more
	o.NoIdentity = true
	if again := fx.carryOut(o, catalog.Failed, nil); len(again.Findings) != len(e.Findings)+1 {
		t.Errorf("without an identity it reports: %q", again.Findings[len(e.Findings):])
	} else {
		last := end{Findings: again.Findings[len(e.Findings):]}
		last.hasLateWrite(t, written.Name)
	}
	fx.accept(unit)
	fx.carryOut(o, catalog.Succeeded, nil)
	if left := fx.live(fx.at); len(left) > 0 {
		t.Errorf("%d objects are left on the source", len(left))
	}
}
