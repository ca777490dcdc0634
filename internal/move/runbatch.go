package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/task"
)

// readyBatch are the units of the next batch: they are locked, and copied as far as that is
// possible before their pause.
type readyBatch struct {
	units  []string
	before *snapshot.Contents // of the pre-copy; may be nil
	work   task.Group
}

// beginBatches moves one batch after the other. While the target's controllers take a batch over,
// the next one is made ready, for which nothing is paused. After a batch without a single moved
// unit the next one would most likely fail, too, and its units would be paused for nothing.
func (m *run) beginBatches(ctx context.Context, batches [][]string) {
	var next *readyBatch
	for i, units := range batches {
		if m.enough(ctx) {
			break
		}
		now := next
		if next = nil; now == nil {
			now = m.makeReady(ctx, units)
		}
		released := func() {
			if i+1 < len(batches) && next == nil && !m.enough(ctx) {
				next = m.makeReady(ctx, batches[i+1])
			}
		}
		m.awaitReady(ctx, now)
		if !m.begin(ctx, now, released) {
			break
		}
	}
	if next != nil {
		m.awaitReady(ctx, next)
	}
}

func (m *run) awaitReady(ctx context.Context, r *readyBatch) {
	if err := r.work.Wait(); err != nil { // a panic
		m.fail(ctx, "", err)
	}
}

// unlockOthers gives back the units that this run, or an earlier one, has locked, and that no batch
// has.
func (m *run) unlockOthers(ctx context.Context) {
	for _, u := range m.Plan.Copy.Units {
		state, err := m.Journal.State(ctx, lockStep(u.Name))
		if ctx.Err() != nil {
			return
		}
		if err == nil && (state == "" || state == catalog.StepUndone) || m.over(u.Name) ||
			slices.ContainsFunc(m.batches,
				func(b *batch) bool { return slices.Contains(b.units(), u.Name) }) {
			continue
		}
		m.unpauseSource(ctx, u.Name)
	}
}

// makeReady locks units and copies them, in a goroutine of its own. Those that cannot be locked
// fail.
func (m *run) makeReady(ctx context.Context, units []string) *readyBatch {
	r, since := &readyBatch{}, time.Now()
	r.work.Go(func() error {
		r.units = m.all(ctx, units, func(unit string) error { return m.lockUnit(ctx, unit, since) })
		if len(r.units) > 0 && ctx.Err() == nil {
			r.before = m.preCopy(ctx, r.units, since)
		}
		return nil
	})
	return r
}

// begin pauses units that are ready, plans their batch, copies what has changed and hands them
// over. It calls released once no unit of the batch is paused any more, if it comes to that. It
// reports whether at least one unit was retired, or is blocked by a shared object, which says
// nothing of the next batch. Units that cannot be paused, or whose batch cannot be planned, are
// unpaused: the source reconciles them while the cause is fixed, and a resume begins from scratch
// with them.
func (m *run) begin(ctx context.Context, ready *readyBatch, released func()) bool {
	since, together := time.Now(), newMeeting(ready.units)
	paused := m.all(ctx, ready.units, func(unit string) error {
		return m.pause(ctx, unit, since, together)
	})
	if len(paused) == 0 || ctx.Err() != nil {
		return false
	}
	// The snapshot and the plan of the batch are no step: they change neither side. A run that
	// dies before the batch is stored plans it again.
	number := len(m.batches) + 1
	limited, cancel := m.limitBatch(ctx, paused)
	b, err := m.planBatch(limited, number, paused, ready.before)
	if limited.Err() != nil && ctx.Err() == nil && err != nil {
		err = context.Cause(limited)
	}
	cancel()
	if err != nil {
		_, readErr := m.Catalog.BatchPlan(ctx, m.Journal.Operation(), batchName(number))
		for _, unit := range paused {
			m.fail(ctx, unit, err)
			if errors.Is(readErr, catalog.ErrNotFound) {
				m.unpauseSource(ctx, unit)
			}
		}
		return false
	}
	m.copyAndHandOver(ctx, b, released)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(paused, func(unit string) bool {
		return m.results.retired[unit] || m.results.byShared[unit]
	})
}

