package catalog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

func TestOnlyListedTransitionsAreAllowed(t *testing.T) {
	t.Parallel()
	all := []State{Planned, Running, Succeeded, Stopped, Failed, RolledBack, NeedsIdentity}
	// How to get there from planned.
	path := map[State][]State{Planned: nil, Running: {Running}}
	for _, s := range []State{Succeeded, Stopped, Failed, RolledBack, NeedsIdentity} {
		path[s] = []State{Running, s}
	}
	allowed := map[string]bool{
		"planned running": true, "planned failed": true, "running succeeded": true, "running stopped": true,
		"running failed": true, "running rolled-back": true,
		"running needs-identity": true, "stopped running": true, "stopped stopped": true,
		"failed running": true, "needs-identity running": true, "succeeded running": true,
	}
	c := openTest(t)
	for _, from := range all {
		for _, to := range all {
			id := newOperation(t, c, path[from]...)
			op, err := c.SetState(t.Context(), id, to, Outcome{Message: "why", Code: "CODE"})
			if allowed[fmt.Sprint(from, " ", to)] {
				if err != nil || op.State != to || op.Message != "why" || op.Code != "CODE" {
					t.Errorf("%s to %s: %+v, %v", from, to, op, err)
				}
				continue
			}
			var illegal *TransitionError
			if !errors.As(err, &illegal) || illegal.From != from || illegal.To != to {
				t.Errorf("%s to %s: %v; want it refused", from, to, err)
			}
			if op, err := c.Operation(t.Context(), id); err != nil || op.State != from {
				t.Errorf("%s to %s: went to %s, %v", from, to, op.State, err)
			}
		}
	}
	if _, err := c.SetState(t.Context(), "000000000000", Running, Outcome{}); !errors.Is(err,
		ErrNotFound) {
		t.Errorf("unknown operation: %v", err)
	}
}

// TestRunWithoutEffectLeavesOperationUnchanged: a run whose steps could not change anything leaves
// an operation that changed nothing, unless an earlier run did.
func TestRunWithoutEffectLeavesOperationUnchanged(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c)
	// what the first run does not do, the second one does
	for _, want := range []bool{false, true} {
		for _, untouched := range []bool{!want, true} {
			setState(t, c, id, Running)
			err := c.Journal(id, JournalOptions{}).Do(t.Context(), testStep,
				func(context.Context, *StepHandle) error { return errors.New("refused") })
			if err == nil {
				t.Fatal("the step is done")
			}
			op, err := c.SetState(t.Context(), id, Failed, Outcome{Untouched: untouched})
			if err != nil || op.Changed != want {
				t.Errorf("run %d, untouched %t: changed %t, want %t, %v", op.Runs, untouched, op.Changed, want,
					err)
			}
			if !want {
				break
			}
		}
	}
}

func TestOneOfManyResumesWins(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c, Running, Failed)
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = c.SetState(t.Context(), id, Running, Outcome{}) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		var illegal *TransitionError
		if err == nil {
			won++
		} else if !errors.As(err, &illegal) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d resumes won", won)
	}
}

