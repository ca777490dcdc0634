package move

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/task"
)

// This file lets batches overlap. While one is paused, nothing else is done: the pause is short.
// While it is not, the batches after it are locked and copied, and those before it pass post-flight
// and are retired.

// readyAhead is how many times Tuning.Concurrency units are made ready at most before they are
// paused, while the first of them wait for their slowest controllers.
const readyAhead = 2

// pipeline is the way of batches through a run.
type pipeline struct {
	*run
	waiting [][]string    // not begun
	ready   []*readyBatch // locked, or about to be
	// unseen are the flights that nobody has seen at work, and unwell those that were seen at work,
	// and perhaps are well by now; seen is how many units were seen at work.
	unseen, unwell []*flight
	seen           int
	tails          task.Group // the flights
}

// readyBatch are the units of a batch that is not paused yet.
type readyBatch struct {
	planned []string // of the batch
	units   []string // those that are locked
	since   time.Time
	before  *snapshot.Contents // of the pre-copy; may be nil
	// written is over once nothing but waits for acknowledgements is left to do for a unit.
	written *meeting
	ready   chan struct{} // closed once it may be paused
	work    task.Group
}

// flight is a batch whose units were paused.
type flight struct {
	units []string
	// released is over once no unit of the batch is paused any more: it is handed over, or has
	// failed.
	released *meeting
	// verified is over once each unit is about to be handed over, or has failed.
	verified *meeting
	// atWork is over once the target's controllers work on each unit, or it has failed.
	atWork *meeting
	// well is over once each unit has passed post-flight but for what is reconciled seldom, or it has
	// failed.
	well  *meeting
	ended chan struct{}
}

func newFlight(units []string) *flight {
	return &flight{units: units, released: newMeeting(units), verified: newMeeting(units),
		atWork: newMeeting(units), well: newMeeting(units), ended: make(chan struct{})}
}

// beginBatches moves one batch after the other. When a batch fails as a whole, the next one would
// most likely fail as well, and its units would be paused for nothing.
func (m *run) beginBatches(ctx context.Context, batches [][]string) {
	p := &pipeline{run: m, waiting: batches}
	defer p.tails.Finish()
	p.makeReady(ctx)
	for len(p.ready) > 0 && !m.enough(ctx) && p.haveRoom(ctx, len(p.ready[0].planned)) {
		now := p.ready[0]
		p.ready = p.ready[1:]
		m.awaitReady(ctx, now)
		p.unseen = append(p.unseen, p.begin(ctx, now))
		p.makeReady(ctx)
	}
	if len(p.ready) > 0 {
		for _, r := range p.ready {
			m.awaitReady(ctx, r)
		}
		m.unpauseOthers(ctx, lockStep) // before the flights end, which may take minutes
	}
}

// haveRoom waits until so many further units may be paused. Of those that are released and not seen
// at work there may be one more than were seen at work before, up to Tuning.Concurrency, and twice
// as many may be at work and not well. So what is wrong with the controllers of the target shows on
// few workload clusters. A canary is retired first. haveRoom reports false when a batch failed as a
// whole.
func (p *pipeline) haveRoom(ctx context.Context, units int) bool {
	for len(p.unseen) > 0 && count(p.unseen)+units > min(p.seen+1, p.Tuning.Concurrency) {
		f := p.unseen[0]
		_ = f.atWork.over(ctx)
		p.unseen, p.unwell = p.unseen[1:], append(p.unwell, f)
		p.seen += len(f.units)
		canary := slices.Contains(f.units, p.Tuning.Canary)
		if (canary || !p.gotTo(f, p.results.atWork)) && !p.gotOn(ctx, f) {
			return false
		}
	}
	for len(p.unwell) > 0 && count(p.unwell)+units > 2*p.Tuning.Concurrency {
		f := p.unwell[0]
		_ = f.well.over(ctx)
		p.unwell = p.unwell[1:]
		if !p.gotTo(f, p.results.well) && !p.gotOn(ctx, f) {
			return false
		}
	}
	return true
}

func count(flights []*flight) (units int) {
	for _, f := range flights {
		units += len(f.units)
	}
	return units
}

func (m *run) awaitReady(ctx context.Context, r *readyBatch) {
	if err := r.work.Wait(); err != nil { // a panic
		m.fail(ctx, "", err)
	}
}

// makeReady locks and copies the next two batches, and further ones while the first of them still
// waits for acknowledgements. It returns once they are written to the target. Units that cannot be
// locked fail.
func (p *pipeline) makeReady(ctx context.Context) {
	ahead := 0
	for _, r := range p.ready {
		ahead += len(r.planned)
	}
	for len(p.waiting) > 0 && !p.enough(ctx) {
		ahead += len(p.waiting[0])
		if len(p.ready) > 1 && (isClosed(p.ready[0].ready) || ahead > readyAhead*p.Tuning.Concurrency) {
			break
		}
		r := p.run.makeReady(ctx, p.waiting[0])
		p.ready, p.waiting = append(p.ready, r), p.waiting[1:]
		_ = r.written.over(ctx)
	}
}

