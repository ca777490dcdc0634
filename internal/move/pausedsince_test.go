package move

import (
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
	if got := PausedSince(steps); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
