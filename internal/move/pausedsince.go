package move

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// releaseStep is the step of package restore that releases a unit.
func releaseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "release"} }

// sinceValue is the key of the time at which a pause began, in its step. The record of the step has
// the time of its last attempt, which may be one to undo it.
const sinceValue = "since"

// noSince is that value before the pause is set, and once it has ended.
const noSince = "null"

// beginSince records that a unit is not paused yet, unless an earlier attempt has paused it.
func beginSince(ctx context.Context, h *catalog.StepHandle) error {
	earlier, err := h.Values(ctx)
	if err != nil || len(earlier[sinceValue]) > 0 {
		return err
	}
	return h.Record(ctx, catalog.Value{Key: sinceValue, Data: json.RawMessage(noSince)})
}

// recordSince records since when a unit is paused, right before it is, unless an earlier attempt
// has paused it.
func recordSince(ctx context.Context, h *catalog.StepHandle, at time.Time) error {
	earlier, err := h.Values(ctx)
	if noted := earlier[sinceValue]; err != nil || len(noted) > 0 && string(noted) != noSince {
		return err
	}
	since, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("encode a time: %w", err)
	}
	return h.Record(ctx, catalog.Value{Key: sinceValue, Data: since})
}

// PausedSince returns, by unit, since when a workload cluster has no controller, as the steps of a
// move say: since its pause was begun on the source, unless that was undone, until its release on
// the target; and since it was paused there again.
func PausedSince(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) (
	map[string]time.Time, error) {
	steps, err := c.Steps(ctx, id)
	if err != nil {
		return nil, err
	}
	since := pausedSince(steps)
	j := c.Journal(id, catalog.JournalOptions{})
	for unit := range since {
		values, err := j.Values(ctx, pauseStep(unit))
		if err != nil {
			return nil, err
		}
		var noted time.Time
		if string(values[sinceValue]) == noSince && !isRepaused(steps, unit) {
			delete(since, unit)
			continue
		}
		if json.Unmarshal(values[sinceValue], &noted) == nil && !noted.IsZero() &&
			!isRepaused(steps, unit) {
			since[unit] = noted
		}
	}
	return since, nil
}

// pausedSince is PausedSince, by the records of the steps alone.
func pausedSince(steps []catalog.StepRecord) map[string]time.Time {
	pauses, releases := map[string]catalog.StepRecord{}, map[string]catalog.StepRecord{}
	for _, s := range steps {
		if s.NotRun {
			continue
		}
		switch s.Step {
		case pauseStep(s.Step.Unit):
			pauses[s.Step.Unit] = s
		case releaseStep(s.Step.Unit):
			releases[s.Step.Unit] = s
		}
	}
	since := map[string]time.Time{}
	for unit, pause := range pauses {
		release, released := releases[unit]
		switch {
		case released && release.State == catalog.StepDone, pause.State == catalog.StepUndone:
		case released && release.State == catalog.StepUndone:
			since[unit] = release.Ended
		default:
			since[unit] = pause.Begun
		}
	}
	return since
}

// isRepaused reports whether a unit was released, and paused on the target again.
func isRepaused(steps []catalog.StepRecord, unit string) bool {
	for _, s := range steps {
		if s.Step == releaseStep(unit) {
			return !s.NotRun && s.State == catalog.StepUndone
		}
	}
	return false
}
