package move

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/task"
)

// This file lets batches overlap. While one is paused, nothing else is done: the pause is short.
// While it is not, the batches after it are locked and copied, and those before it pass post-flight
// and are retired.

// readyAhead is how many times Tuning.Concurrency units are made ready at most before they are
// paused, while there is nothing else to do: none of them is ready yet, or those that are released
// are not seen at work.
const readyAhead = 2

// pipeline is the way of units through a run: in groups they are made ready, in batches paused.
type pipeline struct {
	*run
	waiting [][]string    // groups that are not begun
	groups  []*readyGroup // those that were begun
	// coming counts the units of groups that were begun and have not arrived; arrived are those that
	// may be paused.
	coming   int
	arrivals chan arrival
	arrived  []arrival
	// unseen are the flights that nobody has seen at work, and unwell those that were seen at work,
	// and perhaps are well by now; seen is how many units were seen at work.
	unseen, unwell []*flight
	seen           int
	// lost counts the units of the last flights of which none came on; came says that one did before.
	lost  int
	came  bool
	tails task.Group // the flights
}

// readyGroup are units that are locked and copied together before they are paused: they share
// captures.
type readyGroup struct {
	look
	// nodes are the objects of units, as look shows them.
	nodes  map[string][]*graph.Node
	copied *snapshot.Contents // those of the pre-copy; may be nil
	around *neighbours        // as look shows them; may be nil
	seen   *snapshot.Snapshot // of which copied are the contents; may be nil
	// written is over once nothing but waits for acknowledgements is left to do for a unit.
	written *meeting
	work    task.Group
	// units are those that are not in a batch, and have not failed, in the order of the plan.
	units []string
}

// arrival is a unit of a group that may be paused, or has failed.
type arrival struct {
	unit  string
	ready bool
	at    time.Time
}

// beginBatches moves one batch after the other. When nothing comes on any more (stuck), the next
// units would most likely fail as well, and would be paused for nothing.
func (m *run) beginBatches(ctx context.Context, groups [][]string) {
	all := slices.Concat(groups...)
	p := &pipeline{run: m, waiting: groups, arrivals: make(chan arrival, len(all))}
	defer p.tails.Finish()
	defer m.rounds.gather(false)
	m.rounds.gather(true)
	size := 1 // of the first batch
	for p.makeReady(ctx, false); p.unitsLeft() && !m.enough(ctx) && p.haveRoom(ctx, size); {
		of, units := p.nextBatch(ctx, size)
		if len(units) > 0 {
			p.awaitCalm(ctx)
			lists := p.readAhead(ctx, of, units)
			flights := p.begin(ctx, of, units, lists)
			p.forget()
			units = slices.DeleteFunc(slices.Clone(units), p.hasLeft)
			if len(flights) == 0 && len(units) > 0 && p.stuck(len(units)) { // none could be paused
				break
			}
			p.unseen = append(p.unseen, flights...)
			size = m.batchSize()
		}
		if p.makeReady(ctx, false); len(units) == 0 && p.awaitsCanary() {
			break // it failed
		}
	}
	m.rounds.gather(false)
	for _, of := range p.groups {
		if err := of.work.Wait(); err != nil { // a panic
			m.fail(ctx, "", err)
		}
	}
	if p.unitsLeft() {
		m.unpauseOthers(ctx, lockStep) // before the flights end, which may take minutes
	}
}

// unitsLeft reports whether units were not paused that have not failed.
func (p *pipeline) unitsLeft() bool {
	return p.coming > 0 || len(p.arrived) > 0 || len(p.waiting) > 0
}

// makeReady locks and copies the next group, returns once it is written to the target, and reports
// whether it did. It does so before the last units that are ready are paused, and with idle, when
// there is nothing else to do, further ahead. Units that cannot be locked fail.
func (p *pipeline) makeReady(ctx context.Context, idle bool) bool {
	if len(p.waiting) == 0 || p.enough(ctx) || p.awaitsCanary() {
		return false
	}
	begun, most := p.coming+len(p.arrived), p.Tuning.Concurrency/2
	if idle {
		most = readyAhead*p.Tuning.Concurrency - len(p.waiting[0])
	}
	if begun > 0 && begun > most {
		return false
	}
	of := p.run.makeReady(ctx, p.waiting[0], p.arrivals)
	p.coming += len(p.waiting[0])
	p.groups, p.waiting = append(p.groups, of), p.waiting[1:]
	_ = of.written.over(ctx)
	return true
}

