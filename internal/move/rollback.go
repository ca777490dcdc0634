package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// ForwardError means that units are past their hand-over. They can only be resumed; all others are
// rolled back.
type ForwardError struct{ Units []string }

func (e *ForwardError) Error() string {
	return fmt.Sprintf("units that were handed over cannot be rolled back: %d, the first: %s; all "+
		"others are as they were", len(e.Units), e.Units[0])
}

// Hint says what the operator can do.
func (e *ForwardError) Hint() string {
	return "resume the operation to bring them to their end; to have them back, move them back"
}

// rollBack is Rollback without the record of the direction.
func rollBack(ctx context.Context, o Options, stored *StoredPlan) error {
	m, err := newRun(ctx, o, stored)
	if err != nil {
		return err
	}
	forward, err := m.forward(ctx)
	if err != nil {
		return err
	}
	back := func(unit string) bool {
		return !slices.Contains(forward, unit) &&
			(!m.over(unit) || m.Units[unit] == catalog.UnitGivenBack)
	}
	var stuck map[string]bool
	var errs []error
	if m.hasTarget() {
		stuck, errs = m.undo(ctx, back, len(forward) == 0)
	}
	for _, u := range m.Plan.Copy.Units {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if u.Blocked || !back(u.Name) || stuck[u.Name] {
			continue
		}
		if err := m.rollBackUnit(ctx, u); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.Name, err))
		}
	}
	if len(errs) == 0 && len(forward) == 0 { // no copy of them is left on the target
		if err := m.unpauseShared(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 { // a unit that is stuck is still paused, and a tool would unpause it
		if err := m.resumeGitOps(ctx, m.moved(forward)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(forward) > 0 {
		errs = append(errs, &ForwardError{Units: forward})
	}
	if !m.hasTarget() {
		errs = append(errs, m.reportLeft(ctx))
	}
	return errors.Join(errs...)
}

// moved returns the units that are handed over or retired already.
func (m *run) moved(forward []string) []string {
	moved := slices.Clone(forward)
	for _, u := range m.Plan.Copy.Units {
		if m.results.retired[u.Name] {
			moved = append(moved, u.Name)
		}
	}
	return moved
}

// rollBackUnit returns a unit to the source.
func (m *run) rollBackUnit(ctx context.Context, u restore.Unit) error {
	state := catalog.UnitRolledBack
	if !m.hasTarget() && m.inBatch(u.Name) {
		state = catalog.UnitGivenBack
	}
	if m.Units[u.Name] == catalog.UnitGivenBack {
		// The source has had it since then, and anything may have been done with it there.
		if m.Store != nil && !m.hasTarget() {
			m.recordLate(ctx, u)
		}
	} else if err := m.giveToSource(ctx, u, state); err != nil {
		return err
	}
	if err := m.Journal.SetUnit(ctx, u.Name, state, ""); err != nil {
		return err
	}
	m.Units[u.Name] = state
	return nil
}

// giveToSource proves that a unit is not handed over, and unpauses it on the source.
func (m *run) giveToSource(ctx context.Context, u restore.Unit, state catalog.UnitState) error {
	if err := m.prove(ctx, u); err != nil {
		return err
	}
	return m.unpause(ctx, u.Name, true, state)
}

// undo removes the copies of units and, at the end, of the shared objects. Units whose copy cannot
// be removed are stuck: they stay paused on the source, and do not hold up the others.
func (m *run) undo(ctx context.Context, back func(unit string) bool, shared bool) (
	stuck map[string]bool, errs []error) {
	stuck = map[string]bool{}
	for _, b := range slices.Backward(m.batches) {
		names := slices.DeleteFunc(b.units(), func(unit string) bool { return !back(unit) })
		if m.undoBatch(ctx, b, names, false, nil) == nil {
			continue
		}
		for _, name := range names {
			if err := m.undoBatch(ctx, b, []string{name}, false, nil); err != nil {
				stuck[name] = true
				errs = append(errs, fmt.Errorf("remove the copy of %s: %w", name, err))
			}
		}
	}
	for _, u := range m.Plan.Copy.Units {
		if !back(u.Name) || stuck[u.Name] {
			continue
		}
		if err := m.undoPreCopy(ctx, u.Name); err != nil {
			stuck[u.Name] = true
			errs = append(errs, fmt.Errorf("remove what was copied of %s before its pause: %w", u.Name,
				err))
		}
	}
	if !shared || len(errs) > 0 || len(m.batches)+len(m.pre.plans) == 0 {
		return stuck, errs
	}
	needed, err := m.usedOnTarget(ctx)
	if err != nil {
		return stuck, append(errs, err)
	}
	for _, b := range slices.Backward(m.batches) {
		if err := m.undoBatch(ctx, b, nil, true, needed); err != nil {
			errs = append(errs, fmt.Errorf("remove the copies of shared objects: %w", err))
		}
	}
	for _, p := range slices.Backward(m.pre.plans) {
		if err := m.undoPlan(ctx, p, preCopyHooks(p), nil, true, needed); err != nil {
			errs = append(errs, fmt.Errorf("remove the copies of shared objects: %w", err))
		}
	}
	return stuck, errs
}

func (m *run) undoBatch(ctx context.Context, b *batch, units []string, shared bool,
	needed map[object.Ref]bool) error {
	return m.undoPlan(ctx, b, restore.Hooks{StepSuffix: b.suffix()}, units, shared, needed)
}

// undoPlan removes what was copied by the plan of a batch or a pre-copy.
func (m *run) undoPlan(ctx context.Context, b *batch, hooks restore.Hooks, units []string,
	shared bool, needed map[object.Ref]bool) error {
	return restore.Undo(ctx, restore.UndoOptions{
		RunOptions: restore.RunOptions{
			Plan: &b.Copy, Reader: m.Target.Reader, Writer: m.Target.Writer, Kinds: m.Target.Kinds,
			Rows: m.Rows, Operation: m.Operation, Journal: m.Journal, Tuning: m.Tuning, Hooks: hooks,
		},
		Remover: m.Target.Writer, Lister: m.Target.Reader, Units: units, Shared: shared, Needed: needed,
	})
}

// usedOnTarget returns the shared objects of the copies that other objects on the target need by
// now, or that are on the target alone, since units were retired.
func (m *run) usedOnTarget(ctx context.Context) (map[object.Ref]bool, error) {
	s, contents, err := m.Target.capture(ctx, nil, capture.Narrow{})
	if err != nil {
		return nil, err
	}
	ours := map[object.Ref]bool{}
	for _, b := range m.copies() {
		for _, o := range b.Copy.Shared.Objects {
			ours[o.Ref] = true
		}
	}
	needed, err := restore.Needed(s.Graph, contents, m.Rows, ours)
	if err != nil || len(m.results.retired) == 0 {
		return needed, err
	}
	for ref := range ours {
		here, err := on(ctx, m.Source, ref)
		if err != nil {
			return nil, err
		}
		needed[ref] = needed[ref] || here == nil
	}
	return needed, nil
}

// forward returns the units past the point of no return: those that the journal or an ownership
// record in the bucket shows as handed over.
func (m *run) forward(ctx context.Context) ([]string, error) {
	var units []string
	for _, b := range m.batches {
		for _, u := range b.Copy.Units {
			if m.over(u.Name) && m.Units[u.Name] != catalog.UnitGivenBack {
				continue
			}
			by, err := m.handedOverBy(ctx, u)
			if err != nil {
				return nil, err
			}
			if by != "" {
				units = append(units, u.Name)
			}
		}
	}
	return units, nil
}
