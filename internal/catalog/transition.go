package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Outcome says why an operation goes into a state.
type Outcome struct {
	// Message for people, free of secrets.
	Message string
	// Code is the stable code of the error.
	Code string
	// HintKey names the hint in Message, to which a client adds its commands.
	HintKey object.HintKey
	// Cause is set when the operation goes into stopped or needs-identity.
	Cause StopCause
	// Back is set when the operation goes into running to be rolled back: it counts from then on.
	Back bool
	// Untouched says that the run changed nothing, although it began steps.
	Untouched bool
}

// SetState moves an operation to another state and returns it. *TransitionError when State does
// not allow it, so that one of two resumes at once wins; ErrNotFound. SetState ignores the end of
// the context: a cancelled run is the usual reason for the call.
func (c *Catalog) SetState(ctx context.Context, id OperationID, to State, why Outcome) (Operation,
	error) {
	err := c.updateOperation(context.WithoutCancel(ctx), id, func(o *opTx) ([]Event, error) {
		if !o.op.State.CanBecome(to) {
			return nil, &TransitionError{ID: id, From: o.op.State, To: to}
		}
		o.op.State, o.op.Message, o.op.Code = to, shorten(why.Message), why.Code
		o.op.HintKey, o.op.StopCause = why.HintKey, why.Cause
		if why.Untouched && o.op.Runs == 1 { // what an earlier run did stays done
			o.op.Changed = false
		}
		if to == Running {
			o.op.Runs++
			o.op.GivenUp = false
			o.op.Back = o.op.Back || why.Back
		}
		o.tx.OnCommit(func() { c.forgetRun(id) })
		return []Event{{Type: EventOperation, State: string(to), Message: o.op.Message,
			HintKey: o.op.HintKey}}, nil
	})
	if err != nil {
		return Operation{}, fmt.Errorf("set operation state: %w", err)
	}
	return c.Operation(context.WithoutCancel(ctx), id)
}

// forgetRun deletes from memory what belongs to the run of an operation that has just ended, or to
// the run before the one that has just begun.
func (c *Catalog) forgetRun(id OperationID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.interrupted, id)
	delete(c.progress, id)
}

// AcceptUnit records, with an entry in the history, that the operator accepts the state of a unit
// of an operation. It changes nothing when the unit is accepted already.
func (c *Catalog) AcceptUnit(ctx context.Context, id OperationID, f object.Finding) error {
	err := c.updateOperation(ctx, id, func(o *opTx) ([]Event, error) {
		if slices.Contains(o.op.Accepted, f.Unit) {
			return nil, nil
		}
		o.op.Accepted = append(slices.Clone(o.op.Accepted), f.Unit)
		return []Event{FindingEvent(f.Unit, f)}, nil
	})
	if err != nil {
		return fmt.Errorf("accept unit %s: %w", f.Unit, err)
	}
	return nil
}

// UpdateOperation changes the sides, the store, the snapshot, the direction, the number of runs,
// StopCause, Unreleased, RetainedUntil and Copy of an operation, which a run may learn late. change
// must only assign: it may run more than once. Changes of other fields are dropped. ErrNotFound
// when there is no such operation.
func (c *Catalog) UpdateOperation(ctx context.Context, id OperationID,
	change func(*Operation)) error {
	err := c.updateOperation(ctx, id, func(o *opTx) ([]Event, error) {
		changed := o.op
		change(&changed)
		o.op.Source, o.op.Target, o.op.Store, o.op.SnapshotID, o.op.Back = changed.Source, changed.Target,
			changed.Store, changed.SnapshotID, changed.Back
		o.op.Runs, o.op.StopCause, o.op.Unreleased = changed.Runs, changed.StopCause, changed.Unreleased
		o.op.RetainedUntil, o.op.Copy = changed.RetainedUntil, changed.Copy
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("update operation: %w", err)
	}
	return nil
}

// GiveUp settles an operation that has work left: nothing resumes it by itself, and its snapshot is
// not in use any more. *TransitionError while it is running.
func (c *Catalog) GiveUp(ctx context.Context, id OperationID, message string) (Operation, error) {
	err := c.updateOperation(ctx, id, func(o *opTx) ([]Event, error) {
		if o.op.State == Running {
			return nil, &TransitionError{ID: id, From: Running, To: Stopped}
		}
		o.op.GivenUp = true
		return []Event{{Type: EventMessage, Message: message}}, nil
	})
	if err != nil {
		return Operation{}, fmt.Errorf("give up operation: %w", err)
	}
	return c.Operation(ctx, id)
}

// SettleReleased settles the restores whose workload clusters a restore has released, or has left
// paused for good, and returns them. by is that restore; nothing is settled unless it has
// succeeded. It may run any number of times.
func (c *Catalog) SettleReleased(ctx context.Context, by OperationID) ([]Operation, error) {
	released, err := c.Operation(ctx, by)
	if err != nil || released.Kind != KindRestore || !released.Settled() ||
		released.State != Succeeded {
		return nil, err
	}
	finished, err := c.Operations(ctx, OperationFilter{Kinds: []Kind{KindRestore},
		States: []State{Succeeded}})
	if err != nil {
		return nil, err
	}
	var settled []Operation
	for _, op := range finished {
		if !op.Unreleased || op.Target.UID != released.Target.UID || !op.copiedOnly(released.Units) {
			continue
		}
		if err := c.UpdateOperation(ctx, op.ID, func(op *Operation) {
			op.Unreleased = false
		}); err != nil {
			return settled, err
		}
		op.Unreleased = false
		settled = append(settled, op)
	}
	return settled, nil
}

// copiedOnly reports whether others have released every unit that the operation has copied, or left
// it paused for good. A unit that they do not have, have not begun, have blocked or have rolled
// back still waits for its release.
func (op Operation) copiedOnly(others map[string]UnitState) bool {
	waits := []UnitState{"", UnitPending, UnitBlocked, UnitRolledBack}
	for unit, state := range op.Units {
		if state == UnitCopied && slices.Contains(waits, others[unit]) {
			return false
		}
	}
	return true
}
