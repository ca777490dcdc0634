//go:build api

package move_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
)

// touching writes to a Machine of the unit of an order when its hand-over begins, and leaves it as
// it was: the hand-over finds that the source changed. Then it calls next.
func (o order) touching(source move.Mgmt, next func(context.Context, catalog.StepRecord) error,
) func(context.Context, catalog.StepRecord) error {
	return func(ctx context.Context, r catalog.StepRecord) error {
		if o.Touch != "" && r.Step.Phase == "hand-over" && r.State == catalog.StepBegun &&
			strings.HasSuffix(r.Step.Unit, "/"+o.Touch) {
			if err := touch(ctx, source, r.Step.Unit); err != nil {
				return err
			}
		}
		return next(ctx, r)
	}
}

func touch(ctx context.Context, source move.Mgmt, unit string) error {
	namespace, name, _ := strings.Cut(unit, "/")
	k, _ := kube.FindKind(source.Kinds, capi.Machine)
	var machine string
	if _, err := source.Reader.List(ctx, k, kube.ListOptions{Namespace: namespace},
		func(raw []byte) error {
			u := &unstructured.Unstructured{}
			err := u.UnmarshalJSON(raw)
			if unitName(u.GetName()) == name {
				machine = u.GetName()
			}
			return err
		}); err != nil {
		return err
	}
	for _, by := range []string{"somebody", ""} {
		u, err := source.Reader.Get(ctx, k, namespace, machine)
		if err != nil {
			return err
		}
		if capi.Annotate(u.Object, "example.test/by", by); by == "" {
			capi.Unannotate(u.Object, "example.test/by")
		}
		if _, err := source.Writer.(*witnessed).Writer.Update(ctx, k, u); err != nil {
			return err
		}
	}
	return nil
}

// checkReturned asserts that one unit is on the source as it was, with nothing of it on the target,
// and that the others have moved.
func (fx *fixture) checkReturned(unit string) {
	fx.t.Helper()
	st, err := fx.state()
	must(fx.t, err)
	stays, moved := fx.split(unit)
	problems := fx.checkStays(st.source, stays)
	for ref := range stays {
		if st.target[ref] != nil {
			problems = append(problems, ref.String()+" is left on the target")
		}
	}
	for ref := range moved {
		if st.target[ref] == nil || unitName(ref.Name) != "" && st.source[ref] != nil {
			problems = append(problems, ref.String()+" has not moved")
		}
	}
	if slices.Contains(st.listed[fx.at], unit) {
		problems = append(problems, "the source denies to unpause it")
	}
	fx.report(problems)
}

// resumeToEnd resumes a move, after which the whole fleet has moved.
func (fx *fixture) resumeToEnd() {
	fx.t.Helper()
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
	st, err := fx.state()
	must(fx.t, err)
	fx.report(fx.ended(false, st))
}

