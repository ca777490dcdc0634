package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// TestHostThatWasSuspendedAsksBeforeHarmlessSteps: what it creates after a take-over is litter.
func TestHostThatWasSuspendedAsksBeforeHarmlessSteps(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	must(t, b.do(b.takeOver(j.Operation()), "release"))
	a.m.mu.Lock()
	a.m.written = time.Now().Add(-time.Minute)
	a.m.mu.Unlock()
	if err := a.do(j, "owners"); !errorIsFenced(err) {
		t.Errorf("began: %v", err)
	}
}

// TestFirstHostStopsWhenAnotherTakesOver: it loses its next record, begins no step any more, and
// cannot begin a run.
func TestFirstHostStopsWhenAnotherTakesOver(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	other := b.takeOver(j.Operation())
	must(t, b.do(other, "release"))

	err := a.do(j, "release")
	fenced, ok := errors.AsType[*FencedError](err)
	if !ok || fenced.Host != "b" || len(a.lost) != 1 {
		t.Fatalf("%v, lost %v; want host b", err, a.lost)
	}
	for _, phase := range []string{"owners", "own"} {
		if err := a.do(j, phase); err == nil {
			t.Errorf("%s began although another host has taken over", phase)
		}
	}
	if diff := cmp.Diff([]string{"create"}, a.changed); diff != "" {
		t.Errorf("steps of the first host (-want +got):\n%s", diff)
	}
	a.end(j, catalog.Stopped)
	if _, err := a.tryBegin(j.Operation()); !errorIsFenced(err) {
		t.Errorf("the first host begins again: %v", err)
	}
	b.end(other, catalog.Stopped)
	// An operator may bring it back, with all that the other host has done.
	back := a.takeOver(j.Operation())
	if state, err := back.State(t.Context(), catalog.Step{Unit: "team-a/web",
		Phase: "release"}); state != catalog.StepDone || err != nil {
		t.Errorf("the step of the other host is %q, %v", state, err)
	}
	if err := b.do(other, "own"); err == nil {
		t.Error("the other host goes on")
	}
}

func errorIsFenced(err error) bool {
	_, ok := errors.AsType[*FencedError](err)
	return ok
}

// TestOfTwoHostsThatTakeOverOneStops: both have read the same record.
func TestOfTwoHostsThatTakeOverOneStops(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.host("a"), f.host("b"), f.host("c")
	j := a.begin("")
	must(t, a.do(j, "create"))
	first, second := b.takeOver(j.Operation()), c.takeOver(j.Operation())
	must(t, b.do(first, "release"))
	if err := c.do(second, "release"); !errorIsFenced(err) || len(c.changed) > 0 {
		t.Errorf("%v, changed %v", err, c.changed)
	}
}

// TestHostKnowsItsOwnRecordAfterACrash: the answer to its last record was lost, and so was the
// process. It is not taken for another host.
func TestHostKnowsItsOwnRecordAfterACrash(t *testing.T) {
	f := newFixture(t)
	a := f.host("a")
	j := a.begin("")
	must(t, a.do(j, "create"))
	a.bucket.refuse, a.bucket.lostAnswer = &bucket.Error{Op: "put", Class: bucket.ErrUnreachable,
		Err: errors.New("reset")}, true
	if err := a.do(j, "release"); err == nil {
		t.Fatal("the answer was not lost")
	}
	must(t, a.c.Close())
	a.bucket.refuse, a.bucket.lostAnswer = nil, false
	a.open()
	_, err := a.c.SetState(t.Context(), j.Operation(), catalog.Stopped, catalog.Outcome{})
	must(t, err)
	must(t, a.do(a.begin(j.Operation()), "release"))
	// And within one process the record is not written twice.
	a.bucket.refuse, a.bucket.lostAnswer = &bucket.Error{Op: "put", Class: bucket.ErrUnreachable,
		Err: errors.New("reset")}, true
	j = a.c.Journal(j.Operation(), a.m.Journal())
	if err := a.do(j, "own"); err == nil {
		t.Fatal("the answer was not lost")
	}
	a.bucket.refuse, a.bucket.lostAnswer = nil, false
	must(t, a.do(j, "own"))
	_, _, err = Read(t.Context(), a.st, j.Operation())
	must(t, err)
}

// TestUndoOfAnImportedOperationSkipsNoStep: the lost host may have begun steps that only its
// catalog knew of.
func TestUndoOfAnImportedOperationSkipsNoStep(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	must(t, a.undo(j, "owners"))
	other := b.takeOver(j.Operation())
	must(t, b.undo(other, "owners"))
	b.bucket.refuse = &bucket.Error{Op: "put", Class: bucket.ErrUnreachable, Err: errors.New("down")}
	if err := b.do(other, "owners"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("a step that the store has as undone began: %v", err)
	}
	b.bucket.refuse = nil
	if len(a.changed) != 1 || len(b.changed) != 1 {
		t.Errorf("the first host did %v, the other one %v", a.changed, b.changed)
	}
}