func TestCreateOperationIgnoresStateAndOutcome(t *testing.T) {
	c := openTest(t)
	want := Operation{
		Kind:   KindMove,
		Source: Side{Name: "prod", UID: "3f1c"},
		Target: Side{Name: "new", UID: "77aa"},
		Store:  "store1",
		Units:  map[string]UnitState{"team-a/one": UnitPending, "team-b/two": UnitBlocked},
	}
	created, err := c.CreateOperation(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Operation(t.Context(), created.ID)
	if err != nil {
		t.Fatal(err)
	}
	want.ID, want.State, want.Created, want.Updated = created.ID, Planned, created.Created,
		created.Created
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(created, got); diff != "" {
		t.Error(diff)
	}
	if _, err := c.CreateOperation(t.Context(), created); !errors.Is(err, ErrExists) {
		t.Errorf("create again: %v", err)
	}
	if _, err := c.CreateOperation(t.Context(), Operation{Kind: "dance"}); err == nil {
		t.Error("unknown kind accepted")
	}
	err = c.UpdateOperation(t.Context(), created.ID, func(op *Operation) {
		op.SnapshotID,
			op.State = "12ab", Succeeded
	})
	if got, _ := c.Operation(t.Context(), created.ID); err != nil || got.SnapshotID != "12ab" ||
		got.State != Planned || len(got.Units) != 2 {
		t.Errorf("after update: %+v, %v", got, err)
	}
}

func TestOperationsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	var want []OperationID
	for range 100 {
		want = append(want, newOperation(t, c))
	}
	slices.Reverse(want)
	setState(t, c, want[7], Running)
	list, err := c.Operations(t.Context(), OperationFilter{})
	var got []OperationID
	for _, op := range list {
		got = append(got, op.ID)
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	list, err = c.Operations(t.Context(), OperationFilter{States: []State{Running},
		Kinds: []Kind{KindRestore}, Limit: 1})
	if err != nil || len(list) != 1 || list[0].ID != want[7] {
		t.Error(list, err)
	}
}

func TestFindOperationByPrefix(t *testing.T) {
	c := openTest(t)
	for _, id := range []OperationID{"aa0000000001", "aa0000000002", "bb0000000000"} {
		if _, err := c.CreateOperation(t.Context(), Operation{ID: id, Kind: KindVerify}); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"b", "bb0000000000"} {
		if op, err := c.FindOperation(t.Context(), prefix); err != nil || op.ID != "bb0000000000" {
			t.Errorf("%s: %v, %v", prefix, op.ID, err)
		}
	}
	var ambiguous *AmbiguousError
	if _, err := c.FindOperation(t.Context(), "aa"); !errors.As(err, &ambiguous) ||
		len(ambiguous.Matches) != 2 {
		t.Error(err)
	}
	for _, prefix := range []string{"", "c", "latest", "bb00000000000"} {
		if _, err := c.FindOperation(t.Context(), prefix); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestOperationIDsSortByTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var last OperationID
	for i := range 1000 {
		id := newOperationID(at, last)
		if _, err := ParseOperationID(id.String()); err != nil || id <= last {
			t.Fatalf("%d: %s after %s, %v", i, id, last, err)
		}
		last = id
	}
	if next := newOperationID(at.Add(time.Minute), last); next <= last {
		t.Errorf("a minute later: %s after %s", next, last)
	}
	if id := newOperationID(at, newOperationID(at.AddDate(5, 0, 0), "")); id >= last[:4]+"ffffffff" {
		t.Errorf("a clock that was wrong once shapes later ids: %s", id)
	}
	for _, s := range []string{"", "12ab", "12AB00000000", "12ab0000000g", "12ab000000001"} {
		if _, err := ParseOperationID(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

func TestInterruptedListsOperationsOfADeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	c := openPath(t, path)
	left, planned := newOperation(t, c, Running), newOperation(t, c)
	newOperation(t, c, Running, Stopped)
	if list, err := c.Interrupted(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("what runs here is not interrupted: %v, %v", list, err)
	}
	closeTest(t, c)

	c = openPath(t, path)
	ours := []OperationID{newOperation(t, c, Running), newOperation(t, c)}
	list, err := c.Interrupted(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != planned || list[0].State != Planned ||
		list[1].ID != left || list[1].State != Running {
		t.Fatalf("interrupted: %v, %v; want %s and %s, and not %s", list, err, left, planned, ours)
	}
	setState(t, c, planned, Failed)
	setState(t, c, left, Stopped)
	setState(t, c, left, Running)
	if list, err := c.Interrupted(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after a resume: %v, %v", list, err)
	}
}

func TestMigrationDerivesTheCausesOfStops(t *testing.T) {
	const record = `{"id":%q,"kind":"move","state":%q,` +
		`"created":"2026-03-01T12:00:00Z","updated":"2026-03-01T12:00:00Z","message":%q}`
	old := []struct {
		id      OperationID
		state   State
		message string
		want    StopCause
	}{
		{"aa0000000001", Stopped, "the process at work on it died", StopProcessDied},
		{"aa0000000002", Stopped, "stopped since the daemon ended", StopDaemonEnded},
		{"aa0000000003", Stopped, "stopped on request", StopRequested},
		{"aa0000000004", Stopped, "source does not answer", ""},
		{"aa0000000005", Failed, "the process at work on it died", ""},
	}
	c := openOld(t, 5, func(tx *bolt.Tx) error {
		for _, o := range old {
			b, err := tx.Bucket(bucketOperations).CreateBucket([]byte(o.id))
			if err != nil {
				return err
			}
			for _, name := range [][]byte{bucketUnits, bucketSteps, bucketValues, bucketEvents} {
				if _, err := b.CreateBucket(name); err != nil {
					return err
				}
			}
			if err := b.Put(keyRecord, fmt.Appendf(nil, record, o.id, o.state, o.message)); err != nil {
				return err
			}
		}
		return nil
	})
	for _, o := range old {
		if op, err := c.Operation(t.Context(), o.id); err != nil || op.StopCause != o.want {
			t.Errorf("%s, %q: cause %q, %v; want %q", o.state, o.message, op.StopCause, err, o.want)
		}
	}
}

func TestARunEndsTheCauseOfTheStopBefore(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c, Running)
	op, err := c.SetState(t.Context(), id, Stopped, Outcome{Cause: StopProcessDied})
	if err != nil || op.StopCause != StopProcessDied {
		t.Fatalf("%+v, %v", op, err)
	}
	if op, err = c.SetState(t.Context(), id, Running, Outcome{}); err != nil || op.StopCause != "" {
		t.Errorf("running: %+v, %v", op, err)
	}
}
