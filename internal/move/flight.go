package move

import (
	"context"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/restore"
)

// flight is a batch whose units were paused.
type flight struct {
	units []string
	// released is over once no unit of the batch is paused any more: it is released on the target,
	// or has failed.
	released *meeting
	// verified is over once each unit is about to be handed over, or has failed.
	verified *meeting
	// acknowledged is over once the target's controllers have acknowledged the release of each unit,
	// or it has failed.
	acknowledged *meeting
	// atWork is over once the target's controllers work on each unit, or it has failed.
	atWork *meeting
	// well is over once each unit has passed post-flight but for what is reconciled seldom, or it has
	// failed.
	well  *meeting
	ended chan struct{}
}

func newFlight(units []string) *flight {
	return &flight{units: units, released: newMeeting(units), verified: newMeeting(units),
		acknowledged: newMeeting(units), atWork: newMeeting(units), well: newMeeting(units),
		ended: make(chan struct{})}
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
	f.acknowledged.leave(unit)
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
	f.acknowledged.end()
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