// TestAPIMoveGivesBackWhatIsNotHandedOver: a unit that fails before its hand-over, or is paused for
// too long, is at work on the source again when the move ends, and its copy is gone. The others
// move. A resume begins from scratch with it. A move that is interrupted gives nothing back.
func TestAPIMoveGivesBackWhatIsNotHandedOver(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "give-back")
	unit := classyUnits[1]
	t.Run("a failure", func(t *testing.T) {
		stop := fx.watch()
		for range 2 { // it fails a second time, in a batch of its own
			o := fx.order(doMove)
			if st, err := fx.state(); err == nil && len(st.target) > 0 {
				o = fx.order(doResume)
			}
			o.Touch = unit
			e := fx.carryOut(o, catalog.Failed, nil)
			if !strings.Contains(e.Message, "the source changed") {
				t.Errorf("it ended with: %s", e.Message)
			}
			fx.checkReturned(unit)
		}
		fx.resumeToEnd()
		fx.report(stop())
	})
	t.Run("a long pause", func(t *testing.T) {
		const limit = 20 * time.Second
		o := fx.order(doMove)
		o.MaxPause = limit
		// It takes long while its objects are copied, and then before its record is written.
		for _, phase := range []string{"cluster-status", "hand-over"} {
			var once sync.Once
			e := fx.carryOut(o, catalog.Failed, func(_ context.Context, r catalog.StepRecord) error {
				if r.State == catalog.StepBegun && r.Step.Phase == phase &&
					strings.HasSuffix(r.Step.Unit, unit) {
					once.Do(func() { time.Sleep(limit) })
				}
				return nil
			})
			if n := len(e.Findings); n == 0 || !strings.HasPrefix(e.Findings[n-1], "max-pause ") {
				t.Errorf("findings: %v", e.Findings)
			}
			fx.checkReturned(unit)
			o.Do = doResume
		}
		fx.resumeToEnd()
	})
	t.Run("after an interrupt, and a rollback that failed", func(t *testing.T) {
		stop := fx.watch()
		fx.interruptBesideHandOver(unit, pausedUnit)
		undoes := func(r catalog.StepRecord) bool {
			return r.State == catalog.StepUndoing && r.Step.Phase == "pause" &&
				strings.HasSuffix(r.Step.Unit, unit)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := carryOut(ctx, fx.order(doRollback), func(_ context.Context,
			r catalog.StepRecord) error {
			if undoes(r) {
				cancel()
				return context.Canceled
			}
			return nil
		})
		must(t, err)
		if !fx.newest().Back {
			t.Error("a rollback that was stopped would be resumed forward")
		}
		// The rollback removes the copy, and cannot unpause the source.
		e := fx.carryOut(fx.order(doRollback), catalog.Failed, func(_ context.Context,
			r catalog.StepRecord) error {
			if undoes(r) {
				return errors.New("no answer")
			}
			return nil
		})
		if !strings.Contains(e.Message, "no answer") || !strings.Contains(e.Message, "handed over") {
			t.Errorf("it ended with: %s", e.Message)
		}
		o := fx.order(doResume)
		o.Touch = unit
		fx.carryOut(o, catalog.Failed, nil)
		fx.checkReturned(unit)
		fx.resumeToEnd()
		fx.report(stop())
	})
	t.Run("its copy cannot be removed", func(t *testing.T) {
		var allow func()
		refuses := fx.whenOnce(unit, "pause", catalog.StepDone, func() error {
			allow = fx.denyOn(fx.target(), "DELETE", "refuses-deletions", "machines", "false")
			return nil
		})
		o := fx.order(doMove)
		for range 2 { // a resume tries it again
			fx.carryOut(o, catalog.Failed, func(ctx context.Context, r catalog.StepRecord) error {
				if r.Step.Phase == "hand-over" && strings.HasSuffix(r.Step.Unit, unit) {
					return errors.New("it is not handed over")
				}
				return refuses(ctx, r)
			})
			if u := fx.get(fx.at, clusterRef(fx.namespace, unit)); !capi.PausedByUs(u.Object) {
				t.Error("the source works on it, and its copy is not gone")
			}
			o = fx.order(doResume)
		}
		allow()
		fx.resumeToEnd()
	})
	t.Run("all of a batch, and then the target does not answer", func(t *testing.T) {
		o := fx.order(doMove)
		o.Canary, o.Touch = fx.namespace+"/"+unit, unit
		fx.carryOut(o, catalog.Failed, nil)
		e, err := fx.run(fx.giveBack(false))
		must(t, err)
		if !strings.Contains(e.Message, "copies of shared objects may be left") {
			t.Errorf("it ended as %s: %s", e.State, e.Message)
		}
		fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
		st, err := fx.state()
		must(t, err)
		fx.report(fx.checkBack(st))
	})
}

// interruptBesideHandOver interrupts a move when one unit of a batch is handed over and another is
// about to be. Nothing is given back.
func (fx *fixture) interruptBesideHandOver(unit, handed string) {
	fx.t.Helper()
	ctx, cancel := context.WithCancel(fx.t.Context())
	defer cancel()
	done := make(chan struct{})
	_, err := carryOut(ctx, fx.order(doMove), func(ctx context.Context, r catalog.StepRecord) error {
		switch {
		case r.Step.Phase != "hand-over":
		case r.State == catalog.StepDone && strings.HasSuffix(r.Step.Unit, handed):
			close(done)
		case r.State == catalog.StepBegun && strings.HasSuffix(r.Step.Unit, unit):
			<-done
			cancel()
			return context.Canceled
		}
		return nil
	})
	must(fx.t, err)
	if u := fx.get(fx.at, clusterRef(fx.namespace, unit)); !capi.PausedByUs(u.Object) {
		fx.t.Error("an interrupted move has given back what it had copied")
	}
}

