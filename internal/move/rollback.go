package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// ForwardError means that units are past their hand-over. They can only be resumed; all others are
// rolled back, unless something else failed.
type ForwardError struct {
	Units []string
	Left  bool // something else failed
}

func (e *ForwardError) Error() string {
	others := "all others are as they were"
	if e.Left {
		others = "the rollback of others failed"
	}
	return fmt.Sprintf("units that were handed over cannot be rolled back: %d, the first: %s; %s",
		len(e.Units), e.Units[0], others)
}

// Hint says what the operator can do.
func (e *ForwardError) Hint() string {
	if e.Left {
		return "resume the operation to bring them to their end: it moves the others as well; to keep " +
			"those on the source, mend what failed and roll the operation back again first"
	}
	return "resume the operation to bring them to their end; to have them back, move them back"
}

// rollBack is Rollback without the record of the direction.
func rollBack(ctx context.Context, o Options, stored *StoredPlan) error {
	m, err := newRun(ctx, o, stored)
	if err != nil {
		return err
	}
	forward, stuck, errs := m.forward(ctx)
	if len(stuck) == 0 && len(errs) > 0 {
		return errors.Join(errs...)
	}
	back := func(unit string) bool {
		return !slices.Contains(forward, unit) && !stuck[unit] &&
			(!m.over(unit) || m.Units[unit] == catalog.UnitGivenBack)
	}
	if m.hasTarget() {
		errs = append(errs, m.takeBackHandOvers(ctx, back, stuck)...)
		errs = append(errs, m.undo(ctx, back, stuck, len(forward)+len(errs) == 0)...)
	}
	for _, u := range m.Plan.Copy.Units {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if u.Blocked || !back(u.Name) {
			continue
		}
		if err := m.rollBackUnit(ctx, u); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.Name, err))
		}
	}
	errs = append(errs, m.unpausePools(ctx, forward, stuck)...)
	if len(errs) == 0 && len(forward) == 0 { // no copy of them is left on the target
		if err := m.unpauseShared(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	left := len(errs) > 0
	if !left { // a unit that is stuck is still paused, and a tool would unpause it
		if err := m.resumeGitOps(ctx, m.moved(forward)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(forward) > 0 {
		errs = append(errs, &ForwardError{Units: forward, Left: left})
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

// takeBackHandOvers makes sure that hand-overs which were begun never take place, before anything
// of the copies is removed: a host that was suspended in one would hand over what is not there any
// more. Units of which it cannot do that are stuck, as in undo.
func (m *run) takeBackHandOvers(ctx context.Context, back func(unit string) bool,
	stuck map[string]bool) (errs []error) {
	for _, u := range m.Plan.Copy.Units {
		if u.Blocked || !back(u.Name) || !m.inBatch(u.Name) || m.Units[u.Name] == catalog.UnitGivenBack {
			continue
		}
		state, err := m.Journal.State(ctx, handOverStep(u.Name))
		if err == nil && !isBegun(state) {
			continue
		}
		if err == nil {
			err = m.Journal.Do(ctx, takeBackStep(u.Name, m.Attempt), func(ctx context.Context,
				h *catalog.StepHandle) error {
				return m.takeBackFromAnybody(ctx, h, u)
			})
		}
		if err != nil {
			stuck[u.Name] = true
			errs = append(errs, fmt.Errorf("%s: take back its hand-over: %w", u.Name, err))
		}
	}
	return errs
}

// takeBackFromAnybody is takeBackHandOver, and also takes back the hand-over of a unit that another
// management cluster than the target has claimed meanwhile: with that record the hand-over fails.
func (m *run) takeBackFromAnybody(ctx context.Context, h *catalog.StepHandle,
	u restore.Unit) error {
	err := m.takeBackHandOver(ctx, h, u)
	owned, is := errors.AsType[*ownership.OwnedError](err)
	if !is || owned.By.UID == "" || owned.By.UID == m.Plan.Target.UID {
		return err
	}
	return m.Journal.Undo(ctx, handOverStep(u.Name),
		func(context.Context, *catalog.StepHandle) error { return nil })
}

// takeBackStep takes back the hand-over of a unit. Each run may have begun one.
func takeBackStep(unit string, attempt int) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "take-back", Wave: attempt}
}

// undo removes the copies of units and, at the end, of the shared objects. Units whose copy cannot
// be removed are stuck: they stay paused on the source, and do not hold up the others.
func (m *run) undo(ctx context.Context, back func(unit string) bool, stuck map[string]bool,
	shared bool) (errs []error) {
	for _, b := range slices.Backward(m.batches) {
		names := slices.DeleteFunc(b.units(), func(unit string) bool { return !back(unit) })
		if m.undoUnits(ctx, b, b.hooks(), names...) == nil {
			continue
		}
		for _, name := range names {
			if err := m.undoUnits(ctx, b, b.hooks(), name); err != nil {
				stuck[name] = true
				errs = append(errs, fmt.Errorf("remove the copy of %s: %w", name, err))
			}
		}
	}
	for _, u := range m.Plan.Copy.Units {
		if !back(u.Name) {
			continue
		}
		if err := m.undoPreCopy(ctx, u.Name); err != nil {
			stuck[u.Name] = true
			errs = append(errs, fmt.Errorf("remove what was copied of %s before its pause: %w", u.Name,
				err))
		}
	}
	if !shared || len(errs) > 0 || len(m.batches)+len(m.pre.plans) == 0 {
		return errs
	}
	return append(errs, m.undoShared(ctx)...)
}

// undoShared removes the copies of shared objects, but those that the target needs by now.
func (m *run) undoShared(ctx context.Context) (errs []error) {
	needed, err := m.usedOnTarget(ctx)
	if err != nil {
		return []error{err}
	}
	pools, err := m.poolsThatStay(ctx, needed)
	if err != nil {
		return []error{err}
	}
	undo := func(b *batch, hooks restore.Hooks) {
		if err := restore.Undo(ctx, m.undoOptions(b, hooks, func(o *restore.UndoOptions) {
			o.Shared, o.Needed, o.StayPaused = true, needed, pools
		})); err != nil {
			errs = append(errs, fmt.Errorf("remove the copies of shared objects: %w", err))
		}
	}
	for _, b := range slices.Backward(m.batches) {
		undo(b, b.hooks())
	}
	for _, p := range slices.Backward(m.pre.plans) {
		undo(p, preCopyHooks(p))
	}
	return errs
}

// hooks are those by which an undo finds the steps of a batch.
func (b *batch) hooks() restore.Hooks { return restore.Hooks{StepSuffix: b.suffix()} }

// undoUnits removes what was copied of units by the plan of a batch or a pre-copy.
func (m *run) undoUnits(ctx context.Context, b *batch, hooks restore.Hooks, units ...string) error {
	return restore.Undo(ctx, m.undoOptions(b, hooks,
		func(o *restore.UndoOptions) { o.Units = units }))
}

func (m *run) undoOptions(b *batch, hooks restore.Hooks,
	of func(o *restore.UndoOptions)) restore.UndoOptions {
	o := restore.UndoOptions{
		RunOptions: restore.RunOptions{
			Plan: &b.Copy, Reader: m.Target.Reader, Writer: m.Target.Writer, Kinds: m.Target.Kinds,
			Rows: m.Rows, Operation: m.Operation, Journal: m.Journal, Tuning: m.Tuning, Hooks: hooks,
		},
		Remover: m.Target.Writer, Lister: m.Target.Reader,
	}
	of(&o)
	return o
}

// usedOnTarget returns the shared objects of the copies that other objects on the target need by
// now. Once units were retired, these are also those that are on the target alone, and those that
// workload clusters there may use although no field names them (mayHaveUsers), each with what it
// needs.
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
	var stay []*graph.Node
	for ref := range ours {
		here, err := on(ctx, m.Source, ref)
		if err != nil {
			return nil, err
		}
		if here != nil && !m.mayBeUsed(s.Graph, ref) {
			continue
		}
		needed[ref] = true
		if n := s.Graph.Node(ref); n != nil {
			stay = append(stay, n)
		}
	}
	m.addNeeds(s.Graph, ours, needed, stay)
	return needed, nil
}

// mayBeUsed is mayHaveUsers for a shared object of the target. A host or a pool of addresses is
// none: what uses it names it, and the source works with it, so that its copy must not be released
// for an unknown user. What it owns goes with it.
func (m *run) mayBeUsed(g *graph.Graph, ref object.Ref) bool {
	if !m.mayHaveUsers(g, ref) || m.isHostOrPool(ref) {
		return false
	}
	n := g.Node(ref)
	return n == nil || !slices.ContainsFunc(n.Owners,
		func(o graph.Owner) bool { return m.isHostOrPool(o.Ref) })
}

// addNeeds adds those of ours that objects which stay need: their owners, since the garbage
// collector deletes an object with them, and what they name, but no host and no pool.
func (m *run) addNeeds(g *graph.Graph, ours, needed map[object.Ref]bool, stay []*graph.Node) {
	for _, n := range g.Closure(stay) {
		needed[n.Ref] = needed[n.Ref] || ours[n.Ref] && !m.isHostOrPool(n.Ref)
	}
}

func (m *run) isHostOrPool(ref object.Ref) bool {
	row := m.Rows.Row(ref.GroupKind())
	return row.Pause.Gate() != nil || row.AddressPool
}

// forward returns the units past the point of no return: those that the journal or an ownership
// record in the bucket shows as handed over. Units whose record cannot be used are stuck, as in
// undo. Any other error is alone.
func (m *run) forward(ctx context.Context) (units []string, stuck map[string]bool, errs []error) {
	stuck = map[string]bool{}
	for _, b := range m.batches {
		for _, u := range b.Copy.Units {
			if m.over(u.Name) && m.Units[u.Name] != catalog.UnitGivenBack || stuck[u.Name] {
				continue
			}
			by, err := m.handedOverBy(ctx, u)
			_, wentBack := errors.AsType[*ownership.WentBackError](err)
			switch {
			case wentBack || store.IsUnusable(err):
				stuck[u.Name] = true
				errs = append(errs, fmt.Errorf("%s: find out whether it was handed over: %w", u.Name, err))
			case err != nil:
				return nil, nil, []error{err}
			case by != "":
				units = append(units, u.Name)
			}
		}
	}
	return units, stuck, errs
}
