package move

import (
	"context"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/task"
)

// begin pauses units that are ready, all at once, and carries them over in batches: those that have
// acknowledged the pause, and are late by no more than Tuning.Gather, are one. So controllers that
// are slow with one unit do not prolong the pause of the others. It returns once no unit is paused
// any more; the rest goes on in tails. Units that cannot be paused, or whose batch cannot be
// planned, are unpaused: the source reconciles them while the cause is fixed, and a resume begins
// from scratch with them.
func (p *pipeline) begin(ctx context.Context, of *readyGroup, units []string,
	lists *ahead) (flights []*flight) {
	p.quiet.Lock()
	defer p.quiet.Unlock()
	if p.enough(ctx) { // since it was made ready
		return nil
	}
	acknowledged := p.pauseAll(ctx, of, units)
	for first := range acknowledged {
		paused := p.gather(first, acknowledged)
		if len(flights) > 0 && ctx.Err() == nil && p.enough(ctx) { // since the others were paused
			for _, unit := range paused {
				p.unpauseSource(ctx, unit)
			}
			continue
		}
		flights = append(flights, p.carry(ctx, of, paused, lists))
		lists = nil // this batch creates shared objects that the next one may move as well
	}
	for _, f := range flights {
		_ = f.released.over(ctx)
	}
	return flights
}

// pauseAll pauses units of a group, all at once. The channel receives each one that has
// acknowledged the pause, and is closed once the others have failed, and are at work on the source.
func (p *pipeline) pauseAll(ctx context.Context, of *readyGroup, units []string) <-chan string {
	p.goTogether(units)
	together, acknowledged := newMeeting(units), make(chan string, len(units))
	p.tails.Go(func() error {
		defer close(acknowledged)
		p.all(ctx, units, func(unit string) error {
			err := p.pause(ctx, unit, of, together)
			if err == nil {
				acknowledged <- unit
			}
			return err
		})
		return nil
	})
	return acknowledged
}

// gather returns a unit and those that follow it within Tuning.Gather, sorted.
func (p *pipeline) gather(first string, acknowledged <-chan string) []string {
	units, late := []string{first}, time.After(p.Tuning.Gather)
	for more := true; more; {
		select {
		case unit, any := <-acknowledged:
			if more = any; any {
				units = append(units, unit)
			}
		case <-late:
			more = false
		}
	}
	slices.Sort(units)
	return units
}

// carry plans the batch of units that are paused. In tails, it copies what has changed, and goes on
// to the end.
func (p *pipeline) carry(ctx context.Context, of *readyGroup, paused []string,
	lists *ahead) *flight {
	p.goTogether(paused)
	f := newFlight(paused)
	var b *batch
	if ctx.Err() == nil {
		b = p.plan(ctx, paused, of, lists)
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
	return f
}
