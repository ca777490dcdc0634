package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/object"
)

// JournalOptions of Catalog.Journal; the zero value reports steps to nobody.
type JournalOptions struct {
	// OnStep, when set, is called for every step twice: before the step runs, when it is recorded
	// as begun or undoing, and after it ended. An error of the first call fails the step, which
	// then does not run; an error of the second is ignored.
	OnStep func(ctx context.Context, r StepRecord) error
	// Sync, when set, is called by Journal.Sync and StepHandle.Sync.
	Sync func(ctx context.Context) error
	// Alive, when set, is called by Journal.Alive.
	Alive func(ctx context.Context) error
}

// Journal is the handle with which a run works on its operation. It may be used by many goroutines.
type Journal struct {
	c      *Catalog
	id     OperationID
	onStep func(ctx context.Context, r StepRecord) error
	sync   func(ctx context.Context) error
	alive  func(ctx context.Context) error
}

// Journal returns the journal of an operation. It reads and writes nothing yet.
func (c *Catalog) Journal(id OperationID, opts JournalOptions) *Journal {
	if opts.OnStep == nil {
		opts.OnStep = func(context.Context, StepRecord) error { return nil }
	}
	if opts.Sync == nil {
		opts.Sync = func(context.Context) error { return nil }
	}
	if opts.Alive == nil {
		opts.Alive = func(context.Context) error { return nil }
	}
	return &Journal{c: c, id: id, onStep: opts.OnStep, sync: opts.Sync, alive: opts.Alive}
}

// Alive returns an error when another host has taken over the operation. A step that creates many
// objects calls it before each: the host may have been suspended within the step. It asks nobody
// unless the newest record of the mirror is old.
func (j *Journal) Alive(ctx context.Context) error { return j.alive(ctx) }

// Sync returns when all that was recorded of the operation is in its mirror, if it has one. It may
// run again. Errors: those of the mirror.
func (j *Journal) Sync(ctx context.Context) error { return j.sync(ctx) }

// Operation returns the id of the operation.
func (j *Journal) Operation() OperationID { return j.id }

// Do is the only place that changes anything outside of the catalog. It skips a step that is done.
// Otherwise it records the step begun (on disk), runs fn, and records the step done or failed; the
// events follow from the records. When OnStep fails, fn is not run, and the step counts as it did
// before.
//
// Cancelling ctx stops between steps: Do then begins no step, but the context of fn is not
// cancelled, so that a step in flight ends cleanly. fn must be able to run twice: after a crash
// between begun and done, and after fn failed, the next Do runs it again.
//
// Errors: fn's; the context's when the step was not begun; ErrStepInFlight; ErrNotRunning; those of
// writing. When the end of a step that worked cannot be recorded, Do returns that error, and the
// step runs again on resume.
func (j *Journal) Do(ctx context.Context, step Step, fn func(ctx context.Context,
	h *StepHandle) error) error {
	return j.run(ctx, step, doing, fn)
}

// Undo mirrors Do: it runs fn to revert the step, wholly or in part, and records it undone. The
// values of the step are deleted then; fn can still read them. A step that was never begun or is
// undone already is skipped. In an operation that was imported from its mirror, a step without a
// record may have been begun elsewhere, so it is not skipped.
func (j *Journal) Undo(ctx context.Context, step Step, fn func(ctx context.Context,
	h *StepHandle) error) error {
	return j.run(ctx, step, undoing, fn)
}

// direction holds the differences between Do and Undo.
type direction struct {
	verb               string
	begun, ended, lost StepState
	skip               func(*StepRecord) bool
}

var (
	doing = direction{"do", StepBegun, StepDone, StepFailed, func(r *StepRecord) bool {
		return r != nil && r.State == StepDone
	}}
	undoing = direction{"undo", StepUndoing, StepUndone, StepUndoFailed, func(r *StepRecord) bool {
		return r == nil || r.State == StepUndone
	}}
)

