package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/object"
)

// watchAll collects the events that a watch gives until it ends, progress left out.
func watchAll(t *testing.T, c *Catalog, id OperationID, after int64) []string {
	t.Helper()
	var got []string
	for e, err := range c.Watch(t.Context(), id, after) {
		if err != nil {
			t.Errorf("watch: %v", err)
		}
		if e.Type != EventProgress {
			got = append(got, fmt.Sprint(e.Seq, " ", e.Type, " ", e.State, e.Message))
		}
	}
	return got
}

func TestLateWatcherGetsTheWholeHistory(t *testing.T) {
	c := openTest(t)
	j := running(t, c)
	finding := &object.Finding{Severity: object.Error, Code: "owner-missing",
		Ref: object.Ref{Kind: "Secret",
			Namespace: "a", Name: "b"}, Message: "m", Hint: "h"}
	err := j.Emit(t.Context(), Event{Type: EventMessage, Message: "hello"}, Event{Type: EventFinding,
		Unit: "a/b", Finding: finding})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.SetUnit(t.Context(), "a/b", UnitBlocked, "why"); err != nil {
		t.Fatal(err)
	}
	setState(t, c, j.id, Stopped)
	want := []string{"1 operation planned", "2 operation running", "3 message hello", "4 finding ",
		"5 unit blockedwhy", "6 operation stopped"}
	if diff := cmp.Diff(want, watchAll(t, c, j.id, 0)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[4:], watchAll(t, c, j.id, 4)); diff != "" {
		t.Error(diff)
	}
	for e := range c.Events(t.Context(), j.id, 3) {
		if diff := cmp.Diff(finding, e.Finding); diff != "" {
			t.Error(diff)
		}
		break
	}
	if err := j.Emit(t.Context(), Event{Type: EventOperation, State: "succeeded"}); err == nil {
		t.Error("an event without its change was accepted")
	}
	for _, err := range c.Watch(t.Context(), "000000000000", 0) {
		if !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

// TestWatcherGetsEventsAsTheyAreStored: a watcher of a resumed run must not end at the event that
// ended the earlier run.
func TestWatcherGetsEventsAsTheyAreStored(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	j := running(t, c)
	setState(t, c, j.id, Stopped)
	setState(t, c, j.id, Running)
	const messages = 3 * eventPage
	results := make([][]string, 4)
	var ready, done sync.WaitGroup
	for i := range results {
		ready.Add(1)
		done.Go(func() {
			first := true
			for e, err := range c.Watch(t.Context(), j.id, 0) {
				if err != nil {
					t.Error(err)
				}
				if first {
					first = false
					ready.Done()
				}
				if e.Type == EventMessage {
					results[i] = append(results[i], e.Message)
				}
			}
		})
	}
	ready.Wait()
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range messages / 8 {
				if err := j.Emit(t.Context(), Event{Type: EventMessage,
					Message: fmt.Sprint(w, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	setState(t, c, j.id, Succeeded)
	done.Wait()
	if len(results[0]) != messages {
		t.Errorf("%d messages", len(results[0]))
	}
	for _, r := range results[1:] {
		if diff := cmp.Diff(results[0], r); diff != "" {
			t.Error("watchers saw different histories", diff)
		}
	}
}

// TestSlowWatcherBlocksNobody: a slow watcher never blocks the writer.
func TestSlowWatcherBlocksNobody(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	j := running(t, c)
	for e, err := range c.Watch(t.Context(), j.id, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 2 {
			// The watcher is here, in the middle of an event; large enough to make bbolt grow its
			// file.
			for range 200 {
				if err := j.Emit(t.Context(), Event{Type: EventMessage,
					Message: string(make([]byte, 2000))}); err != nil {
					t.Fatal(err)
				}
			}
			setState(t, c, j.id, Failed)
		}
	}
}

func TestWatcherGetsProgress(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	j := running(t, c)
	seen := map[string]int64{}
	for e, err := range c.Watch(t.Context(), j.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.State == string(Running):
			for i := range int64(10000) {
				j.Progress("objects created", i+1, 10000)
			}
			j.Progress("units", 1, 0)
		case e.Type == EventProgress:
			if e.Seq != 0 || seen[e.Progress.What] != 0 {
				t.Errorf("%+v came again", e)
			}
			seen[e.Progress.What] = e.Progress.Done
			if len(seen) == 2 {
				setState(t, c, j.id, Succeeded)
			}
		}
	}
	if seen["objects created"] != 10000 || seen["units"] != 1 {
		t.Errorf("saw %v", seen)
	}
	op, err := c.Operation(t.Context(), j.id)
	want := []Progress{{"objects created", 10000, 10000}, {"units", 1, 0}}
	if diff := cmp.Diff(want, op.Progress); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestWatchEndsWithContextAndClose(t *testing.T) {
	c := openTest(t)
	id := newOperation(t, c)
	last := func(ctx context.Context, end func()) (last error) {
		for _, err := range c.Watch(ctx, id, 0) {
			if last = err; err == nil {
				end()
			}
		}
		return last
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := last(ctx, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("context: %v", err)
	}
	if err := last(t.Context(), func() { closeTest(t, c) }); !errors.Is(err, ErrClosed) {
		t.Errorf("close: %v", err)
	}
}
