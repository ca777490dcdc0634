package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// DefaultConcurrency is how many workload clusters are paused, or released on the target and not
// yet seen at work there, when Tuning names no number.
const DefaultConcurrency = 8

// The units of a batch are paused together: one for each fleetOfOne units of the move.
const (
	fleetOfOne   = 25
	mostTogether = 8
)

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
	rounds   *rounds
	began    time.Time
	batches  []*batch
	pre      preCopies
	pauser   *fence.Pauser // of the source
	// policy and returns are the admission policies of the source and of the target.
	policy, returns *fence.Policy
	// namespaces are those in which the plan has objects of each unit. The run has the plan of units
	// without their objects: their batches have newer ones.
	namespaces map[string][]string
	// switches are the objects of each unit in the plan that have a switch of their own.
	switches map[string][]object.Ref
	// refused are the units of which the target refuses an object before they are paused.
	refused map[string]bool
	// accepted are the units whose state on the target the operator accepts.
	accepted map[string]bool

	// seldom are the controllers that reconcile seldom and were seen at work (restore.Hooks.Seldom).
	seldom sync.Map

	// quiet is locked while a batch is paused, and others are retired under its read lock: that would
	// make the pause longer, and would change the source below the snapshot of the batch.
	quiet sync.RWMutex

	mu      sync.Mutex
	results results
	// asked are the objects about which this run has asked the target, by unit.
	asked map[string][]object.Ref
	// pausedAt is when this run paused a unit.
	pausedAt map[string]time.Time
	// switched are objects of each unit of which this run may have set the switches, by UID.
	switched map[string]map[string]*graph.Node
	// together are the units of the batch of each unit.
	together map[string][]string
	// returned are the units of stored batches that were given back, and epochs the epochs of the
	// records that this wrote.
	returned map[string]bool
	epochs   map[string]int64
	// released are the UIDs of Clusters on the target, of the units that are well there.
	released map[string]string
	// unarmed are the units for which the policy of the source could not be armed; "" stands for all.
	unarmed map[string]bool
}

// results collects how the units of this run ended.
type results struct {
	failed map[string]bool
	// byShared are the failed units that a shared object blocks.
	byShared map[string]bool
	// atWork are released on the target, whose controllers are at work; well are those that have
	// passed post-flight but for what is reconciled seldom.
	atWork  map[string]bool
	well    map[string]bool
	retired map[string]bool
	// left are released on the target, and left on the source, which does not answer.
	left    map[string]bool
	gone    map[string]bool // deleted on the source before their batches were planned
	stopped bool            // Machines came or went after a release
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
		captures: capturesOf(o.Source, capture.Narrow{}), began: time.Now(),
		policy:     policyOf(o.Source, o.Journal.Alive),
		returns:    policyOf(o.Target, o.Journal.Alive),
		namespaces: map[string][]string{}, switches: map[string][]object.Ref{},
		asked:   map[string][]object.Ref{},
		refused: map[string]bool{}, accepted: map[string]bool{},
		pausedAt: map[string]time.Time{}, returned: map[string]bool{}, together: map[string][]string{},
		switched: map[string]map[string]*graph.Node{},
		unarmed:  map[string]bool{},
		released: map[string]string{},
		epochs:   map[string]int64{}, pre: preCopies{uids: map[string]map[object.Ref]string{},
			removable: map[object.Ref]bool{}},
		results: results{failed: map[string]bool{}, byShared: map[string]bool{},
			atWork: map[string]bool{}, well: map[string]bool{}, retired: map[string]bool{},
			left: map[string]bool{}, gone: map[string]bool{}}}
	m.pauser = fence.NewPauser(o.Source.Reader, o.Source.Writer, o.Source.Kinds, o.Rows).WithLock(
		fence.Lock{Text: m.lock(), May: m.maySwitch})
	m.rounds = newRounds(m.Tuning)
	if m.Units == nil {
		m.Units = map[string]catalog.UnitState{}
	}
	for _, unit := range op.Accepted {
		m.accepted[unit] = true
	}
	for unit, state := range m.Units {
		if state == catalog.UnitRetired {
			m.results.retired[unit] = true
		}
	}
	m.captures.prepare = func(g *graph.Graph) (*graph.Graph, bool) {
		m.keepShared(g)
		return g, true
	}
	if attempt == 1 { // the plan was made for it; else it may be days old
		m.noteAsked(&m.Plan.Copy)
	}
	m.leaveObjects()
	m.Ends = m.asksOnce()
	if err := m.loadPreCopies(ctx); err != nil {
		return nil, err
	}
	return m, m.loadBatches(ctx)
}

