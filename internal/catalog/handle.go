package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

// StepHandle records what a step does while it runs. It may be used by many goroutines.
type StepHandle struct {
	j      *Journal
	step   Step
	record StepRecord
	before *StepRecord // the record before this attempt; nil when the step was never begun
	ran    bool        // the step was carried out, wholly or in part

	mu        sync.Mutex
	unitState UnitState
}

// afterFailure returns what is stored of a step that has failed, as record says: without having run
// it is what it was before.
func (h *StepHandle) afterFailure(record StepRecord) StepRecord {
	switch {
	case h.ran:
	case h.before == nil:
		record.NotRun = true
	default:
		return *h.before
	}
	return record
}

// Step returns the step.
func (h *StepHandle) Step() Step { return h.step }

// Attempt is 1 the first time that Do runs the step. In a later attempt, Values has what the
// earlier ones recorded.
func (h *StepHandle) Attempt() int { return h.record.Attempts }

// Values returns the values that all attempts of the step recorded, by key.
func (h *StepHandle) Values(ctx context.Context) (map[string]json.RawMessage, error) {
	return h.j.Values(ctx, h.step)
}

// Record stores values, all of them with one fsync. They are on disk when it returns, and stay when
// the step fails or the process dies. A value replaces an older one with the same key. Record
// ignores a cancelled context, because a value describes an object that exists: the UID of a
// created object must be stored before the object loses the mark that identifies it as ours.
func (h *StepHandle) Record(ctx context.Context, values ...Value) error {
	for _, v := range values {
		if v.Key == "" || !json.Valid(v.Data) {
			return fmt.Errorf("record %q of step %s: want a key and JSON", v.Key, h.step)
		}
	}
	err := h.j.c.updateOperation(context.WithoutCancel(ctx), h.j.id, func(o *opTx) ([]Event, error) {
		return nil, o.putValues(h.step, values)
	})
	if err != nil {
		return fmt.Errorf("record values of step %s: %w", h.step, err)
	}
	return nil
}

// Sync returns when all that was recorded of the operation is in its mirror, if it has one. A step
// calls it before it changes what another host would need to go on without the record.
func (h *StepHandle) Sync(ctx context.Context) error { return h.j.sync(ctx) }

// SetUnit changes the state of the step's unit when the step succeeds, atomically with its end.
func (h *StepHandle) SetUnit(state UnitState) error {
	if err := state.check(); err != nil {
		return err
	}
	if h.step.Unit == "" {
		return fmt.Errorf("set unit state in step %s: it has no unit", h.step)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unitState = state
	return nil
}