// makeReady locks units, copies them, and then waits for the controllers that take long to
// acknowledge a pause, in a goroutine of its own.
func (m *run) makeReady(ctx context.Context, units []string) *readyBatch {
	since := time.Now()
	r := &readyBatch{planned: units, since: since, written: newMeeting(units),
		ready: make(chan struct{})}
	m.goTogether(units)
	r.work.Go(func() error {
		defer close(r.ready)
		defer r.written.end()
		r.units = m.all(ctx, units, func(unit string) error { return m.lockUnit(ctx, unit, since) })
		if len(r.units) > 0 && ctx.Err() == nil {
			r.before = m.preCopy(ctx, r.units, since, r.written)
		}
		r.written.end()
		r.units = m.all(ctx, r.units, func(unit string) error {
			_, nodes, err := m.sourceUnit(ctx, unit, since)
			if err != nil {
				return err
			}
			return m.awaitFirst(ctx, nodes)
		})
		return nil
	})
	return r
}

// begin pauses units that are ready, plans their batch, copies what has changed, and returns once
// no unit of the batch is paused any more; the rest goes on in tails. Units that cannot be paused,
// or whose batch cannot be planned, are unpaused: the source reconciles them while the cause is
// fixed, and a resume begins from scratch with them.
func (p *pipeline) begin(ctx context.Context, ready *readyBatch) *flight {
	p.quiet.Lock()
	defer p.quiet.Unlock()
	if p.enough(ctx) { // since it was made ready
		f := newFlight(nil)
		f.end()
		return f
	}
	together := newPausing(ready.units)
	f := newFlight(p.all(ctx, ready.units, func(unit string) error {
		return p.pause(ctx, unit, ready.since, together)
	}))
	var b *batch
	if len(f.units) > 0 && ctx.Err() == nil {
		b = p.plan(ctx, f.units, ready.before)
	}
	if b == nil {
		f.end()
		return f
	}
	p.tails.Go(func() error {
		defer f.end()
		err := task.Call(func() error { p.copyAndHandOver(ctx, b, f); return nil })
		if err == nil {
			return nil
		}
		p.fail(ctx, "", err) // a panic
		p.mu.Lock()
		p.results.stopped = true
		p.mu.Unlock()
		return task.Call(func() error { p.giveBackAll(ctx, b, b.Copy.Units, nil); return nil })
	})
	_ = f.released.over(ctx)
	return f
}

// plan plans the batch of units that are paused, and returns nil when it cannot. The snapshot and
// the plan of a batch are no step: they change neither side. A run that dies before the batch is
// stored plans it again.
func (p *pipeline) plan(ctx context.Context, paused []string, before *snapshot.Contents) *batch {
	number := len(p.batches) + 1
	limited, cancel := p.limitBatch(ctx, paused)
	defer cancel()
	var b *batch
	err := task.Call(func() (err error) {
		b, err = p.planBatch(limited, number, paused, before)
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
		p.fail(ctx, unit, err)
		if errors.Is(readErr, catalog.ErrNotFound) {
			p.unpauseSource(ctx, unit)
		}
	}
	return nil
}

// meetWait is how long a unit that is verified waits for the others of its batch.
const meetWait = time.Second

// meet waits for the others that are about to be handed over, for a short time, and returns a
// moment after the call: a capture after it serves all of them.
func (f *flight) meet(ctx context.Context, unit string) time.Time {
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, meetWait)
	defer cancel()
	if f.verified.wait(ctx, unit) != nil {
		return time.Now()
	}
	if at := f.verified.since(); at.After(now) {
		return at
	}
	return now
}

// leave takes a unit that has failed out of a flight.
func (f *flight) leave(unit string) {
	f.released.leave(unit)
	f.verified.leave(unit)
	f.atWork.leave(unit)
	f.well.leave(unit)
}

// leaveOthers takes all units but some out of a flight.
func (f *flight) leaveOthers(stay []restore.Unit) {
	for _, unit := range f.units {
		if !slices.ContainsFunc(stay, func(u restore.Unit) bool { return u.Name == unit }) {
			f.leave(unit)
		}
	}
}

// passed ends the meetings of a flight: its units are on the target, or have failed.
func (f *flight) passed() {
	f.released.end()
	f.verified.end()
	f.atWork.end()
	f.well.end()
}

// end ends a flight that has nothing more to do.
func (f *flight) end() {
	f.passed()
	close(f.ended)
}

// gotTo reports whether a unit of a flight is among those that came to a point.
func (m *run) gotTo(f *flight, point map[string]bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(f.units, func(unit string) bool { return point[unit] })
}

// gotOn waits for the end of a flight, and reports whether at least one unit of it was retired, or
// is blocked by a shared object, which says nothing of the next batch.
func (m *run) gotOn(ctx context.Context, f *flight) bool {
	select {
	case <-f.ended:
	case <-ctx.Done():
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(f.units, func(unit string) bool {
		return m.results.retired[unit] || m.results.byShared[unit]
	})
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
			m.hasFailed(u.Name) || slices.ContainsFunc(m.batches,
			func(b *batch) bool { return slices.Contains(b.units(), u.Name) }) {
			continue
		}
		m.unpauseSource(ctx, u.Name)
	}
}
