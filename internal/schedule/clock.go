package schedule

import (
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// clockTolerance is how far a recorded time may lie ahead of the clock. Time servers correct a
// clock by less than that without notice, and a run is never delayed by more.
const clockTolerance = 5 * time.Minute

// now returns the wall clock time. Times without a monotonic reading are compared with recorded
// ones.
func (r *Scheduler) now() time.Time {
	if r.Now != nil {
		return r.Now().Round(0)
	}
	return time.Now().Round(0)
}

// correctClocks corrects the schedules whose recorded times the clock has not reached: it was ahead
// when they were recorded. Without the correction such a schedule would be due, and overdue, only
// when the clock gets there, perhaps in years.
func (r *Scheduler) correctClocks(now time.Time) {
	for _, d := range r.list {
		r.mu.Lock()
		recorded, late := d.recordedAhead(now), d.dueTooLate(now)
		ahead := max(d.state.LastRun.Sub(now), d.state.LastSuccess.Sub(now), d.due.Sub(now))
		r.mu.Unlock()
		if !recorded && !late {
			continue
		}
		if recorded {
			r.record(d, func(s *catalog.ScheduleState) {
				s.LastRun, s.LastSuccess = reached(s.LastRun, now), reached(s.LastSuccess, now)
				s.Seen = reached(s.Seen, now)
			})
		}
		r.mu.Lock()
		d.fresh.good = reached(d.fresh.good, now)
		if d.dueTooLate(now) {
			d.due, d.retry = d.next(now), false
		}
		lastSuccess, due := d.state.LastSuccess, d.due
		r.mu.Unlock()
		r.Metrics.ClockWentBack(d.Name, lastSuccess)
		r.Log.Warn("the clock went back: times of the schedule that it has not reached count as now",
			"schedule", d.Name, "ahead", ahead, "due", due)
	}
}

// recordedAhead reports whether the clock has not reached a time of the recorded state.
func (d *scheduled) recordedAhead(now time.Time) bool {
	limit := now.Add(clockTolerance)
	return d.state.LastRun.After(limit) || d.state.LastSuccess.After(limit) ||
		d.state.Seen.After(limit)
}

// dueTooLate reports whether the schedule is due later than it can be by its expression and its
// jitter.
func (d *scheduled) dueTooLate(now time.Time) bool {
	return d.due.After(d.cron.Next(now).Add(d.interval(now)))
}

// reached returns t, or now when the clock has not reached t.
func reached(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
