package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// all calls fn for units, all at once, and returns those for which it succeeds, sorted. The others
// failed, and are at work on the source.
func (m *run) all(ctx context.Context, units []string, fn func(unit string) error) []string {
	var mu sync.Mutex
	var succeeded []string
	var g task.Group
	for _, unit := range units {
		g.Go(func() error {
			if err := task.Call(func() error { return fn(unit) }); err != nil {
				if !m.leaveGone(ctx, unit) {
					m.fail(ctx, unit, err)
					m.unpauseSource(ctx, unit)
				}
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
// and retires them on the source.
func (m *run) copyAndHandOver(ctx context.Context, b *batch, f *flight) {
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
		if m.hasFailed(u.Name) {
			continue
		}
		m.continueClock(u.Name)
		if err := m.lockAgain(ctx, u); err != nil {
			m.fail(ctx, u.Name, err)
			m.giveBack(ctx, b, u)
		}
	}
	todo.Units = slices.DeleteFunc(todo.Units,
		func(u restore.Unit) bool { return m.hasFailed(u.Name) })
	f.leaveOthers(todo.Units)
	m.goTogether(f.units)
	healthy, err := m.carryOver(ctx, b, &todo, f)
	if ctx.Err() != nil {
		return
	}
	m.note(todo.Units, healthy, err)
	f.passed() // of units that it did not begin nothing was called
	m.giveBackAll(ctx, b, all, healthy)
	m.retire(ctx, b, healthy)
}

// carryOver carries out the plan of a batch on the target, and returns the units that are well
// there.
func (m *run) carryOver(ctx context.Context, b *batch, todo *restore.Plan, f *flight) (
	healthy []restore.Unit, err error) {
	var mu sync.Mutex
	tuning := m.Tuning
	tuning.Canary, tuning.Observe = "", 0
	options := restore.RunOptions{
		Plan: todo, Contents: b.contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Writer: m.Target.Writer, Prober: m.Target.Prober, Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: tuning,
		Hooks: restore.Hooks{
			StepSuffix: b.suffix(), RequirePause: true, LeaveSharedPaused: true, ReleaseTogether: true,
			BeforeRelease: func(ctx context.Context, u restore.Unit) error {
				return m.handOver(ctx, u, b, f)
			},
			EpochMark:  m.epochMark,
			OnReleased: func(u restore.Unit) { f.released.leave(u.Name) },
			Limit:      m.limit,
			Seldom:     &m.seldom,
			OnFailed: func(ctx context.Context, u restore.Unit) {
				f.verified.leave(u.Name)
				m.giveBack(ctx, b, u)
				f.leave(u.Name)
			},
			OnError:        m.noteAtOnce,
			OnAcknowledged: func(u restore.Unit) { f.acknowledged.leave(u.Name) },
			OnAtWork:       func(u restore.Unit) { m.arrive(u, m.results.atWork, f.atWork) },
			OnWell:         func(u restore.Unit) { m.arrive(u, m.results.well, f.well) },
			OnBlocked: func(u restore.Unit) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.results.byShared[u.Name] = true
			},
			OnHealthy: func(u restore.Unit, cluster string) {
				m.mu.Lock()
				m.released[u.Name] = cluster
				m.mu.Unlock()
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
	b.before, b.captures = nil, nil
	return healthy, err
}

// arrive notes that a unit came to a point of its flight.
func (m *run) arrive(u restore.Unit, point map[string]bool, at *meeting) {
	m.mu.Lock()
	point[u.Name] = true
	m.mu.Unlock()
	at.leave(u.Name)
}

// lockAgain replaces the lock of earlier runs by the lock of this run. A Cluster that is gone is
// no error once it is handed over: nobody reconciles it there.
func (m *run) lockAgain(ctx context.Context, u restore.Unit) error {
	// By the record as well: a run may have died before it journaled its hand-over.
	by, err := m.handedOverBy(ctx, u)
	if err != nil {
		return err
	}
	err = m.holdLock(ctx, u.Name, by == m.Operation)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if goneErr := m.checkGone(ctx, u.Name, err); goneErr != nil {
		return goneErr
	}
	if by != m.Operation {
		return GoneError{}
	}
	return nil
}

func (m *run) failAll(ctx context.Context, units []restore.Unit, err error) {
	for _, u := range units {
		m.fail(ctx, u.Name, err)
	}
}

// noteAtOnce records that a unit failed while others of its batch go on, so that no further batch
// is paused when there were too many, or after Machines came or went.
func (m *run) noteAtOnce(u restore.Unit, stopped bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results.failed[u.Name] = true
	m.results.stopped = m.results.stopped || stopped
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
		m.mu.Lock()
		m.Units[u.Name] = catalog.UnitBlocked
		m.mu.Unlock()
	}
}