// awaitsCanary reports whether the canary was begun and is not retired yet.
func (p *pipeline) awaitsCanary() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Tuning.Canary != "" && len(p.groups) > 0 && !p.results.retired[p.Tuning.Canary] &&
		p.Units[p.Tuning.Canary] != catalog.UnitRolledBack // it had left before this run
}

// makeReady locks units, copies them, and then waits for the controllers that take long to
// acknowledge a pause, in a goroutine of its own. Each unit arrives once, ready or failed.
func (m *run) makeReady(ctx context.Context, units []string, arrivals chan<- arrival) *readyGroup {
	of := &readyGroup{written: newMeeting(units), units: slices.Clone(units),
		nodes: map[string][]*graph.Node{}}
	m.goTogether(units)
	of.work.Go(func() error {
		var mu sync.Mutex
		sent := map[string]bool{}
		arrive := func(a arrival) {
			mu.Lock()
			defer mu.Unlock()
			if !sent[a.unit] {
				sent[a.unit] = true
				arrivals <- a // has room for all units
			}
		}
		defer func() {
			for _, unit := range units {
				arrive(arrival{unit: unit})
			}
		}()
		defer of.written.end()
		of.look = m.lookFor(ctx, units)
		locked := m.all(ctx, units, func(unit string) (err error) {
			if err = m.lockUnit(ctx, unit, of.look); err == nil {
				err = m.find(ctx, of, unit)
			}
			if err == nil { // once other moves see the lock
				err = m.checkSuspended(ctx, unit)
			}
			return err
		})
		seen := m.lookAround(ctx, of, locked)
		if len(locked) > 0 && ctx.Err() == nil {
			of.copied = m.preCopy(ctx, locked, of.look, of.written)
		}
		if of.copied != nil && seen != nil {
			of.seen = seen.source
		}
		m.captures.dropContents(seen)
		of.written.end()
		m.all(ctx, locked, func(unit string) error {
			err := m.checkRemovable(ctx, unit)
			if err == nil {
				err = m.awaitFirst(ctx, m.known(of, unit))
			}
			if err == nil {
				arrive(arrival{unit: unit, ready: true})
			}
			return err
		})
		return nil
	})
	return of
}

// find notes the objects of a unit of a group.
func (m *run) find(ctx context.Context, of *readyGroup, unit string) error {
	_, nodes, err := m.sourceUnit(ctx, unit, of.look)
	m.know(of, unit, nodes)
	return err
}

// known returns the objects of a unit that its group knows.
func (m *run) known(of *readyGroup, unit string) []*graph.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return of.nodes[unit]
}

func (m *run) know(of *readyGroup, unit string, nodes []*graph.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of.nodes[unit] = nodes
}

// nextBatch waits for the next units that are ready, of one group: they share a snapshot. It takes
// them in the order of the plan, and waits for Tuning.Gather for one that is late. There are none
// when all that came have failed, or the run ends.
func (p *pipeline) nextBatch(ctx context.Context, size int) (of *readyGroup, units []string) {
	for p.coming > 0 {
		var late <-chan time.Time
		if len(p.arrived) > 0 {
			if of, units = p.inOrder(size); len(units) == min(size, len(of.units)) {
				break
			}
			late = time.After(time.Until(p.arrived[0].at.Add(p.Tuning.Gather)))
		}
		if !p.arrive(ctx, late) {
			break
		}
	}
	if of, units = p.inOrder(size); len(units) == 0 {
		of, units = p.inOrder(math.MaxInt) // the first ones are late
		units = units[:min(size, len(units))]
	}
	for _, unit := range units {
		p.drop(unit)
	}
	return of, units
}

