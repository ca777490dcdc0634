package move

import (
	"context"
	"slices"
	"time"
)

// This file decides when the next batch may be paused.

// ramp is how many more units may be released and not seen at work for each one that was: after the
// first one four.
const ramp = 3

// haveRoom waits until so many further units may be paused. The first one is alone until it was
// seen at work. Then more and more may be released and not seen at work (ramp), up to
// Tuning.Concurrency, and twice as many may be at work and not well. So what is wrong with the
// controllers of the target shows on few workload clusters. A canary is retired first. haveRoom
// reports false when nothing comes on.
func (p *pipeline) haveRoom(ctx context.Context, units int) bool {
	for len(p.unseen) > 0 && count(p.unseen)+units > min(ramp*p.seen+1, p.Tuning.Concurrency) {
		f := p.unseen[0]
		for !f.atWork.isOver() && p.makeReady(ctx, true) { // else both sides would be idle
		}
		_ = f.atWork.over(ctx)
		p.unseen = p.unseen[1:]
		p.seen += len(f.units)
		canary := slices.Contains(f.units, p.Tuning.Canary)
		if !canary && p.gotTo(f, p.results.atWork) || p.gotOn(ctx, f) {
			p.lost, p.came, p.unwell = 0, true, append(p.unwell, f)
		} else if p.stuck(len(f.units)) {
			return false
		}
	}
	for len(p.unwell) > 0 && count(p.unwell)+units > 2*p.Tuning.Concurrency {
		f := p.unwell[0]
		_ = f.well.over(ctx)
		p.unwell = p.unwell[1:]
		if !p.gotTo(f, p.results.well) && !p.gotOn(ctx, f) && p.stuck(len(f.units)) {
			return false
		}
	}
	return true
}

// mostCalm is how long the next batch waits at most until the target has acknowledged the release
// of the last one, although there is room: the controllers of both sides are busy until then, so
// that its pause would be longer.
const mostCalm = 3 * time.Second

// awaitCalm waits until the target has acknowledged the release of the last batch, for mostCalm at
// most.
func (p *pipeline) awaitCalm(ctx context.Context) {
	if len(p.unseen) > 0 {
		ctx, cancel := context.WithTimeout(ctx, mostCalm)
		defer cancel()
		_ = p.unseen[len(p.unseen)-1].acknowledged.over(ctx)
	}
}

// mostLost is how many units in a row may fail, while others came on before.
const mostLost = 1

// stuck counts the units of a batch of which none came on, and reports whether no further units are
// paused: the first ones failed, or more than mostLost in a row.
func (p *pipeline) stuck(units int) bool {
	p.lost += units
	return !p.came || p.lost > mostLost
}

func count(flights []*flight) (units int) {
	for _, f := range flights {
		units += len(f.units)
	}
	return units
}
