package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file gives a unit back that fails before its hand-over, or is paused for too long: its copy
// is removed from the target, and the source reconciles it again, while the others move on. Without
// it, the unit would be paused until somebody acts. It leaves its batch, whose stored plan was made
// of what the source was then: a resume plans it from scratch, in a batch of its own.

// DefaultMaxPause is how long a move pauses a workload cluster before its hand-over when the
// operator names no limit. A batch of 8 on a slow machine with two cores takes half a minute.
const DefaultMaxPause = 2 * time.Minute

// giveBackStep is done once a unit of a batch was given back. Once it is begun, the unit does not
// go forward in this batch any more, whatever of its copy is left.
func giveBackStep(unit string, b *batch) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "give-back" + b.suffix()}
}

// The keys of values in the step of a give-back.
const (
	epochValue   = "epoch"   // the epoch of the record that it wrote
	removedValue = "removed" // set once the copy is gone
)

// MaxPauseError means that a unit was paused for as long as the move may pause it.
type MaxPauseError struct {
	Limit time.Duration
	Err   error // what it waited for; may be nil
}

func (e *MaxPauseError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("a pause takes %s at most: %v", e.Limit, e.Err)
	}
	return fmt.Sprintf("it was paused for %s and is not handed over", e.Limit)
}

func (e *MaxPauseError) Unwrap() error { return e.Err }

// Code is the code of its finding.
func (e *MaxPauseError) Code() object.Code { return object.CodeMaxPause }

// Hint says what the operator can do.
func (e *MaxPauseError) Hint() string {
	return "it is given back to the source: find out what takes so long, then resume the operation, " +
		"which begins from scratch with it; or move it again with a longer limit"
}

// isBegun reports whether a hand-over was begun and not taken back.
func isBegun(state catalog.StepState) bool { return state != "" && state != catalog.StepUndone }

// startClock notes when a unit is paused.
func (m *run) startClock(unit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pausedAt[unit] = time.Now()
}

// pauseWait bounds the wait for the acknowledgements of a pause. It is half of the longest pause,
// so that one unit whose controllers do not answer does not use up the time of its batch.
func (m *run) pauseWait() time.Duration {
	if m.Tuning.MaxPause > 0 {
		return min(m.Tuning.Wait, m.Tuning.MaxPause/2)
	}
	return m.Tuning.Wait
}

// tooLong makes a *MaxPauseError of the error of a wait that MaxPause has shortened.
func (m *run) tooLong(err error) error {
	if _, waited := errors.AsType[*restore.WaitError](err); waited && m.pauseWait() < m.Tuning.Wait {
		return &MaxPauseError{Limit: m.pauseWait(), Err: err}
	}
	return err
}

// continueClock begins the time of a unit that an earlier run paused, when its batch goes on: its
// copy is most likely there, and to go on takes less time than to begin again.
func (m *run) continueClock(unit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pausedAt[unit].IsZero() {
		m.pausedAt[unit] = time.Now()
	}
}

// deadline returns when a unit has been paused for too long.
func (m *run) deadline(unit string) time.Time {
	return m.pausedFrom(unit).Add(m.Tuning.MaxPause)
}

// pausedFrom returns when this run paused a unit, or when it began.
func (m *run) pausedFrom(unit string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if since, ok := m.pausedAt[unit]; ok {
		return since
	}
	return m.began
}

// limitBatch returns the context in which a batch is planned. It ends with the time of its units.
func (m *run) limitBatch(ctx context.Context, units []string) (context.Context,
	context.CancelFunc) {
	if m.Tuning.MaxPause <= 0 {
		return ctx, func() {}
	}
	var last time.Time
	for _, unit := range units {
		if at := m.deadline(unit); at.After(last) {
			last = at
		}
	}
	return context.WithDeadlineCause(ctx, last, &MaxPauseError{Limit: m.Tuning.MaxPause})
}

// limit returns the context of what comes before the hand-over of a unit. One whose hand-over was
// begun has no limit.
func (m *run) limit(ctx context.Context, u restore.Unit) (context.Context, context.CancelFunc) {
	state, err := m.Journal.State(ctx, handOverStep(u.Name))
	if m.Tuning.MaxPause <= 0 || err != nil || isBegun(state) {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, m.deadline(u.Name),
		&MaxPauseError{Limit: m.Tuning.MaxPause})
}

