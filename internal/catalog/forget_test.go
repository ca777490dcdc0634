package catalog

import (
	"context"
	"errors"
	"testing"
	"time"
)

// newOperationOf creates an operation of a kind and takes it through the states.
func newOperationOf(t *testing.T, c *Catalog, kind Kind, states ...State) OperationID {
	t.Helper()
	op, err := c.CreateOperation(t.Context(), Operation{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		setState(t, c, op.ID, s)
	}
	return op.ID
}

// mustBegin runs a step of an operation: it has changed something then.
func mustBegin(t *testing.T, c *Catalog, id OperationID) {
	t.Helper()
	err := c.Journal(id, JournalOptions{}).Do(t.Context(), Step{Phase: "create"},
		func(context.Context, *StepHandle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// mustForget forgets, twice, and compares what is left.
func mustForget(t *testing.T, c *Catalog, before time.Time, retain int,
	left map[OperationID]bool) {
	t.Helper()
	want := 0
	for _, stays := range left {
		if !stays {
			want++
		}
	}
	for _, want := range []int{want, 0} {
		if n, err := c.ForgetOperations(t.Context(), before, retain); err != nil || n != want {
			t.Errorf("forgot %d, %v; want %d", n, err, want)
		}
	}
	for id, stays := range left {
		if op, err := c.Operation(t.Context(), id); errors.Is(err, ErrNotFound) == stays {
			t.Errorf("%s %s: %v; want it to stay: %t", op.Kind, op.State, err, stays)
		}
	}
}

func TestForgetOperationsLeavesWhatCanBeResumedOrReleased(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	left := map[OperationID]bool{
		newOperationOf(t, c, KindRestore, Running, Succeeded):     false,
		newOperationOf(t, c, KindMove, Running, RolledBack):       false,
		newOperationOf(t, c, KindSnapshot, Running, Failed):       false,
		newOperationOf(t, c, KindPrune, Running, Stopped):         false,
		newOperationOf(t, c, KindRestore, Running, NeedsIdentity): true,
		newOperationOf(t, c, KindMove, Running, Stopped):          true,
		newOperationOf(t, c, KindVerify, Running):                 true,
		newOperationOf(t, c, KindSnapshot):                        true,
	}
	unreleased := newOperationOf(t, c, KindRestore, Running, Succeeded)
	if err := c.UpdateOperation(t.Context(), unreleased, func(op *Operation) {
		op.Unreleased = true
	}); err != nil {
		t.Fatal(err)
	}
	left[unreleased] = true
	failed := newOperationOf(t, c, KindRestore, Running)
	mustBegin(t, c, failed)
	setState(t, c, failed, Failed)
	left[failed] = true
	limit := c.now()
	left[newOperationOf(t, c, KindRestore, Running, Succeeded)] = true // younger
	mustForget(t, c, limit, 1000, left)
}

// TestForgetOperationsCountsFromTheEnd: a move that takes weeks is not forgotten when it ends.
func TestForgetOperationsCountsFromTheEnd(t *testing.T) {
	c := openTest(t)
	id := newOperationOf(t, c, KindMove, Running)
	limit := c.now()
	setState(t, c, id, Succeeded)
	mustForget(t, c, limit, 1000, map[OperationID]bool{id: true})
}

// TestForgetOperationsRetainsTheNewest: the number counts for what schedules make. Their operations
// must not push out a move, which the watch of a fence needs, or a restore.
func TestForgetOperationsRetainsTheNewest(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	left := map[OperationID]bool{
		newOperationOf(t, c, KindMove, Running, Succeeded):    true,
		newOperationOf(t, c, KindRestore, Running, Succeeded): true,
	}
	for range forgetBatch + 1 {
		left[newOperationOf(t, c, KindSnapshot, Running, Succeeded)] = false
	}
	left[newOperationOf(t, c, KindSnapshot, Running, Succeeded)] = true
	left[newOperationOf(t, c, KindMove, Running, Stopped)] = true
	left[newOperationOf(t, c, KindSnapshot, Running, Succeeded)] = true
	mustForget(t, c, time.Time{}, 2, left)
}

func TestForgetOperationsLeavesTheLastOfASchedule(t *testing.T) {
	c := openTest(t)
	snapshot := newOperationOf(t, c, KindSnapshot, Running, Succeeded)
	verify := newOperationOf(t, c, KindVerify, Running, Succeeded)
	other := newOperationOf(t, c, KindSnapshot, Running, Succeeded)
	_, err := c.UpdateSchedule(t.Context(), "monthly",
		func(s *ScheduleState) { s.LastOperation = snapshot })
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.UpdateVerify(t.Context(), "disk/uid",
		func(s *VerifyState) { s.LastOperation = verify })
	if err != nil {
		t.Fatal(err)
	}
	mustForget(t, c, c.now(), 0, map[OperationID]bool{snapshot: true, verify: true, other: false})
}
