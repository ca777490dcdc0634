//go:build api

package move_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// giveBack is an order that rolls back without the target.
func (fx *fixture) giveBack(withoutStore bool) order {
	o := fx.order(doRollback)
	o.WithoutTarget, o.WithoutStore = true, withoutStore
	return o
}

// checkGivenBack asserts that the source has units back as they were, and no others, and that what
// is on the target is paused.
func (fx *fixture) checkGivenBack(st bothSides, paused ...string) (problems []string) {
	in, out := fx.split(paused...)
	for ref := range in {
		if u := st.source[ref]; ref.GroupKind() == capi.Cluster && !(u != nil && isPaused(u) &&
			capi.PausedByUs(u.Object)) {
			problems = append(problems, ref.String()+" was given back")
		}
	}
	problems = append(problems, fx.checkStays(st.source, out)...)
	if listed := st.listed[fx.at]; !slices.Equal(listed, paused) {
		problems = append(problems, fmt.Sprintf("the source denies to unpause %v, want %v", listed, paused))
	}
	for ref, u := range st.target {
		if ref.GroupKind() == capi.Cluster && !(isPaused(u) && capi.PausedByUs(u.Object)) {
			problems = append(problems, ref.String()+" is not paused on the target")
		}
	}
	return problems
}

// TestAPII1RollbackWithoutTarget: the target does not answer any more, and a move that died before
// a hand-over is rolled back without it. The source reconciles again, the copies stay paused, and
// the rollback that reaches the target removes them. Neither the target nor the store is needed
// where the journal proves that nothing was handed over. Where it does not, the record decides.
func TestAPII1RollbackWithoutTarget(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-target")
	locked := kill{Point: after, Step: "ns/" + allUnits[0] + "/lock"}
	copying := kill{Point: before, Step: "ns/" + allUnits[0] + "/cluster-status"}
	first := kill{Point: before, Step: "ns/" + allUnits[0] + "/hand-over"}
	for _, c := range []struct {
		name         string
		kill         kill
		lost         bool // the catalog: another host goes on
		withoutStore bool
		unsigned     bool // no record can be written
		// doubt: the unit whose hand-over was begun stays paused, until the store answers.
		doubt bool
		// resumed: a resume died as well, once its first record was in the store.
		resumed bool
	}{
		{"the journal proves it", locked, false, true, false, false, false},
		{"the journal proves it, copies are left, and the record is written late", copying, false, true,
			false, false, true},
		{"the journal proves it, copies are left, and no record can be signed", copying, false, false,
			true, false, false},
		{"the record proves it", first, false, false, false, false, false},
		{"the record is not written, and there is no store", notHandedOver, false, true, false, true, false},
		{"another host, and no hand-over was begun", copying, true, false, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			stop := fx.watch()
			owner, _ := fx.store.GetOwner(t.Context(), fx.workloadID(allUnits[0]))
			epoch := owner.Epoch
			o := fx.order(doMove)
			o.Canary, o.Kill = fx.namespace+"/"+allUnits[0], &c.kill
			_, err := fx.run(o)
			must(t, err)
			if c.resumed {
				o = fx.order(doResume)
				o.Kill = &kill{Point: atKey, Key: "operations/", Answered: true}
				_, err = fx.run(o)
				must(t, err)
			}
			o = fx.giveBack(c.withoutStore)
			o.Unsigned = c.unsigned
			if c.lost {
				o = fx.elsewhere(doRollback)
				o.WithoutTarget = true
			}
			e, err := fx.run(o)
			must(t, err)
			if c.doubt {
				if !strings.Contains(e.Message, "is not known without the ownership records") {
					t.Errorf("it ended as %s: %s", e.State, e.Message)
				}
				st, err := fx.state()
				must(t, err)
				fx.report(fx.checkGivenBack(st, allUnits[0]))
				e, err = fx.run(fx.giveBack(false))
				must(t, err)
			}
			if c.withoutStore && c.kill == copying {
				e, err = fx.run(fx.giveBack(false))
				must(t, err)
			}
			copied := c.kill != locked
			if left := strings.Contains(e.Message, "paused copies may be left"); left != copied {
				t.Errorf("it ended as %s: %s", e.State, e.Message)
			}
			st, err := fx.state()
			must(t, err)
			fx.report(fx.checkGivenBack(st))
			if copied {
				if st.target[clusterRef(fx.namespace, allUnits[0])] == nil {
					t.Error("the copy is gone")
				}
				if o, err := fx.store.GetOwner(t.Context(), fx.workloadID(allUnits[0])); (err != nil ||
					o.Owner.Owner.UID != fx.source().UID() || o.Epoch <= epoch) != c.unsigned {
					t.Errorf("no new record names the source: %v, %v", o.Owner, err)
				}
				fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
			}
			st, err = fx.state()
			must(t, err)
			fx.report(append(stop(), fx.checkBack(st)...))
		})
	}
}