// all calls fn for units, all at once, and returns those for which it succeeds, sorted. The others
// failed, and are at work on the source.
func (m *run) all(ctx context.Context, units []string, fn func(unit string) error) []string {
	var mu sync.Mutex
	var succeeded []string
	var g task.Group
	for _, unit := range units {
		g.Go(func() error {
			if err := task.Call(func() error { return fn(unit) }); err != nil {
				m.fail(ctx, unit, err)
				m.unpauseSource(ctx, unit)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			succeeded = append(succeeded, unit)
			return nil
		})
	}
	g.Finish()
	slices.Sort(succeeded)
	return succeeded
}

// unpauseSource lets the source reconcile a unit again for which no batch was planned, and removes
// its pre-copy.
func (m *run) unpauseSource(ctx context.Context, unit string) {
	m.removePreCopy(ctx, unit)
	if err := m.unpause(ctx, unit, false, catalog.UnitPending); err != nil {
		m.fail(ctx, unit, fmt.Errorf("unpause it on the source: %w", err))
	}
}

// copyAndHandOver copies the units of a batch to the target, hands them over, releases them there
// and retires them on the source. It calls released, which may be nil, once all of them are handed
// over or have failed.
func (m *run) copyAndHandOver(ctx context.Context, b *batch, released func()) {
	m.unpauseBlocked(ctx, b)
	todo := b.Copy
	todo.Units = slices.DeleteFunc(slices.Clone(b.Copy.Units),
		func(u restore.Unit) bool { return u.Blocked || m.over(u.Name) })
	if len(todo.Units) == 0 || todo.Blocked {
		return
	}
	if err := m.load(ctx, b); err != nil {
		m.failAll(ctx, todo.Units, err)
		m.giveBackAll(ctx, b, todo.Units, nil)
		return
	}
	all := slices.Clone(todo.Units)
	for _, u := range todo.Units {
		m.continueClock(u.Name)
		if err := m.lockAgain(ctx, u.Name); err != nil {
			m.fail(ctx, u.Name, err)
		}
	}
	todo.Units = slices.DeleteFunc(todo.Units,
		func(u restore.Unit) bool { return m.hasFailed(u.Name) })
	healthy, err := m.carryOver(ctx, b, &todo, released)
	if ctx.Err() != nil {
		return
	}
	m.note(todo.Units, healthy, err)
	m.giveBackAll(ctx, b, all, healthy)
	m.retire(ctx, b, healthy)
}

// carryOver carries out the plan of a batch on the target, and returns the units that are well
// there. It calls released as copyAndHandOver does.
func (m *run) carryOver(ctx context.Context, b *batch, todo *restore.Plan, released func()) (
	healthy []restore.Unit, err error) {
	var mu sync.Mutex
	unended := map[string]bool{}
	for _, u := range todo.Units {
		unended[u.Name] = true
	}
	ended := func(u restore.Unit) {
		mu.Lock()
		defer mu.Unlock()
		before := len(unended)
		if delete(unended, u.Name); before > 0 && len(unended) == 0 && released != nil {
			released()
		}
	}
	tuning := m.Tuning
	tuning.Canary, tuning.Observe = "", 0
	options := restore.RunOptions{
		Plan: todo, Contents: b.contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Writer: m.Target.Writer, Prober: m.Target.Prober, Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: tuning,
		Hooks: restore.Hooks{
			StepSuffix: b.suffix(), RequirePause: true, LeaveSharedPaused: true, ReleaseTogether: true,
			BeforeRelease: func(ctx context.Context, u restore.Unit) error {
				err := m.handOver(ctx, u, b)
				if err == nil {
					ended(u)
				}
				return err
			},
			EpochMark: m.epochMark,
			Limit:     m.limit,
			OnFailed: func(ctx context.Context, u restore.Unit) {
				m.giveBack(ctx, b, u)
				ended(u)
			},
			OnBlocked: func(u restore.Unit) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.results.byShared[u.Name] = true
			},
			OnHealthy: func(u restore.Unit) {
				mu.Lock()
				defer mu.Unlock()
				healthy = append(healthy, u)
			},
			OnUnhealthy: restore.Repause,
		},
	}
	if b.before != nil {
		options.Before = readOnly{b.before}
	}
	err = restore.Run(ctx, options)
	b.before = nil
	return healthy, err
}

// lockAgain replaces the lock of earlier runs by the lock of this run. A Cluster that is gone is
// no error once its retirement was begun: retireUnit deletes the Cluster last, except for its
// Binding.
func (m *run) lockAgain(ctx context.Context, unit string) error {
	handedOver, err := m.Journal.State(ctx, handOverStep(unit))
	if err != nil {
		return err
	}
	retiring, err := m.Journal.State(ctx, retireStep(unit))
	if err != nil {
		return err
	}
	err = m.holdLock(ctx, unit, handedOver == catalog.StepDone)
	if retiring != "" && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (m *run) failAll(ctx context.Context, units []restore.Unit, err error) {
	for _, u := range units {
		m.fail(ctx, u.Name, err)
	}
}

// note records which units of a copy failed. Their findings are in the history already.
func (m *run) note(units, healthy []restore.Unit, err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range units {
		if !slices.ContainsFunc(healthy, func(w restore.Unit) bool { return w.Name == u.Name }) {
			m.results.failed[u.Name] = true
		}
	}
	if incomplete, ok := errors.AsType[*restore.IncompleteError](err); ok && incomplete.First != nil {
		m.results.stopped = m.results.stopped || incomplete.Stopped
		err = incomplete.First
	}
	if m.results.first == nil {
		m.results.first = err
	}
}

// unpauseBlocked unpauses on the source the units of a batch that are blocked: nothing of them but
// a pre-copy, which is removed, is on the target.
func (m *run) unpauseBlocked(ctx context.Context, b *batch) {
	for _, u := range b.Copy.Units {
		if !u.Blocked && !b.Copy.Blocked || m.over(u.Name) {
			continue
		}
		for _, f := range b.Copy.Findings {
			if f.Severity >= object.Error && f.Concerns(u.Name) {
				_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(u.Name, f))
			}
		}
		if err := m.undoPreCopy(ctx, u.Name); err != nil {
			m.fail(ctx, u.Name, fmt.Errorf("remove what was copied of it before its pause: %w", err))
			continue
		}
		if err := m.unpause(ctx, u.Name, false, catalog.UnitBlocked); err != nil {
			m.fail(ctx, u.Name, err)
			continue
		}
		m.Units[u.Name] = catalog.UnitBlocked
	}
}
