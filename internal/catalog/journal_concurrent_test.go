package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

func TestDoRunsManyStepsAtOnce(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	j := running(t, c)
	var ran atomic.Int64
	var wg sync.WaitGroup
	for unit := range 32 {
		wg.Go(func() {
			for wave := range 3 {
				step := Step{Unit: fmt.Sprintf("ns/unit-%02d", unit), Phase: "create", Wave: wave + 1}
				err := j.Do(t.Context(), step, func(ctx context.Context, h *StepHandle) error {
					j.Progress("steps", ran.Add(1), 96)
					return h.Record(ctx, Value{"k", json.RawMessage(`1`)})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	steps, err := c.Steps(t.Context(), j.id)
	if err != nil || len(steps) != 96 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	for _, s := range steps {
		if s.State != StepDone || s.Attempts != 1 {
			t.Errorf("%+v", s)
		}
	}
	if op, err := c.Operation(t.Context(), j.id); err != nil || len(op.Progress) != 1 ||
		op.Progress[0].Done == 0 {
		t.Errorf("progress: %v, %v", op.Progress, err)
	}
}

// TestDoSharesCommits: 32 steps that begin at once must not wait for 32 fsyncs.
func TestDoSharesCommits(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	transactions := func() (id int) {
		_ = c.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
		return id
	}
	before := transactions()
	c.commitMu.Lock() // another commit is in progress
	started, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			err := j.Do(t.Context(), Step{Phase: "create", Wave: i + 1},
				func(context.Context, *StepHandle) error {
					started <- struct{}{}
					<-finish
					return nil
				})
			if err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool {
		c.queueMu.Lock()
		defer c.queueMu.Unlock()
		return len(c.queue) == 32
	})
	c.commitMu.Unlock()
	for range 32 {
		<-started
	}
	if n := transactions() - before; n != 1 {
		t.Errorf("32 records of begun took %d commits", n)
	}
	close(finish)
	wg.Wait()
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited too long")
		}
	}
}

// TestCommitLeavesOutTheWriteThatFails: other writes in the same commit succeed.
func TestCommitLeavesOutTheWriteThatFails(t *testing.T) {
	c := openTest(t)
	broken := errors.New("broken")
	c.commitMu.Lock()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			err := c.update(t.Context(), func(tx *bolt.Tx) error {
				switch i {
				case 3:
					return broken
				case 5:
					panic("page 12 already freed")
				}
				return tx.Bucket(bucketMeta).Put(fmt.Append(nil, i), []byte("x"))
			})
			var damaged *DamagedError
			if ok := map[int]bool{3: errors.Is(err, broken), 5: errors.As(err, &damaged)}[i] || err == nil &&
				i != 3 && i != 5; !ok {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	waitFor(t, func() bool {
		c.queueMu.Lock()
		defer c.queueMu.Unlock()
		return len(c.queue) == 8
	})
	c.commitMu.Unlock()
	wg.Wait()
	_ = c.view(t.Context(), func(tx *bolt.Tx) error {
		if n := tx.Bucket(bucketMeta).Stats().KeyN; n != 6+1 {
			t.Errorf("%d keys; want 6 and the schema", n)
		}
		return nil
	})
}

func TestDoSameStepAtOnceIsRefused(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	other := c.Journal(j.id, JournalOptions{})
	err := j.Do(t.Context(), testStep, func(ctx context.Context, h *StepHandle) error {
		if err := other.Do(ctx, testStep, nothing); !errors.Is(err, ErrStepInFlight) {
			t.Errorf("do at once: %v", err)
		}
		if err := other.Undo(ctx, testStep, nothing); !errors.Is(err, ErrStepInFlight) {
			t.Errorf("undo at once: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