// TestAPII1RollbackWithoutStoreLeavesWhatOthersMayHave: the store cannot be asked, and the lock on
// the source is that of a later run, of a host that has taken the move over; or this host has seen
// a newer ownership record. The unit stays paused and denied, although runs of this host that the
// store never heard of have higher numbers.
func TestAPII1RollbackWithoutStoreLeavesWhatOthersMayHave(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-store")
	unit := allUnits[0]
	ref := clusterRef(fx.namespace, unit)
	lock := func(from, to string) {
		fx.change(fx.at, ref, func(u *unstructured.Unstructured) {
			op, run, _ := strings.Cut(u.GetAnnotations()[capi.AnnotationOperation], "/")
			if run != from {
				t.Fatalf("the lock is of run %s, want %s", run, from)
			}
			capi.Annotate(u.Object, capi.AnnotationOperation, op+"/"+to)
		})
	}
	refused := func(want string) {
		t.Helper()
		for range 2 { // a second try is no later run, either
			e, err := fx.run(fx.giveBack(true))
			must(t, err)
			if !strings.Contains(e.Message, want) {
				t.Errorf("it ended as %s: %s", e.State, e.Message)
			}
		}
		st, err := fx.state()
		must(t, err)
		fx.report(fx.checkGivenBack(st, unit))
	}
	o := fx.order(doMove)
	o.Canary, o.Kill = fx.namespace+"/"+unit, &kill{Point: after, Step: "ns/" + unit + "/pause"}
	_, err := fx.run(o)
	must(t, err)
	c, err := o.openCatalog(t.Context())
	must(t, err)
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{Limit: 1})
	must(t, err)
	must(t, errors.Join(c.UpdateOperation(t.Context(), ops[0].ID, func(op *catalog.Operation) {
		op.Runs = 5
	}), c.Close()))
	lock("1", "2")
	refused("is locked by operation")
	lock("2", "1")
	c, err = o.openCatalog(t.Context())
	must(t, err)
	_, err = c.RaiseEpochs(t.Context(), fx.store.ID(), map[string]int64{fx.workloadID(unit): 7})
	must(t, errors.Join(err, c.Close()))
	refused("is not known without the ownership records")
	e, err := fx.run(fx.giveBack(false))
	if err != nil || !strings.Contains(e.Message, "paused copies may be left") {
		t.Errorf("it ended as %s: %s, %v", e.State, e.Message, err)
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.checkBack(st))
}

