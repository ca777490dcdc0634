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
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// DefaultConcurrency is the largest size of a batch when Tuning names no number. All workload
// clusters of a batch are paused on the source from the first pause to the last retirement of the
// batch, so that a large batch leaves many of them without a working controller at the same time.
const DefaultConcurrency = 8

// run is one run of a move.
type run struct {
	Options
	Plan      *Plan
	Tuning    restore.Tuning
	Operation string // its id
	// Attempt is the number of the run (attempt): it is the second half of the lock.
	Attempt int
	// Units are the states of the units in the journal.
	Units map[string]catalog.UnitState

	captures *captureCache
	began    time.Time
	batches  []*batch
	pauser   *fence.Pauser // of the source
	// policy and returns are the admission policies of the source and of the target.
	policy, returns *fence.Policy
	// refused are the units of which the target refuses an object before they are paused.
	refused map[string]bool

	mu      sync.Mutex
	results results
	// pausedAt is when this run paused a unit.
	pausedAt map[string]time.Time
	// returned are the units of stored batches that were given back, and epochs the epochs of the
	// records that this wrote.
	returned map[string]bool
	epochs   map[string]int64
	// unarmed: the policy of the source cannot be armed; warned: a finding has said so.
	unarmed, warned bool
}

// results collects how the units of this run ended.
type results struct {
	failed map[string]bool
	// byShared are the failed units that a shared object blocks.
	byShared map[string]bool
	retired  map[string]bool
	// left are released on the target, and left on the source, which does not answer.
	left    map[string]bool
	stopped bool // Machines came or went after a release
	first   error
}

func newRun(ctx context.Context, o Options, stored *StoredPlan) (*run, error) {
	op, err := o.Catalog.Operation(ctx, o.Journal.Operation())
	if err != nil {
		return nil, err
	}
	attempt, err := o.attempt(ctx, op)
	if err != nil {
		return nil, err
	}
	m := &run{Options: o, Plan: &stored.Plan, Tuning: stored.Tuning.WithDefaults(DefaultConcurrency),
		Operation: string(op.ID), Attempt: attempt, Units: op.Units,
		captures: &captureCache{capture: o.Source.capture}, began: time.Now(),
		pauser:  fence.NewPauser(o.Source.Reader, o.Source.Writer, o.Source.Kinds, o.Rows),
		policy:  policyOf(o.Source),
		returns: policyOf(o.Target),
		refused: map[string]bool{}, pausedAt: map[string]time.Time{}, returned: map[string]bool{},
		epochs: map[string]int64{},
		results: results{failed: map[string]bool{}, byShared: map[string]bool{},
			retired: map[string]bool{}, left: map[string]bool{}}}
	if m.Units == nil {
		m.Units = map[string]catalog.UnitState{}
	}
	for unit, state := range m.Units {
		if state == catalog.UnitRetired {
			m.results.retired[unit] = true
		}
	}
	m.captures.seen = m.keepShared
	return m, m.loadBatches(ctx)
}

