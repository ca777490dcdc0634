package mirror

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// TestOnlyHarmlessStepsBeginWithoutTheirRecord: what the store does not know must not change
// anything that another host could not repeat.
func TestOnlyHarmlessStepsBeginWithoutTheirRecord(t *testing.T) {
	a := newFixture(t).host("a")
	j := a.begin("")
	down := &bucket.Error{Op: "put", Class: bucket.ErrUnreachable, Err: errors.New("down")}
	a.bucket.refuse = down
	if err := a.do(j, "create"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("the first step of a run began: %v", err)
	}
	a.bucket.refuse = nil
	must(t, a.do(j, "create"))
	a.bucket.refuse = down
	must(t, a.do(j, "owners"))
	for _, phase := range []string{"own", "release", "pause", "hand-over", "retire",
		"never-heard-of"} {
		if err := a.do(j, phase); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("%s began: %v", phase, err)
		}
	}
	if err := a.undo(j, "create"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("undo began: %v", err)
	}
	_, err := a.c.PutBatchPlan(t.Context(), j.Operation(), "batch-001", strings.NewReader("batch"))
	must(t, err)
	for range 2 { // the first one leaves the plan in a record that is not stored
		if err := a.do(j, "create-b1"); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("a step of a new plan began: %v", err)
		}
	}
	a.bucket.refuse = nil
	must(t, a.do(j, "release"))
	// A rollback elsewhere would skip a step that the store has as undone.
	must(t, a.undo(j, "create"))
	a.bucket.refuse = down
	if err := a.do(j, "create"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("a step that was undone began again: %v", err)
	}
	if diff := cmp.Diff([]string{"create", "owners", "release", "undo create"}, a.changed); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestStoreThatTakesNoRecordsStopsNoRestore: the run goes on, and says so once.
func TestStoreThatTakesNoRecordsStopsNoRestore(t *testing.T) {
	f := newFixture(t)
	a := f.host("a")
	a.bucket.refuse = &bucket.Error{Op: "put", Class: bucket.ErrDenied, Err: errors.New("read only")}
	j := a.begin("")
	must(t, a.do(j, "create"))
	must(t, a.do(j, "release"))
	a.end(j, catalog.Stopped)
	if len(a.unable) != 1 || !errors.Is(a.unable[0], store.ErrDenied) {
		t.Errorf("unable: %v", a.unable)
	}
	// The next run tries again. Once there are records, it does not go on without them.
	a.bucket.refuse = nil
	j = a.begin(j.Operation())
	must(t, a.do(j, "own"))
	a.bucket.refuse = &bucket.Error{Op: "put", Class: bucket.ErrDenied, Err: errors.New("read only")}
	if err := a.do(j, "retire"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("went on without the mirror that another host may have taken over: %v", err)
	}
}