func (j *Journal) run(ctx context.Context, step Step, d direction, fn func(context.Context,
	*StepHandle) error) error {
	if err := step.check(); err != nil {
		return err
	}
	release, err := j.claim(step)
	if err != nil {
		return err
	}
	defer release()
	record, err := j.c.stepRecord(context.WithoutCancel(ctx), j.id, step)
	if err != nil {
		return fmt.Errorf("%s step %s: %w", d.verb, step, err)
	}
	if record != nil && record.NotRun {
		record = nil
	}
	if d.skip(record) {
		unknown := false
		if record == nil {
			if unknown, err = j.Imported(ctx); err != nil {
				return fmt.Errorf("%s step %s: %w", d.verb, step, err)
			}
		}
		if !unknown {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s step %s: %w", d.verb, step, err)
	}
	h := &StepHandle{j: j, step: step, before: record}
	if h.record, err = j.begin(ctx, step, d); err != nil {
		return fmt.Errorf("%s step %s: record %s: %w", d.verb, step, d.begun, err)
	}
	failed := j.onStep(ctx, h.record)
	if h.ran = failed == nil; h.ran {
		failed = fn(context.WithoutCancel(ctx), h)
	}
	if err := j.end(ctx, h, d, failed); err != nil {
		return errors.Join(failed, fmt.Errorf("%s step %s: record its end: %w", d.verb, step, err))
	}
	return failed
}

// claim prevents the same step from running twice at once, through any journal of the operation.
func (j *Journal) claim(step Step) (release func(), err error) {
	key := string(j.id) + "/" + step.String()
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	if _, taken := j.c.inFlight[key]; taken {
		return nil, fmt.Errorf("step %s: %w", step, ErrStepInFlight)
	}
	j.c.inFlight[key] = struct{}{}
	return func() {
		j.c.mu.Lock()
		defer j.c.mu.Unlock()
		delete(j.c.inFlight, key)
	}, nil
}

// begin records the step begun.
func (j *Journal) begin(ctx context.Context, step Step, d direction) (StepRecord, error) {
	var record StepRecord
	now := j.c.now()
	err := j.c.updateOperation(ctx, j.id, func(o *opTx) ([]Event, error) {
		if o.op.State != Running {
			return nil, fmt.Errorf("operation %s is %s: %w", j.id, o.op.State, ErrNotRunning)
		}
		steps, err := o.bucket(bucketSteps)
		if err != nil {
			return nil, err
		}
		old, err := getStep(steps, step)
		if err != nil {
			return nil, err
		}
		record = StepRecord{Step: step}
		if old != nil {
			record = *old
		}
		record.State, record.Begun, record.Ended, record.Error = d.begun, now, time.Time{}, ""
		record.NotRun = false // should this process die now
		// Without a record, another host may have begun it.
		if d.begun == StepBegun || old == nil {
			record.Attempts++
		}
		o.op.Changed = true
		return []Event{stepEvent(record)}, o.putStep(record)
	})
	return record, err
}

// end records how the step ended and calls OnStep.
func (j *Journal) end(ctx context.Context, h *StepHandle, d direction, failed error) error {
	record, err := j.recordEnd(ctx, h, d, failed)
	if err == nil {
		_ = j.onStep(context.WithoutCancel(ctx), record) // the step has ended already
	}
	return err
}

// recordEnd records how the step ended and, atomically with that, the unit's state. It ignores the
// end of the context: what was done must be recorded.
func (j *Journal) recordEnd(ctx context.Context, h *StepHandle, d direction, failed error) (
	StepRecord, error) {
	now := j.c.now()
	var record StepRecord
	err := j.c.updateOperation(context.WithoutCancel(ctx), j.id, func(o *opTx) ([]Event, error) {
		record = h.record
		record.State, record.Ended = d.ended, now
		h.mu.Lock()
		unitState := h.unitState
		h.mu.Unlock()
		if failed != nil {
			record.State, record.Error = d.lost, shorten(failed.Error())
			return []Event{stepEvent(record)}, o.putStep(h.afterFailure(record))
		}
		if record.State == StepUndone {
			if err := o.deleteValues(record.Step); err != nil {
				return nil, err
			}
		}
		events := []Event{stepEvent(record)}
		if unitState != "" {
			if err := o.putUnit(record.Step.Unit, unitState); err != nil {
				return nil, err
			}
			events = append(events, Event{Type: EventUnit, Unit: record.Step.Unit, State: string(unitState)})
		}
		return events, o.putStep(record)
	})
	return record, err
}

func stepEvent(r StepRecord) Event {
	return Event{Type: EventStep, Step: r.Step.String(), Unit: r.Step.Unit, State: string(r.State),
		Message: r.Error}
}

// Imported reports whether the operation was imported from its mirror: the host that ran it before
// may have begun harmless steps that the journal does not know.
func (j *Journal) Imported(ctx context.Context) (bool, error) {
	state, err := j.c.Mirror(context.WithoutCancel(ctx), j.id)
	return !state.Imported.IsZero(), err
}

// State returns the state of a step, "" when it was never begun.
func (j *Journal) State(ctx context.Context, step Step) (StepState, error) {
	record, err := j.c.stepRecord(ctx, j.id, step)
	if err != nil || record == nil || record.NotRun {
		return "", err
	}
	return record.State, nil
}

// Tried reports whether somebody has tried to begin a step, also when it did not run (NotRun).
func (j *Journal) Tried(ctx context.Context, step Step) (bool, error) {
	record, err := j.c.stepRecord(ctx, j.id, step)
	return record != nil, err
}

// Values returns the values that all attempts of a step recorded, by key; none for a step that
// recorded nothing.
func (j *Journal) Values(ctx context.Context, step Step) (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	err := j.c.viewOperation(ctx, j.id, bucketValues, func(b *bolt.Bucket) error {
		prefix := valuePrefix(step.String())
		cursor := b.Cursor()
		for k, v := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = cursor.Next() {
			_, key, err := parseValueKey(k)
			if err != nil {
				return fmt.Errorf("%w: %w", errRecord, err)
			}
			values[key] = bytes.Clone(v)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("get values of step %s: %w", step, err)
	}
	return values, nil
}

// Accepted returns the units whose state the operator accepts.
func (j *Journal) Accepted(ctx context.Context) ([]string, error) {
	op, err := j.c.Operation(ctx, j.id)
	return op.Accepted, err
}

// SetUnit changes the state of a unit outside of a step, for example of a unit that pre-flight
// blocks; message says why. Within a step, StepHandle.SetUnit does it atomically with the end of
// the step.
func (j *Journal) SetUnit(ctx context.Context, unit string, state UnitState, message string) error {
	err := j.c.updateOperation(ctx, j.id, func(o *opTx) ([]Event, error) {
		return []Event{{Type: EventUnit, Unit: unit, State: string(state), Message: message}},
			o.putUnit(unit, state)
	})
	if err != nil {
		return fmt.Errorf("set state of unit %s: %w", unit, err)
	}
	return nil
}

// Emit appends findings and messages to the history, all of them with one fsync. Events of other
// types are appended with the change that they report.
func (j *Journal) Emit(ctx context.Context, events ...Event) error {
	for _, e := range events {
		if e.Type != EventFinding && e.Type != EventMessage {
			return fmt.Errorf("emit event of type %q: only findings and messages are for others to emit",
				e.Type)
		}
	}
	if err := j.c.emit(ctx, j.id, events); err != nil {
		return fmt.Errorf("emit events: %w", err)
	}
	return nil
}

// EmitFindings appends findings to the history, each with its unit.
func (j *Journal) EmitFindings(ctx context.Context, findings []object.Finding) error {
	events := make([]Event, 0, len(findings))
	for _, f := range findings {
		events = append(events, FindingEvent(f.Unit, f))
	}
	return j.Emit(ctx, events...)
}

// Progress counts what the run has done. It writes nothing: watchers see the newest count about
// four times a second, and it is stored with the next record.
func (j *Journal) Progress(what string, done, total int64) {
	j.c.setProgress(j.id, Progress{What: what, Done: done, Total: total})
}