// giveBackAll gives the units of a batch back that are neither healthy nor handed over: those that
// failed, and those that the run did not come to.
func (m *run) giveBackAll(ctx context.Context, b *batch, units, healthy []restore.Unit) {
	for _, u := range units {
		if !slices.ContainsFunc(healthy, func(h restore.Unit) bool { return h.Name == u.Name }) {
			m.giveBack(ctx, b, u)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b.leave(m.returned)
}

// giveBack gives one unit of a batch back, unless it is handed over or the run is interrupted: an
// operator who stops a move decides how it goes on. One that cannot be given back stays paused, and
// its copy stays paused as well; the next run tries it again.
func (m *run) giveBack(ctx context.Context, b *batch, u restore.Unit) {
	m.mu.Lock()
	done := m.returned[u.Name]
	m.mu.Unlock()
	if done || ctx.Err() != nil {
		return
	}
	by, err := m.handedOverBy(ctx, u)
	if err == nil && by == "" {
		err = m.giveBackUnit(ctx, b, u)
	}
	if err != nil {
		m.fail(ctx, u.Name, fmt.Errorf("give it back to the source: %w", err))
		return
	}
	if by == "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.returned[u.Name] = true
	}
}

// giveBackUnit carries out giveBackStep. The copy goes first: until it is gone, the source is
// paused. A run that died after that may have removed the lock as well, without which nothing is
// done to a copy; so the step has a value once the copy is gone.
func (m *run) giveBackUnit(ctx context.Context, b *batch, u restore.Unit) error {
	return m.Journal.Do(ctx, giveBackStep(u.Name, b), func(ctx context.Context,
		h *catalog.StepHandle) error {
		values, err := h.Values(ctx)
		if err != nil {
			return err
		}
		if _, removed := values[removedValue]; !removed {
			if err := m.removeCopy(ctx, h, b, u); err != nil {
				return fmt.Errorf("remove its copy: %w", err)
			}
			if err := h.Record(ctx, catalog.Value{Key: removedValue,
				Data: json.RawMessage("true")}); err != nil {
				return err
			}
		}
		return m.unpause(ctx, u.Name, false, catalog.UnitPending)
	})
}

// removeCopy makes sure that a unit is not handed over, and removes its copy from the target.
func (m *run) removeCopy(ctx context.Context, h *catalog.StepHandle, b *batch,
	u restore.Unit) error {
	ref, err := clusterRef(u.Name)
	if err != nil {
		return err
	}
	if err := m.pauser.Change(ctx, ref, func(live *unstructured.Unstructured) (bool, error) {
		return false, m.mayWrite(u.Name, live) // another run may work on the copy
	}); apierrors.IsNotFound(err) {
		if err := m.checkGone(ctx, u.Name, err); err != nil {
			return err
		}
		return GoneError{}
	} else if err != nil {
		return err
	}
	if err := m.takeBackHandOver(ctx, h, u); err != nil {
		return err
	}
	if err := m.undoUnits(ctx, b, b.hooks(), u.Name); err != nil {
		return err
	}
	return m.undoPreCopy(ctx, u.Name)
}

// takeBackHandOver makes sure that a hand-over which was begun, and failed, never takes place. The
// record that it writes has a higher epoch than the plan knows; from then on it counts as planned.
func (m *run) takeBackHandOver(ctx context.Context, h *catalog.StepHandle, u restore.Unit) error {
	state, err := m.Journal.State(ctx, handOverStep(u.Name))
	if err != nil || !isBegun(state) {
		return err
	}
	if !m.Plan.Spec.NoFence {
		epoch, err := ownership.ClaimBack(ctx, m.Store, m.request(u))
		if err != nil {
			return err
		}
		if err := h.Record(ctx, catalog.Value{Key: epochValue,
			Data: json.RawMessage(strconv.FormatInt(epoch, 10))}); err != nil {
			return err
		}
		m.setEpoch(u.Name, epoch)
	}
	return m.Journal.Undo(ctx, handOverStep(u.Name),
		func(context.Context, *catalog.StepHandle) error { return nil })
}

func (m *run) setEpoch(unit string, epoch int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epochs[unit] = max(m.epochs[unit], epoch)
}

func (m *run) knownEpoch(unit string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epochs[unit]
}

// leave removes units from a batch.
func (b *batch) leave(units map[string]bool) {
	b.Copy.Units = slices.DeleteFunc(slices.Clone(b.Copy.Units),
		func(u restore.Unit) bool { return units[u.Name] })
}

// leaveReturned removes from a stored batch the units that were given back, and reads the epochs of
// the records that this wrote. A unit whose give-back did not end stays: there may be a copy.
func (m *run) leaveReturned(ctx context.Context, b *batch) error {
	left := map[string]bool{}
	for _, u := range b.Copy.Units {
		state, err := m.Journal.State(ctx, giveBackStep(u.Name, b))
		if err != nil {
			return err
		}
		left[u.Name] = state == catalog.StepDone
		steps := []catalog.Step{giveBackStep(u.Name, b)}
		for attempt := range m.Attempt + 1 {
			steps = append(steps, takeBackStep(u.Name, attempt))
		}
		for _, step := range steps {
			if err := m.readEpoch(ctx, step); err != nil {
				return err
			}
		}
	}
	b.leave(left)
	return nil
}

// readEpoch reads the epoch of the record that a step wrote, if it did.
func (m *run) readEpoch(ctx context.Context, step catalog.Step) error {
	values, err := m.Journal.Values(ctx, step)
	if err != nil {
		return err
	}
	text, ok := values[epochValue]
	if !ok {
		return nil
	}
	var epoch int64
	if err := json.Unmarshal(text, &epoch); err != nil {
		return fmt.Errorf("decode the epoch of %s: %w", step.Unit, err)
	}
	m.setEpoch(step.Unit, epoch)
	return nil
}

// finishGiveBacks ends what an earlier run began to give back, or tried to, before anything goes
// forward: a part of the copy may be gone. Units of a batch that would have to wait for an earlier
// one are given back as well: they are paused. All these units are planned again by this run.
func (m *run) finishGiveBacks(ctx context.Context) error {
	waits := false
	for _, b := range m.batches {
		done := map[string]bool{}
		for _, u := range b.Copy.Units {
			tried, err := m.Journal.Tried(ctx, giveBackStep(u.Name, b))
			if err != nil {
				return err
			}
			if !tried && (!waits || u.Blocked || b.Copy.Blocked) || m.over(u.Name) {
				continue
			}
			by, err := m.handedOverBy(ctx, u)
			if err == nil && by == "" {
				err = m.giveBackUnit(ctx, b, u)
			}
			if err != nil {
				m.fail(ctx, u.Name, fmt.Errorf("give it back to the source: %w", err))
				done[u.Name] = true // not in this run
				continue
			}
			done[u.Name] = by == ""
		}
		b.leave(done)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		waits = waits || slices.ContainsFunc(b.units(), func(unit string) bool { return !m.over(unit) })
	}
	// What was paused and has no batch would wait until this run comes to it.
	m.unpauseOthers(ctx, pauseStep)
	return nil
}
