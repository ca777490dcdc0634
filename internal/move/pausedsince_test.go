package move

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// TestAUnitIsPausedFromItsPauseToItsRelease, and again when it was not well there.
func TestAUnitIsPausedFromItsPauseToItsRelease(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var steps []catalog.StepRecord
	add := func(step catalog.Step, state catalog.StepState, minutes time.Duration) {
		steps = append(steps, catalog.StepRecord{Step: step, State: state,
			Begun: at.Add(minutes * time.Minute), Ended: at.Add((minutes + 1) * time.Minute)})
	}
	add(pauseStep("a/pausing"), catalog.StepBegun, 1)
	add(pauseStep("a/paused"), catalog.StepDone, 2)
	add(pauseStep("a/given-back"), catalog.StepUndone, 3)
	add(pauseStep("a/stuck"), catalog.StepUndoFailed, 4)
	for unit, state := range map[string]catalog.StepState{"a/released": catalog.StepDone,
		"a/repaused": catalog.StepUndone, "a/releasing": catalog.StepBegun} {
		add(pauseStep(unit), catalog.StepDone, 5)
		add(releaseStep(unit), state, 7)
	}
	want := map[string]time.Time{"a/pausing": at.Add(time.Minute), "a/paused": at.Add(2 * time.Minute),
		"a/stuck": at.Add(4 * time.Minute), "a/repaused": at.Add(8 * time.Minute),
		"a/releasing": at.Add(5 * time.Minute)}
	if got := pausedSince(steps); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAPauseIsCountedFromItsFirstAttempt, also one that is tried again, or that cannot be undone. A
// unit whose pause waits for what is paused first is at work.
func TestAPauseIsCountedFromItsFirstAttempt(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	c, j := newJournal(t, catalog.Options{Now: func() time.Time { return now.Add(time.Hour) }})
	if err := j.Do(t.Context(), pauseStep("a/b"), func(ctx context.Context,
		h *catalog.StepHandle) error {
		text, _ := json.Marshal(now)
		return h.Record(ctx, catalog.Value{Key: sinceValue, Data: text})
	}); err != nil {
		t.Fatal(err)
	}
	_ = j.Undo(t.Context(), pauseStep("a/b"), func(context.Context, *catalog.StepHandle) error {
		return errors.New("no answer")
	})
	_ = j.Do(t.Context(), pauseStep("a/waits"), func(ctx context.Context,
		h *catalog.StepHandle) error {
		return errors.Join(beginSince(ctx, h), errors.New("no acknowledgement"))
	})
	got, err := PausedSince(t.Context(), c, j.Operation())
	if want := map[string]time.Time{"a/b": now}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
