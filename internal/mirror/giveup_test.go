package mirror

import (
	"errors"
	"math"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// readOnly makes the bucket refuse writes from now on.
func (h *host) readOnly() {
	h.bucket.refuse = &bucket.Error{Op: "put", Class: bucket.ErrDenied, Err: errors.New("read only")}
}

func isUnwritable(err error, own bool) bool {
	e, ok := errors.AsType[*UnwritableError](err)
	return ok && e.Own == own
}

// stop ends a run whose end the store may not take.
func (h *host) stop(j *catalog.Journal) {
	h.t.Helper()
	_, err := h.c.SetState(h.t.Context(), j.Operation(), catalog.Stopped, catalog.Outcome{})
	must(h.t, err)
	_ = h.m.Close(h.t.Context())
}

// TestMirrorIsGivenUpOnlyWhenTheOperatorAsks: the bucket becomes read-only in the middle. Once it
// takes records again, the mirror has all that was done without it.
func TestMirrorIsGivenUpOnlyWhenTheOperatorAsks(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	a.readOnly()
	if err := a.do(j, "own"); !isUnwritable(err, true) || !errors.Is(err, store.ErrDenied) {
		t.Fatalf("a dangerous step: %v", err)
	}
	a.stop(j)
	j = a.begin(j.Operation())
	if err := a.do(j, "own"); !isUnwritable(err, true) {
		t.Errorf("a resume went on without the mirror: %v", err)
	}
	a.stop(j)
	a.giveUp = true
	j = a.begin(j.Operation())
	must(t, a.do(j, "own"))
	must(t, a.undo(j, "create"))
	a.end(j, catalog.Stopped)
	if len(a.unable) != 1 {
		t.Errorf("said %d times that there is no mirror", len(a.unable))
	}
	// The lock of a move yields to a higher run only: another host takes over with a lower one.
	op, err := a.c.Operation(t.Context(), j.Operation())
	must(t, err)
	stale, err := Import(t.Context(), b.c, b.st, "", j.Operation())
	must(t, err)
	if stale.Runs+100 > op.Runs {
		t.Errorf("run %d, and that of the host that takes over %d", op.Runs, stale.Runs)
	}
	// Without the store, the lock of that run has to be known as one of this host.
	if state, err := a.c.Mirror(t.Context(), j.Operation()); err != nil || state.Runs != op.Runs {
		t.Errorf("run %d is noted, %v; it was %d", state.Runs, err, op.Runs)
	}
	a.bucket.refuse, a.giveUp = nil, false
	j = a.begin(j.Operation())
	must(t, a.do(j, "release"))
	other := b.takeOver(j.Operation())
	if state, err := other.State(t.Context(), catalog.Step{Unit: "team-a/web",
		Phase: "create"}); state != catalog.StepUndone || err != nil {
		t.Errorf("the mirror has the step as %q, %v", state, err)
	}
}

// TestMirrorOfAnotherHostIsNotGivenUp: the host that wrote the newest record would not notice.
func TestMirrorOfAnotherHostIsNotGivenUp(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	b.giveUp = true
	b.readOnly()
	other := b.takeOver(j.Operation())
	if err := b.do(other, "release"); !isUnwritable(err, false) {
		t.Errorf("went on beside the first host: %v", err)
	}
	b.stop(other)
	b.bucket.refuse = nil
	other = b.begin(j.Operation())
	must(t, b.do(other, "release"))
	a.stop(j)
	a.giveUp = true
	a.readOnly()
	if _, err := a.tryBegin(j.Operation()); !errorIsFenced(err) {
		t.Errorf("the first host goes on beside the other one: %v", err)
	}
	b.readOnly() // it has written the newest record by now
	must(t, b.do(other, "own"))
}

// TestMirrorIsGivenUpWithoutItsKeysOrItsRecords: the signing key is lost, or somebody removed the
// records.
func TestMirrorIsGivenUpWithoutItsKeysOrItsRecords(t *testing.T) {
	f := newFixture(t)
	for name, prepare := range map[string]func(a *host, id catalog.OperationID){
		"key": func(a *host, _ catalog.OperationID) {
			keys, err := store.LoadKeys(store.KeyOptions{})
			must(t, err)
			a.st, err = store.Open(t.Context(), store.Options{Bucket: a.bucket, Keys: keys})
			must(t, err)
		},
		"records": func(a *host, id catalog.OperationID) {
			_, err := a.st.RemoveOperation(t.Context(), string(id), math.MaxInt64)
			must(t, err)
		},
	} {
		a := f.host(name)
		j := a.begin("")
		must(t, a.do(j, "create"))
		a.end(j, catalog.Stopped)
		prepare(a, j.Operation())
		if _, err := a.tryBegin(j.Operation()); err == nil {
			t.Errorf("%s: a resume went on without the mirror", name)
		}
		a.giveUp = true
		j = a.begin(j.Operation())
		must(t, a.do(j, "release"))
		op, err := a.c.Operation(t.Context(), j.Operation())
		must(t, err)
		state, err := a.c.Mirror(t.Context(), j.Operation())
		if err != nil || state.Runs != op.Runs {
			t.Errorf("%s: run %d is noted, %v; it is %d", name, state.Runs, err, op.Runs)
		}
		a.end(j, catalog.Succeeded)
	}
}