// TestDaemonResumesNoImportedOperationByItself: a daemon resumes what it left itself when it ended.
// What it imported, another daemon may resume as well.
func TestDaemonResumesNoImportedOperationByItself(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	for _, cause := range []catalog.StopCause{catalog.StopDaemonEnded, catalog.StopProcessDied,
		catalog.StopRequested} {
		j := a.begin("")
		must(t, a.do(j, "pause"))
		_, err := a.c.SetState(t.Context(), j.Operation(), catalog.Stopped,
			catalog.Outcome{Message: "it ended", Cause: cause})
		must(t, err)
		must(t, a.m.Close(t.Context()))
		op, err := Import(t.Context(), b.c, b.st, "", j.Operation())
		must(t, err)
		if op.StopCause != catalog.StopElsewhere || op.State != catalog.Stopped ||
			op.Message != "it ended" {
			t.Errorf("%s: imported as %s, %q, %q", cause, op.State, op.StopCause, op.Message)
		}
	}
}

// TestHostWhoseMirrorWasPrunedIsFencedOut: it was suspended while another host finished the
// operation and a prune removed the records. Its next number is free again.
func TestHostWhoseMirrorWasPrunedIsFencedOut(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	other := b.takeOver(j.Operation())
	must(t, b.do(other, "release"))
	b.end(other, catalog.Succeeded)
	if n, err := Prune(t.Context(), b.st, time.Now().Add(Retention+time.Hour)); n == 0 || err != nil {
		t.Fatalf("removed %d records, %v", n, err)
	}
	a.m.mu.Lock()
	a.m.written = time.Now().Add(-Retention)
	a.m.mu.Unlock()
	for _, phase := range []string{"release", "owners"} {
		err := a.do(j, phase)
		if _, ok := errors.AsType[*RemovedError](err); !ok {
			t.Errorf("%s began: %v", phase, err)
		}
	}
	if left, err := List(t.Context(), a.st); len(left) > 0 || err != nil {
		t.Errorf("it wrote %v, %v", left, err)
	}
}

// TestHostThatWasSuspendedWithinAStepCreatesNothingMore: the step had begun before the take-over,
// and its record is in the store.
func TestHostThatWasSuspendedWithinAStepCreatesNothingMore(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	suspended := func() {
		a.m.mu.Lock()
		a.m.written = time.Now().Add(-time.Minute)
		a.m.mu.Unlock()
	}
	step := catalog.Step{Unit: "team-a/web", Phase: "create"}
	err := j.Do(t.Context(), step, func(ctx context.Context, _ *catalog.StepHandle) error {
		suspended()
		if err := j.Alive(ctx); err != nil {
			t.Errorf("nobody has taken over: %v", err)
		}
		must(t, b.do(b.takeOver(j.Operation()), "release"))
		if err := j.Alive(ctx); err != nil {
			t.Errorf("asked the store a moment after it was asked: %v", err)
		}
		suspended()
		return j.Alive(ctx)
	})
	if !errorIsFenced(err) || len(a.lost) != 1 {
		t.Errorf("goes on: %v", err)
	}
}

// TestARecordIsAsOldAsItsQuestion: a host that was suspended reads the answer long after it was
// given. Another host may have gone on since.
func TestARecordIsAsOldAsItsQuestion(t *testing.T) {
	a := newFixture(t).host("a")
	j := a.begin("")
	must(t, a.do(j, "create"))
	a.bucket.stored = func() { a.m.sealedAt = a.m.sealedAt.Add(-time.Hour) }
	must(t, a.do(j, "release"))
	if a.m.mu.Lock(); !isOld(a.m.written) {
		t.Errorf("it counts as written at %s", a.m.written)
	}
	a.m.mu.Unlock()
}

// TestRunThatTheStoreNeverHeardOfDoesNotCount: a run that began no step wrote no record, and
// another host that takes over gives its own run the same number.
func TestRunThatTheStoreNeverHeardOfDoesNotCount(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	runs := func(h *host, id catalog.OperationID) (counted, written int) {
		op, err := h.c.Operation(t.Context(), id)
		must(t, err)
		state, err := h.c.Mirror(t.Context(), id)
		must(t, err)
		return op.Runs, state.Runs
	}
	j := a.begin("")
	must(t, a.do(j, "create"))
	if counted, written := runs(a, j.Operation()); counted != 1 || written != 1 {
		t.Errorf("right after its first record run %d, of which the store knows %d", counted, written)
	}
	a.end(j, catalog.Stopped)
	j = a.begin(j.Operation())
	a.end(j, catalog.Stopped)
	if counted, written := runs(a, j.Operation()); counted != 2 || written != 1 {
		t.Errorf("run %d, of which the store knows %d", counted, written)
	}
	other := b.takeOver(j.Operation())
	must(t, b.do(other, "release"))
	if counted, _ := runs(b, j.Operation()); counted != 2 {
		t.Errorf("the run of the other host has number %d", counted)
	}
}