// inOrder returns those of the first units of a group that are ready: of the first group that has
// one.
func (p *pipeline) inOrder(first int) (of *readyGroup, units []string) {
	ready := func(unit string) bool {
		return slices.ContainsFunc(p.arrived, func(a arrival) bool { return a.unit == unit })
	}
	for _, g := range p.groups {
		if slices.ContainsFunc(g.units, ready) {
			units = slices.Clone(g.units[:min(first, len(g.units))])
			return g, slices.DeleteFunc(units, func(unit string) bool { return !ready(unit) })
		}
	}
	return nil, nil
}

// drop takes a unit that has failed, or is in a batch, out of its group.
func (p *pipeline) drop(unit string) {
	p.arrived = slices.DeleteFunc(p.arrived, func(a arrival) bool { return a.unit == unit })
	for _, g := range p.groups {
		g.units = slices.DeleteFunc(g.units, func(name string) bool { return name == unit })
	}
}

// forget frees what is known of groups of which no unit is left.
func (p *pipeline) forget() {
	for _, g := range p.groups {
		if len(g.units) == 0 {
			g.copied, g.nodes, g.around, g.seen, g.look = nil, nil, nil, nil, look{}
		}
	}
}

// idleAfter is how long none is ready before further groups are made ready. A unit that is ready at
// once goes first: those that come after it are made ready while the target begins to work on it.
const idleAfter = time.Second / 2

// arrive waits for the next unit that is ready, and for all others that are by then. It reports
// false when none came before late or the end of the run. Without late, and when none comes soon,
// further groups are made ready.
func (p *pipeline) arrive(ctx context.Context, late <-chan time.Time) bool {
	var idle <-chan time.Time
	if late == nil {
		idle = time.After(idleAfter)
	}
	note := func(a arrival) {
		if p.coming--; !a.ready {
			p.drop(a.unit)
			p.forget()
			return
		}
		a.at = time.Now()
		p.arrived = append(p.arrived, a)
	}
	for none := true; none; {
		select {
		case a := <-p.arrivals:
			note(a)
			none = false
		case <-idle:
			for len(p.arrivals) == 0 && p.makeReady(ctx, true) {
			}
		case <-late:
			return false
		case <-ctx.Done():
			return false
		}
	}
	for len(p.arrivals) > 0 {
		note(<-p.arrivals)
	}
	return true
}

// plan plans the batch of units that are paused, and returns nil when it cannot. The snapshot and
// the plan of a batch are no step: they change neither side. A run that dies before the batch is
// stored plans it again.
func (p *pipeline) plan(ctx context.Context, paused []string, of *readyGroup,
	lists *ahead) *batch {
	number := len(p.batches) + 1
	limited, cancel := p.limitBatch(ctx, paused)
	defer cancel()
	var b *batch
	err := task.Call(func() (err error) {
		b, err = p.planBatch(limited, ctx, number, paused, of, lists)
		return err
	})
	if err == nil {
		return b
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = context.Cause(limited)
	}
	_, readErr := p.Catalog.BatchPlan(ctx, p.Journal.Operation(), batchName(number))
	for _, unit := range paused {
		if p.hasFailed(unit) {
			continue // alone, and it was given back
		}
		p.fail(ctx, unit, err)
		if errors.Is(readErr, catalog.ErrNotFound) {
			p.unpauseSource(ctx, unit)
		}
	}
	return nil
}

// unpauseOthers gives back the units that this run, or an earlier one, has locked or paused, by the
// step of that, and that no batch has. One that failed stays as it is: it is unpaused already, or
// its copy could not be removed.
func (m *run) unpauseOthers(ctx context.Context, step func(unit string) catalog.Step) {
	for _, u := range m.Plan.Copy.Units {
		state, err := m.Journal.State(ctx, step(u.Name))
		if ctx.Err() != nil {
			return
		}
		if err == nil && (state == "" || state == catalog.StepUndone) || m.over(u.Name) ||
			m.hasFailed(u.Name) || slices.ContainsFunc(m.batches, func(b *batch) bool {
			return slices.ContainsFunc(m.unitsOf(b),
				func(of restore.Unit) bool { return of.Name == u.Name && !of.Blocked })
		}) {
			continue
		}
		m.unpauseSource(ctx, u.Name)
	}
}
