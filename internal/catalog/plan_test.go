package catalog

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	bolt "go.etcd.io/bbolt"
)

func TestPlanReadsBackWhatWasPut(t *testing.T) {
	t.Parallel()
	random := make([]byte, 3<<20+17) // does not compress: many chunks
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	for name, plan := range map[string][]byte{
		"empty":     {},
		"small":     []byte(`{"waves":3}`),
		"chunks":    random,
		"repeating": bytes.Repeat([]byte("create team-a/one\n"), 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			c := openTest(t)
			id := newOperation(t, c)
			if _, err := c.Plan(t.Context(), id); !errors.Is(err, ErrNotFound) {
				t.Errorf("no plan yet: %v", err)
			}
			for range 2 {
				if _, err := c.PutPlan(t.Context(), id, strings.NewReader("an earlier one")); err != nil {
					t.Fatal(err)
				}
			}
			info, err := c.PutPlan(t.Context(), id, bytes.NewReader(plan))
			if err != nil || info.Size != int64(len(plan)) {
				t.Fatal(info, err)
			}
			got, err := c.Plan(t.Context(), id)
			if err != nil || !bytes.Equal(got, plan) {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(plan))
			}
			setState(t, c, id, Running)
			if err := c.Journal(id, JournalOptions{}).Do(t.Context(), Step{Phase: "first"},
				func(context.Context, *StepHandle) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := c.PutPlan(t.Context(), id, strings.NewReader("another")); !errors.Is(err,
				ErrPlanFixed) {
				t.Errorf("replaced after a step: %v", err)
			}
		})
	}
}

func TestPutPlanWholeOrNotAtAll(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c)
	if _, err := c.PutPlan(t.Context(), id, strings.NewReader("first")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := c.PutPlan(t.Context(), id, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Error(err)
	}
	if got, err := c.Plan(t.Context(), id); err != nil || string(got) != "first" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.PutPlan(t.Context(), "000000000000", strings.NewReader("x")); !errors.Is(err,
		ErrNotFound) {
		t.Error(err)
	}
}

func TestDamagedPlanIsReported(t *testing.T) {
	for name, damage := range map[string]func(plan *bolt.Bucket) error{
		"chunk missing": func(plan *bolt.Bucket) error { return plan.Delete(sequenceKey(0)) },
		"chunk changed": func(plan *bolt.Bucket) error {
			return plan.Put(sequenceKey(0),
				[]byte("nonsense"))
		},
		"other plan": func(plan *bolt.Bucket) error {
			compressed, _, err := compressPlan(strings.NewReader("another"))
			return errors.Join(err, plan.Put(sequenceKey(0), compressed))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := openTest(t)
			id := newOperation(t, c)
			if _, err := c.PutPlan(t.Context(), id, strings.NewReader("the plan")); err != nil {
				t.Fatal(err)
			}
			err := c.update(t.Context(), func(tx *bolt.Tx) error {
				return damage(tx.Bucket(bucketOperations).Bucket([]byte(id)).Bucket(bucketPlan))
			})
			if err != nil {
				t.Fatal(err)
			}
			var damaged *DamagedError
			if _, err := c.Plan(t.Context(), id); !errors.As(err, &damaged) {
				t.Errorf("plan: %v; want a DamagedError", err)
			}
		})
	}
}

// TestPlanOfABatchIsWrittenOnce: what was decided while an operation runs is stored once, and only
// while it runs.
func TestPlanOfABatchIsWrittenOnce(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c)
	put := func(name, text string) error {
		_, err := c.PutBatchPlan(t.Context(), id, name, strings.NewReader(text))
		return err
	}
	if err := put("batch-001", "early"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("before the run: %v", err)
	}
	if _, err := c.SetState(t.Context(), id, Running, Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := put("batch-001", "decided"); err != nil {
		t.Fatal(err)
	}
	if err := put("batch-001", "again"); !errors.Is(err, ErrExists) {
		t.Errorf("twice: %v", err)
	}
	if err := put("Batch/1", "x"); err == nil {
		t.Error("a bad name was accepted")
	}
	text, err := c.BatchPlan(t.Context(), id, "batch-001")
	if err != nil || string(text) != "decided" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := c.BatchPlan(t.Context(), id, "batch-002"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such batch: %v", err)
	}
}