// TestAPII1RollbackWithoutTargetLeavesWhatIsHandedOver: the ownership record names the target, and
// the journal does not know it yet. Such a unit stays paused on the source; the others are given
// back. When the target answers, a resume goes on with it.
func TestAPII1RollbackWithoutTargetLeavesWhatIsHandedOver(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-target-late")
	stop := fx.watch()
	o := fx.order(doMove)
	o.Kill = &kill{Point: atKey, Key: "owners/", Answered: true}
	o.Canary = fx.namespace + "/" + classyUnits[0] // the others are not copied before it is retired
	_, err := fx.run(o)
	must(t, err)
	st, err := fx.state()
	must(t, err)
	var handed string
	for unit, yes := range st.handed {
		if yes {
			handed = unit
		}
	}
	for _, withoutStore := range []bool{true, false} {
		e, err := fx.run(fx.giveBack(withoutStore))
		must(t, err)
		want := map[bool]string{true: "is not known without", false: "cannot be rolled back"}[withoutStore]
		if !strings.Contains(e.Message, want) {
			t.Errorf("it ended as %s: %s", e.State, e.Message)
		}
		st, err := fx.state()
		must(t, err)
		fx.report(fx.checkGivenBack(st, handed))
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	st, err = fx.state()
	must(t, err)
	moved, stay := fx.split(handed)
	fx.report(append(stop(), fx.checkStays(st.source, stay)...))
	for ref := range moved {
		if st.source[ref] != nil || st.target[ref] == nil {
			t.Errorf("%s has not moved", ref)
		}
	}
}

// goForward is an order that resumes without the source.
func (fx *fixture) goForward(o order) order {
	o.WithoutSource, o.Away = true, object.Side{Name: fx.source().Name(), UID: fx.source().UID()}
	return o
}

// checkForward asserts that what was handed over is at work on the target, and paused on the
// source.
func (fx *fixture) checkForward(st bothSides) (problems []string) {
	for _, unit := range allUnits {
		ref := clusterRef(fx.namespace, unit)
		here, there := st.source[ref], st.target[ref]
		if st.handed[unit] && (here == nil || !capi.PausedByUs(here.Object) || there == nil ||
			isPaused(there) != (unit == pausedUnit)) {
			problems = append(problems, unit+" was handed over, and is not at work on the target alone")
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(st.handed)), true) {
		problems = append(problems, "nothing was handed over")
	}
	return problems
}

// TestAPIResumeWithoutSource: the source does not answer any more. Where nothing is handed over,
// nothing changes. A unit that the ownership record gives to the target is released there, by
// another host as well, and stays on the source, paused. When the source answers again, a resume
// retires it there, and moves the others.
func TestAPIResumeWithoutSource(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "no-source")
	stop := fx.watch()
	unit := allUnits[0]
	o := fx.order(doMove)
	o.Canary, o.Kill = fx.namespace+"/"+unit, &kill{Point: before, Step: "ns/" + unit + "/hand-over"}
	_, err := fx.run(o)
	must(t, err)
	check := func(o order, want string, released bool) {
		t.Helper()
		e, err := fx.run(fx.goForward(o))
		must(t, err)
		if e.State != string(catalog.Failed) || !strings.Contains(e.Message, want) {
			t.Errorf("it ended as %s: %s", e.State, e.Message)
		}
		here := fx.get(fx.at, clusterRef(fx.namespace, unit))
		there := fx.get(1-fx.at, clusterRef(fx.namespace, unit))
		if !isPaused(here) || !capi.PausedByUs(here.Object) || isPaused(there) == released {
			t.Errorf("it is paused on the source: %v, on the target: %v", isPaused(here), isPaused(there))
		}
	}
	check(fx.order(doResume), "0 workload clusters are released on the target, and their objects are "+
		"left on "+fx.source().Name()+"; 3 others were not handed over", false)
	o = fx.order(doResume)
	o.Kill = &kill{Point: atKey, Key: "owners/", Answered: true}
	_, err = fx.run(o)
	must(t, err)
	const one = "1 workload clusters are released"
	check(fx.elsewhere(doResume), one, true)
	check(fx.order(doResume), one, true)
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(append(stop(), fx.ended(false, st)...))
}

// TestAPIResumeSaysThatCopiesAreLeft: a rollback without the target gives one unit of a batch back,
// of which another one is handed over. A resume moves that one, and says what is left of the first;
// a rollback removes it.
func TestAPIResumeSaysThatCopiesAreLeft(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "copies-left")
	unit, handed := classyUnits[1], pausedUnit
	fx.interruptBesideHandOver(unit, handed)
	e, err := fx.run(fx.giveBack(false))
	must(t, err)
	if state := fx.unitState(unit); state != catalog.UnitGivenBack ||
		!strings.Contains(e.Message, "cannot be rolled back") {
		t.Errorf("it is %s; the rollback ended with: %s", state, e.Message)
	}
	e = fx.carryOut(fx.order(doResume), catalog.Failed, nil)
	if state := fx.unitState(handed); state != catalog.UnitRetired ||
		!strings.Contains(e.Message, "paused copies may be left") {
		t.Errorf("the other one is %s; the resume ended with: %s", state, e.Message)
	}
	left := func() (n int) {
		for ref := range fx.live(1 - fx.at) {
			if unitName(ref.Name) == unit {
				n++
			}
		}
		return n
	}
	if left() == 0 {
		t.Error("no copy is left: the test shows nothing")
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err := fx.state()
	must(t, err)
	stays, _ := fx.split(unit)
	fx.report(fx.checkStays(st.source, stays))
	if n := left(); n > 0 {
		t.Errorf("%d objects of its copy are left", n)
	}
}
