//go:build api

package move_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// unitState returns the state of a unit in the newest operation.
func (fx *fixture) unitState(unit string) catalog.UnitState {
	fx.t.Helper()
	c, err := fx.order(doResume).openCatalog(fx.t.Context())
	must(fx.t, err)
	ops, err := c.Operations(fx.t.Context(), catalog.OperationFilter{Limit: 1})
	must(fx.t, err)
	must(fx.t, c.Close())
	return ops[0].Units[fx.namespace+"/"+unit]
}

// TestAPIMoveOfWhatIsDeletedOnTheSource: somebody deletes a workload cluster of the source while it
// is moved. Before its pause it leaves the move. Once it is paused and copied, a resume touches
// nothing of it, and a rollback removes its copy. After its hand-over the move goes on. Each
// operation comes to its end.
func TestAPIMoveOfWhatIsDeletedOnTheSource(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "deleted")
	first, second, third := classyUnits[0], classyUnits[1], pausedUnit
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
	if left := fx.live(fx.at); len(left) > 0 {
		t.Errorf("%d objects are left on the source", len(left))
	}

	fx.at = 1 - fx.at
	must(t, fx.awaitQuiet())
	o := fx.order(doMove)
	o.Canary, o.Kill = fx.namespace+"/"+second, &notHandedOver
	_, err := fx.run(o)
	must(t, err)
	copied := on(1-fx.at, second)
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
	e := fx.carryOut(o, catalog.Failed, fx.whenOnce(unit, "lock", catalog.StepBegun, func() error {
		fx.remove(fx.at, func(name string) bool { return unitName(name) == unit })
		return nil
	}))
	if !strings.Contains(e.Message, "the canary "+o.Canary+" was deleted") ||
		!strings.Contains(e.Message, "not released: 2") {
		t.Errorf("it ended with: %s", e.Message)
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	if left := fx.live(fx.at); len(left) > 0 {
		t.Errorf("%d objects are left on the source", len(left))
	}
}
