package catalog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/store"
)

// pathTo are the states through which an operation comes to one.
var pathTo = map[State][]State{
	Planned: nil, Running: {Running}, Succeeded: {Running, Succeeded}, Stopped: {Running, Stopped},
	Failed: {Running, Failed}, RolledBack: {Running, RolledBack},
	NeedsIdentity: {Running, NeedsIdentity},
}

// newOperationIn makes an operation in a state that has, or has not, changed something.
func newOperationIn(t *testing.T, c *Catalog, op Operation, state State, changed bool) OperationID {
	t.Helper()
	op, err := c.CreateOperation(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range pathTo[state] {
		setState(t, c, op.ID, s)
		if i == 0 && changed {
			mustBegin(t, c, op.ID)
		}
	}
	return op.ID
}

// TestI4EveryStateHoldsWhatIsStillNeeded: in each kind, state and history of an operation, whether
// its snapshot is in use, and whether it may be forgotten.
func TestI4EveryStateHoldsWhatIsStillNeeded(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	type outcome struct{ inUse, forgotten bool }
	want := func(kind Kind, state State, changed bool) outcome {
		switch {
		case state == Planned || state == Running:
			return outcome{kind == KindVerify || kind == KindRestore || kind == KindMove, false}
		case state == Succeeded || state == RolledBack:
			return outcome{false, true}
		case kind != KindRestore && kind != KindMove:
			return outcome{false, true}
		case !changed:
			return outcome{false, state == Failed}
		default: // stopped, failed or waiting for an identity, with work left
			return outcome{true, false}
		}
	}
	wanted, what := map[OperationID]outcome{}, map[OperationID]string{}
	add := func(kind Kind, state State, changed bool, w outcome, text string) OperationID {
		id := newOperationIn(t, c, Operation{Kind: kind, Store: "s", SnapshotID: fmt.Sprintf("%012x",
			len(wanted))}, state, changed)
		wanted[id], what[id] = w, fmt.Sprintf("%s %s, changed %t%s", kind, state, changed, text)
		return id
	}
	for _, kind := range allKinds {
		for state := range pathTo {
			for _, changed := range []bool{false, true} {
				if !changed || state != Planned {
					add(kind, state, changed, want(kind, state, changed), "")
				}
			}
		}
	}
	for _, state := range []State{Succeeded, Failed, Stopped, NeedsIdentity} {
		for _, kind := range []Kind{KindRestore, KindMove} {
			id := add(kind, state, true, outcome{false, true}, ", given up")
			if _, err := c.GiveUp(t.Context(), id, "given up"); err != nil {
				t.Fatal(err)
			}
			again := add(kind, state, true, outcome{true, false}, ", given up and resumed")
			_, err := c.GiveUp(t.Context(), again, "given up")
			if setState(t, c, again, Running); err != nil {
				t.Fatal(err)
			}
			unreleased := add(kind, Succeeded, true, outcome{true, false}, ", unreleased")
			if err := c.UpdateOperation(t.Context(), unreleased, func(op *Operation) {
				op.Unreleased = true
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := newOperationIn(t, c, Operation{Kind: KindMove, Store: "other",
		SnapshotID: "ffffffffffff"}, Stopped, true)
	wantInUse := map[string]store.SnapshotID{}
	for id, w := range wanted {
		op, err := c.Operation(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if w.inUse {
			wantInUse[string(id)] = store.SnapshotID(op.SnapshotID)
		}
	}
	used, err := c.SnapshotsInUse(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for id := range wanted {
		if used[string(id)] != wantInUse[string(id)] {
			t.Errorf("%s: it uses %q, want %q", what[id], used[string(id)], wantInUse[string(id)])
		}
	}
	if len(used) != len(wantInUse) {
		t.Errorf("%d snapshots are in use, want %d; the other store has %s", len(used), len(wantInUse),
			other)
	}
	if _, err := c.ForgetOperations(t.Context(), c.now().Add(time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	for id, w := range wanted {
		if _, err := c.Operation(t.Context(), id); errors.Is(err, ErrNotFound) != w.forgotten {
			t.Errorf("%s: %v, want it forgotten: %t", what[id], err, w.forgotten)
		}
	}
}

// TestForgettingChecksAgainWhenItDeletes: an operation that began to run again since it was found
// stays, and so does one whose record is damaged.
func TestForgettingChecksAgainWhenItDeletes(t *testing.T) {
	c := openTest(t)
	running := newOperationOf(t, c, KindRestore, Running, Failed, Running)
	over := newOperationOf(t, c, KindRestore, Running, Succeeded)
	var deleted int
	if err := c.update(t.Context(), func(tx *bolt.Tx) (err error) {
		deleted, err = deleteOperations(tx, [][]byte{[]byte(running), []byte(over)})
		return err
	}); err != nil || deleted != 1 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	if _, err := c.Operation(t.Context(), running); err != nil {
		t.Error(err)
	}
}

// TestADamagedRecordEndsNoForgetting: it stays, since it may have work left, and the others go.
func TestADamagedRecordEndsNoForgetting(t *testing.T) {
	path := closedCatalog(t, func(*bolt.Tx, OperationID) error { return nil })
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var damaged []OperationID
	var over []OperationID
	for _, kind := range []Kind{KindSnapshot, KindMove} {
		for _, end := range []State{Succeeded, Running} {
			over = append(over, newOperationOf(t, c, KindSnapshot, Running, Succeeded))
			damaged = append(damaged, newOperationIn(t, c, Operation{Kind: kind}, end, true))
		}
	}
	if err := c.update(t.Context(), func(tx *bolt.Tx) (err error) {
		for _, id := range damaged {
			err = errors.Join(err, tx.Bucket(bucketOperations).Bucket([]byte(id)).Put(keyRecord,
				[]byte("{")))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, retain := range []int{1000, 0} {
		if n, err := c.ForgetOperations(t.Context(), c.now().Add(time.Hour), retain); err != nil ||
			(n > 0) != (retain == 1000) {
			t.Errorf("retain %d: forgot %d, %v", retain, n, err)
		}
	}
	for _, id := range over {
		if _, err := c.Operation(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s is still there: %v", id, err)
		}
	}
	for _, id := range damaged {
		if _, err := c.Operation(t.Context(), id); errors.Is(err, ErrNotFound) {
			t.Errorf("the damaged %s is gone", id)
		}
	}
}

// TestGiveUpNeedsAnEnd: what runs is stopped first.
func TestGiveUpNeedsAnEnd(t *testing.T) {
	c := openTest(t)
	id := newOperationOf(t, c, KindMove, Running)
	_, err := c.GiveUp(t.Context(), id, "given up")
	op, getErr := c.Operation(t.Context(), id)
	if _, ok := errors.AsType[*TransitionError](err); !ok || getErr != nil || op.GivenUp {
		t.Errorf("%+v: %v, %v", op, err, getErr)
	}
	if err := c.ForgetOperation(t.Context(), id); !errors.Is(err, ErrUnfinished) {
		t.Errorf("forget: %v", err)
	}
}