// TestAPIMovePausesFirstWhatAcknowledgesSlowly: a MachineHealthCheck has acknowledged its own pause
// before its Cluster is paused: it is locked by then. A rollback gives both back.
func TestAPIMovePausesFirstWhatAcknowledgesSlowly(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "pause-first")
	o := fx.order(doMove)
	var checks []object.Ref
	for ref := range fx.was {
		if ref.Kind == "MachineHealthCheck" && unitName(ref.Name) == classyUnits[0] {
			checks = append(checks, ref)
		}
	}
	if len(checks) == 0 {
		t.Fatal("it has none")
	}
	o.Kill = &kill{Point: inside, Step: "ns/" + classyUnits[0] + "/pause", Write: 1}
	_, err := fx.run(o)
	must(t, err)
	cluster := fx.get(0, clusterRef(fx.namespace, classyUnits[0]))
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	if lock := cluster.GetAnnotations()[capi.AnnotationOperation]; paused || lock == "" {
		t.Errorf("the Cluster: paused %t, lock %q", paused, lock)
	}
	for _, ref := range checks {
		if why := capi.NotAcknowledged(fx.get(0, ref).Object, "True"); why != "" {
			t.Errorf("%s: %s", ref, why)
		}
	}
	if state := fx.unitState(classyUnits[0]); state != catalog.UnitLocked {
		t.Errorf("it is %s", state)
	}
	fx.carryOut(fx.order(doRollback), catalog.RolledBack, nil)
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(true, st))
}

// TestAPIMoveGivesBackWhatItPausedFirst: somebody removes the lock of a workload cluster after its
// MachineHealthCheck was paused, and before its Cluster is. Both stay at work. A resume moves them.
func TestAPIMoveGivesBackWhatItPausedFirst(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "unlocked")
	check, cluster := fx.one("MachineHealthCheck", classyUnits[0]), clusterRef(fx.namespace,
		classyUnits[0])
	o := fx.order(doMove)
	o.Canary = fx.namespace + "/" + classyUnits[1] // it is alone: the other two are paused together
	paused := false
	e := fx.carryOut(o, catalog.Failed, fx.whenOnce(pausedUnit, "pause", catalog.StepBegun,
		func() error {
			paused = capi.PausedByUs(fx.get(fx.at, check).Object)
			// The unit waits for this one with its pause. Where it does not wait yet, it writes its lock
			// again.
			for calm := 0; calm < 3; calm++ {
				if err := fx.tryChange(fx.at, cluster, func(u *unstructured.Unstructured) {
					if u.GetAnnotations()[capi.AnnotationOperation] != "" {
						calm = 0
					}
					capi.Unannotate(u.Object, capi.AnnotationOperation)
				}); err != nil {
					return err
				}
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}))
	if !strings.Contains(e.Message, "is gone") {
		t.Errorf("it ended with: %s", e.Message)
	}
	for _, ref := range []object.Ref{check, cluster} {
		if u := fx.get(fx.at, ref); !paused || isPaused(u) || capi.PausedByUs(u.Object) {
			t.Errorf("%s, which was paused first: %t, is paused", ref, paused)
		}
	}
	fx.carryOut(fx.order(doResume), catalog.Succeeded, nil)
}

