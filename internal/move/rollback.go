package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// ForwardError says that units are past their hand-over: all others are rolled back, and these can only go on.
type ForwardError struct{ Units []string }

func (e *ForwardError) Error() string {
	return fmt.Sprintf("units that were handed over cannot be rolled back: %d, the first: %s; all others are as they were", len(e.Units), e.Units[0])
}

// Hint tells the operator what to do.
func (e *ForwardError) Hint() string {
	return "resume the operation to bring them to their end; to have them back, move them back"
}

// Rollback takes back what a move did with the units that are not handed over: their copies are removed from the target, and they are released on the source, which
// then is equal to what it was. It may run again after any crash. Errors: *ForwardError when units were handed over; those of the journal and of both sides.
func Rollback(ctx context.Context, o Options) error {
	m, err := newRun(ctx, o)
	if err != nil {
		return err
	}
	forward, err := m.forward(ctx)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(m.parts) {
		names := slices.DeleteFunc(p.units(), func(unit string) bool { return slices.Contains(forward, unit) || m.over(unit) })
		err := restore.Undo(ctx, restore.UndoOptions{
			RunOptions: restore.RunOptions{
				Plan: &p.Copy, Reader: m.Target.Reader, Writer: m.Target.Writer, Kinds: m.Target.Kinds, Operation: m.Operation, Journal: m.Journal, Tuning: m.Tuning, Part: p.suffix(),
			},
			Remover: m.Target.Writer, Lister: m.Target.Reader, Units: names, Shared: len(forward) == 0,
		})
		if err != nil {
			return fmt.Errorf("take the copies back: %w", err)
		}
	}
	var errs []error
	for _, u := range m.Plan.Copy.Units {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if u.Blocked || slices.Contains(forward, u.Name) || m.over(u.Name) {
			continue
		}
		err := m.unpause(ctx, u.Name)
		if err == nil {
			err = m.Journal.SetUnit(ctx, u.Name, catalog.UnitRolledBack, "")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.Name, err))
		}
	}
	if len(forward) > 0 {
		errs = append(errs, &ForwardError{Units: forward})
	}
	return errors.Join(errs...)
}

// forward finds the units past the point of no return: by the journal or, where a run died inside the step, by the bucket.
func (m *run) forward(ctx context.Context) ([]string, error) {
	var units []string
	for _, p := range m.parts {
		for _, u := range p.Copy.Units {
			state, err := m.Journal.State(ctx, handOverStep(u.Name))
			if err != nil {
				return nil, err
			}
			past := state == catalog.StepDone
			if state != "" && !past {
				if past, err = m.handedOver(ctx, u); err != nil {
					return nil, err
				}
			}
			if past {
				units = append(units, u.Name)
			}
		}
	}
	return units, nil
}