// execute is Resume without the record of the direction. seen is the capture from which the plan
// was just made; nil when it was not.
func execute(ctx context.Context, o Options, stored *StoredPlan, seen *sourceCapture) error {
	m, err := newRun(ctx, o, stored)
	if err != nil {
		return err
	}
	if seen != nil {
		m.began = seen.began
		m.captures.add(seen)
	}
	if err := m.suspendGitOps(ctx); err != nil {
		return err
	}
	if len(m.batches) > 0 {
		// A rollback without the store trusts the locks of those runs only that the store knows of.
		if err := m.Journal.Sync(ctx); err != nil {
			return err
		}
		// Before the first batch nothing of a pool is moved.
		if err := m.pausePools(ctx); err != nil {
			m.fail(ctx, "", err) // what is handed over is released; no unit is retired
		}
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
	if ctx.Err() == nil {
		err = errors.Join(err, m.unpauseLeft(ctx), m.givePoolsBack(ctx, m.isBack), m.reportKept(ctx),
			m.reportPools(ctx), m.endSuspensions(ctx))
	}
	if err != nil {
		m.fail(ctx, "", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if units := m.givenBack(); len(units) > 0 {
		m.fail(ctx, "", &CopiesLeftError{Target: m.Target.Name, Units: units})
	}
	left, blocked := m.left(), m.blocked()
	if m.results.first == nil && left == 0 {
		err := errors.Join(m.reportNotMoved(ctx), m.observe(ctx))
		if incomplete, ok := errors.AsType[*restore.IncompleteError](err); ok {
			incomplete.Blocked = blocked
		}
		if err != nil || blocked == 0 {
			return err
		}
	}
	return &restore.IncompleteError{Failed: len(m.results.failed), Blocked: blocked,
		Left: left, First: m.results.first, Stopped: m.results.stopped}
}

// moveBatches moves the units of the batches that earlier runs planned, and then all others. An
// error is that of ctx.
func (m *run) moveBatches(ctx context.Context) error {
	for _, b := range m.batches {
		m.copyAndHandOver(ctx, b, newFlight(b.units()))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if m.results.stopped {
			break
		}
	}
	if !m.enough(ctx) {
		if err := m.prepareBatches(ctx); err != nil {
			m.fail(ctx, "", err) // the batches would fail for the same reason, and be paused for nothing
		} else {
			m.beginBatches(ctx, m.unplanned())
		}
	}
	m.unpauseOthers(ctx, lockStep)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// prepareBatches does what comes before the first pause of a unit.
func (m *run) prepareBatches(ctx context.Context) error {
	// What an earlier run has begun to copy was asked about then.
	units := slices.DeleteFunc(slices.Concat(m.unplanned()...),
		func(unit string) bool { return len(m.preCopiesOf([]string{unit})) > 0 })
	if err := m.dryRun(ctx, units); err != nil {
		return err
	}
	return errors.Join(m.pauseShared(ctx), m.pausePools(ctx))
}

// over reports whether nothing is left to do for a unit but, for one that was given back, to remove
// its copy.
func (m *run) over(unit string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.Units[unit]
	return m.results.retired[unit] || m.results.gone[unit] || state == catalog.UnitRolledBack ||
		state == catalog.UnitBlocked || state == catalog.UnitGivenBack
}

// unplanned divides the units that no batch holds yet into groups that are made ready together:
// first the canary or another one alone, and in each further group twice as many, up to as many as
// may be in flight. So the first ones are soon paused, and the next ones are made ready while the
// target begins to work on them.
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
	var groups [][]string
	size := 1
	if canary != nil {
		groups, size = append(groups, canary), 2
	}
	for len(names) > 0 {
		size = min(size, m.Tuning.Concurrency, len(names))
		groups, names, size = append(groups, names[:size]), names[size:], 2*size
	}
	return groups
}

// batchSize is how many units are paused together, after the first one, which is alone. A small
// fleet has short pauses, and a large one few snapshots.
func (m *run) batchSize() int {
	size := min(max(len(m.Plan.Copy.Units)/fleetOfOne, 1), mostTogether)
	return min(cmp.Or(m.Tuning.Together, size), m.Tuning.Concurrency)
}

// enough reports whether no further batch is begun: the run is cancelled, the canary failed or
// left, Tuning.MaxFailures is reached, or Machines came or went after a release. Units that a
// shared object blocks do not count as failures.
func (m *run) enough(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	canary := m.Tuning.Canary != "" && (m.results.failed[m.Tuning.Canary] ||
		m.refused[m.Tuning.Canary] || m.Units[m.Tuning.Canary] == catalog.UnitBlocked ||
		m.results.gone[m.Tuning.Canary])
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
		if !m.isBlocked(u) && !m.over(u.Name) && !m.hasFailed(u.Name) {
			n++
		}
	}
	return n
}

func (m *run) hasFailed(unit string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results.failed[unit]
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