// TestAPIMovePausesNothingThatItCouldNotGiveBack: a policy of the target denies the deletion of
// Machines. No workload cluster is paused, until that is changed.
func TestAPIMovePausesNothingThatItCouldNotGiveBack(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "keeps-copies")
	allow := fx.denyOn(fx.target(), "DELETE", "keeps-copies", "machines", "false")
	paused := false
	e := fx.carryOut(fx.order(doMove), catalog.Failed, func(_ context.Context,
		r catalog.StepRecord) error {
		paused = paused || r.Step.Phase == "pause"
		return nil
	})
	if paused || !strings.Contains(e.Message, "it is not paused, since it could not be given back") ||
		!strings.Contains(e.Message, "not wanted here") {
		t.Errorf("paused: %t; it ended with: %s", paused, e.Message)
	}
	st, err := fx.state()
	must(t, err)
	for ref, u := range st.source {
		if capi.PausedByUs(u.Object) || u.GetAnnotations()[capi.AnnotationOperation] != "" {
			t.Errorf("%s is paused or locked", ref)
		}
	}
	allow()
	fx.resumeToEnd()
}

// besideSlow moves the fleet while the controllers of one unit do not acknowledge its pause: not
// before until says that they shall. It returns whether that was after its pause had begun.
func (fx *fixture) besideSlow(o order, want catalog.State, slow string,
	until func(r catalog.StepRecord) bool) bool {
	fx.t.Helper()
	machine := fx.one("Machine", slow)
	hold := func(change func(obj map[string]any, key, value string)) error {
		return fx.tryChange(fx.at, machine, func(u *unstructured.Unstructured) {
			change(u.Object, capi.AnnotationBlockMove, "")
		})
	}
	var paused, after atomic.Bool
	begins := fx.beginning(slow, "pause", func() error {
		paused.Store(true)
		return hold(capi.Annotate)
	})
	var once sync.Once
	o.Gather = 2 * time.Second
	fx.carryOut(o, want, func(ctx context.Context, r catalog.StepRecord) error {
		err := begins(ctx, r)
		if until(r) {
			once.Do(func() {
				after.Store(paused.Load())
				err = errors.Join(err, hold(func(obj map[string]any, key, _ string) {
					capi.Unannotate(obj, key)
				}))
			})
		}
		return err
	})
	return after.Load()
}

// TestAPIMoveBesideSlowControllers: a unit whose controllers are slow to acknowledge the pause does
// not prolong that of the unit with which it was paused. When that one fails, and the move ends
// with it, the slow one is given back.
func TestAPIMoveBesideSlowControllers(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "slow-controllers")
	slow, quick := classyUnits[1], pausedUnit
	is := func(r catalog.StepRecord, phase string, state catalog.StepState) bool {
		return strings.HasPrefix(r.Step.Phase, phase) && r.State == state &&
			r.Step.Unit == fx.namespace+"/"+quick
	}
	o := fx.order(doMove)
	if !fx.besideSlow(o, catalog.Succeeded, slow, func(r catalog.StepRecord) bool {
		return is(r, "release", catalog.StepDone)
	}) {
		t.Errorf("%s was released before %s was paused: they were no batch", quick, slow)
	}
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))

	o = fx.order(doMove)
	o.MaxFailures = 1
	write := fx.beginning(quick, "hand-over", func() error {
		machine := fx.one("Machine", quick)
		return errors.Join(fx.tryChange(fx.at, machine, func(u *unstructured.Unstructured) {
			capi.Annotate(u.Object, "example.test/later", "")
		}), fx.tryChange(fx.at, machine, func(u *unstructured.Unstructured) {
			capi.Unannotate(u.Object, "example.test/later")
		}))
	})
	fx.besideSlow(o, catalog.Failed, slow, func(r catalog.StepRecord) bool {
		must(t, write(t.Context(), r))
		return is(r, "give-back", catalog.StepBegun)
	})
	for _, unit := range []string{slow, quick} {
		ref := clusterRef(fx.namespace, unit)
		if u := fx.get(fx.at, ref); capi.PausedByUs(u.Object) ||
			u.GetAnnotations()[capi.AnnotationOperation] != "" {
			t.Errorf("%s is not given back: %v", unit, u.GetAnnotations())
		}
		_, err := fx.target().Reader().Get(t.Context(), fx.kind(1-fx.at, capi.Cluster), ref.Namespace,
			ref.Name)
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s is on the target: %v", unit, err)
		}
	}
	fx.resumeToEnd()
}