// execute is Resume without the record of the direction.
func execute(ctx context.Context, o Options, stored *StoredPlan) error {
	m, err := newRun(ctx, o, stored)
	if err != nil {
		return err
	}
	if err := m.suspendGitOps(ctx); err != nil {
		return err
	}
	if err := m.finishGiveBacks(ctx); err != nil {
		return err
	}
	if err := m.moveBatches(ctx); err != nil {
		return err
	}
	err = m.finishShared(ctx)
	if err == nil {
		err = m.retireShared(ctx)
	}
	if err != nil {
		m.fail(ctx, "", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := m.reportSuspended(ctx, nil); err != nil {
		return err
	}
	if units := m.givenBack(); len(units) > 0 {
		m.fail(ctx, "", &CopiesLeftError{Target: m.Target.Name, Units: units})
	}
	left, blocked := m.left(), m.blocked()
	if m.results.first == nil && left == 0 && blocked == 0 {
		return m.observe(ctx)
	}
	return &restore.IncompleteError{Failed: len(m.results.failed), Blocked: blocked,
		Left: left, First: m.results.first, Stopped: m.results.stopped}
}

// moveBatches moves the units of the batches that earlier runs planned, and then all others. An
// error is that of ctx.
func (m *run) moveBatches(ctx context.Context) (err error) {
	for _, b := range m.batches {
		m.copyAndHandOver(ctx, b)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if m.results.stopped {
			break
		}
	}
	if !m.enough(ctx) {
		if err = m.prepareBatches(ctx); err != nil {
			m.fail(ctx, "", err)
		}
	}
	for _, units := range m.unplanned() {
		if err != nil {
			break // the next one would fail for the same reason, and be paused for nothing
		}
		// After a batch without a single moved unit the next one would most likely fail, too, and
		// its units would be paused for nothing.
		if m.enough(ctx) || !m.begin(ctx, units) {
			break
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// prepareBatches does what comes before the first pause of a unit.
func (m *run) prepareBatches(ctx context.Context) error {
	if err := m.dryRun(ctx, slices.Concat(m.unplanned()...)); err != nil {
		return err
	}
	return m.pauseShared(ctx)
}

// over reports whether nothing is left to do for a unit but, for one that was given back, to remove
// its copy.
func (m *run) over(unit string) bool {
	state := m.Units[unit]
	return m.results.retired[unit] || state == catalog.UnitRolledBack ||
		state == catalog.UnitBlocked || state == catalog.UnitGivenBack
}

// unplanned divides the units that no batch holds yet: first the canary alone, then groups of 1,
// 2, 4 units and so on, up to Tuning.Concurrency. The next group begins once the one before is
// retired. What is wrong with the controllers of the target then shows on few workload clusters.
func (m *run) unplanned() [][]string {
	known := map[string]bool{}
	for _, b := range m.batches {
		for _, name := range b.units() {
			known[name] = true
		}
	}
	var canary, names []string
	for _, u := range m.Plan.Copy.Units {
		switch {
		case m.isBlocked(u) || known[u.Name] || m.over(u.Name) || m.results.failed[u.Name]:
		case u.Name == m.Tuning.Canary:
			canary = []string{u.Name}
		default:
			names = append(names, u.Name)
		}
	}
	var chunks [][]string
	if canary != nil {
		chunks = append(chunks, canary)
	}
	for size := 1; len(names) > 0; size = min(2*size, m.Tuning.Concurrency) {
		n := min(size, len(names))
		chunks, names = append(chunks, names[:n]), names[n:]
	}
	return chunks
}

// enough reports whether no further batch is begun: the run is cancelled, the canary failed,
// Tuning.MaxFailures is reached, or Machines came or went after a release. Units that a shared
// object blocks do not count as failures.
func (m *run) enough(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	canary := m.Tuning.Canary != "" && (m.results.failed[m.Tuning.Canary] ||
		m.refused[m.Tuning.Canary] || m.Units[m.Tuning.Canary] == catalog.UnitBlocked)
	return ctx.Err() != nil || canary || m.results.stopped || m.Tuning.MaxFailures > 0 &&
		len(m.results.failed)-len(m.results.byShared) >= m.Tuning.MaxFailures
}

// isBlocked reports whether a unit is not moved by this run because of a finding.
func (m *run) isBlocked(u restore.Unit) bool {
	return u.Blocked || m.refused[u.Name] || m.Units[u.Name] == catalog.UnitBlocked
}

func (m *run) blocked() int {
	n := 0
	for _, u := range m.Plan.Copy.Units {
		if m.isBlocked(u) {
			n++
		}
	}
	return n
}

// left counts the units that were not begun.
func (m *run) left() int {
	n := 0
	for _, u := range m.Plan.Copy.Units {
		if !m.isBlocked(u) && !m.over(u.Name) && !m.results.failed[u.Name] {
			n++
		}
	}
	return n
}

func (m *run) fail(ctx context.Context, unit string, err error) {
	if ctx.Err() == nil {
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit,
			object.Finding{Severity: object.Error, Code: object.CodeOf(err, object.CodeUnitFailed),
				Message: err.Error(), Hint: object.HintOf(err)}))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if unit != "" {
		m.results.failed[unit] = true
		err = fmt.Errorf("%s: %w", unit, err)
	}
	if m.results.first == nil {
		m.results.first = err
	}
}

// begin pauses units, plans their batch, copies it and hands it over. It reports whether at least
// one unit was retired, or is blocked by a shared object, which says nothing of the next batch.
// Units that cannot be paused, or whose batch cannot be planned, are unpaused: the source
// reconciles them while the cause is fixed, and a resume begins from scratch with them.
func (m *run) begin(ctx context.Context, units []string) bool {
	var mu sync.Mutex
	var paused []string
	var g task.Group
	since := time.Now()
	for _, unit := range units {
		g.Go(func() error {
			err := task.Call(func() error { return m.pause(ctx, unit, since) })
			if err != nil {
				m.fail(ctx, unit, err)
				m.unpauseSource(ctx, unit)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			paused = append(paused, unit)
			return nil
		})
	}
	g.Finish()
	if len(paused) == 0 || ctx.Err() != nil {
		return false
	}
	slices.Sort(paused)
	// The snapshot and the plan of the batch are no step: they change neither side. A run that
	// dies before the batch is stored plans it again.
	number := len(m.batches) + 1
	limited, cancel := m.limitBatch(ctx, paused)
	b, err := m.planBatch(limited, number, paused)
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
	m.copyAndHandOver(ctx, b)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(paused, func(unit string) bool {
		return m.results.retired[unit] || m.results.byShared[unit]
	})
}

// unpauseSource lets the source reconcile a unit again for which no batch was planned.
func (m *run) unpauseSource(ctx context.Context, unit string) {
	if err := m.unpause(ctx, unit, false, catalog.UnitPending); err != nil {
		m.fail(ctx, unit, fmt.Errorf("unpause it on the source: %w", err))
	}
}

// copyAndHandOver copies the units of a batch to the target, hands them over, releases them there
// and retires them on the source.
func (m *run) copyAndHandOver(ctx context.Context, b *batch) {
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
		func(u restore.Unit) bool { return m.results.failed[u.Name] })
	healthy, err := m.carryOver(ctx, b, &todo)
	if ctx.Err() != nil {
		return
	}
	m.note(todo.Units, healthy, err)
	m.giveBackAll(ctx, b, all, healthy)
	m.retire(ctx, b, healthy)
}

// carryOver carries out the plan of a batch on the target, and returns the units that are well
// there.
func (m *run) carryOver(ctx context.Context, b *batch, todo *restore.Plan) (healthy []restore.Unit,
	err error) {
	var mu sync.Mutex
	tuning := m.Tuning
	tuning.Canary, tuning.Observe = "", 0
	err = restore.Run(ctx, restore.RunOptions{
		Plan: todo, Contents: b.contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Writer: m.Target.Writer, Prober: m.Target.Prober, Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: tuning,
		Hooks: restore.Hooks{
			StepSuffix: b.suffix(), RequirePause: true, LeaveSharedPaused: true, ReleaseTogether: true,
			BeforeRelease: func(ctx context.Context, u restore.Unit) error {
				return m.handOver(ctx, u, b)
			},
			EpochMark: m.epochMark,
			Limit:     m.limit,
			OnFailed:  func(ctx context.Context, u restore.Unit) { m.giveBack(ctx, b, u) },
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
	})
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

// unpauseBlocked unpauses on the source the units of a batch that are blocked: nothing of them is
// on the target.
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
		if err := m.unpause(ctx, u.Name, false, catalog.UnitBlocked); err != nil {
			m.fail(ctx, u.Name, err)
			continue
		}
		m.Units[u.Name] = catalog.UnitBlocked
	}
}

// observe watches the Machines of all units that were retired on the source.
func (m *run) observe(ctx context.Context) error {
	for _, b := range m.batches {
		moved := b.Copy
		moved.Units = slices.DeleteFunc(slices.Clone(b.Copy.Units),
			func(u restore.Unit) bool { return !m.results.retired[u.Name] })
		if err := restore.Observe(ctx, restore.RunOptions{
			Plan: &moved, Contents: b.contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
			Kinds: m.Target.Kinds, Rows: m.Rows,
			Operation: m.Operation, Journal: m.Journal, Tuning: m.Tuning,
			Hooks: restore.Hooks{StepSuffix: b.suffix()},
		}); err != nil {
			return err
		}
	}
	return nil
}
