package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

// StepHandle is what fn notes things with while its step runs. It may be used by many goroutines.
type StepHandle struct {
	j      *Journal
	step   Step
	record StepRecord

	mu        sync.Mutex
	unitState UnitState
}

// Step returns the step.
func (h *StepHandle) Step() Step { return h.step }

// Attempt is 1 the first time that Do runs the step; in a higher one, see what Values has of the
// earlier ones.
func (h *StepHandle) Attempt() int { return h.record.Attempts }

// Values returns what the step recorded so far, in all its attempts, by key.
func (h *StepHandle) Values(ctx context.Context) (map[string]json.RawMessage, error) {
	return h.j.Values(ctx, h.step)
}

// Record notes values, all of them with one fsync; they are on disk when it returns, and stay when
// the step fails or the process dies. A value with a key that is there replaces it. It heeds no
// cancelled context, for it tells of what exists: the UID of an object that was created must be
// known before the object loses the mark that tells it from a stranger's.
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

// SetUnit moves the unit of the step into a state when the step ends well, atomically with that.
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
