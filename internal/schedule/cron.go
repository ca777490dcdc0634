package schedule

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/robfig/cron/v3"
)

// ParseCron reads a cron expression: five fields, "@daily" and the like, or "@every 30s". The
// prefix "CRON_TZ=Zone " names a time zone; the default is the local one. An expression that is
// never due is an error. Daylight saving makes it lose no time and repeat none, see wallClock.
func ParseCron(expression string) (_ cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser does not check everything
			err = fmt.Errorf("%q is not a cron expression", expression)
		}
	}()
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("%q is not a cron expression: %w", expression, err)
	}
	if s.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("%q is never due", expression)
	}
	if spec, ok := s.(*cron.SpecSchedule); ok {
		return wallClock{spec}, nil
	}
	return s, nil
}

// The bits of all values of two fields of a cron expression.
const (
	allHours   = 1<<24 - 1
	allMinutes = 1<<60 - 1
)

// wallClock is a cron expression with the rules of cron(8) for a change of the clock by daylight
// saving. robfig/cron v3 (spec.go, Next) has none: it skips a time that the change leaves out, so
// that a daily 02:30 has no run that day, and it returns a time twice that the change repeats.
//
// The rules concern expressions that are not due in every hour: those that are lose and repeat no
// time, since their next one is as far away as ever.
type wallClock struct{ *cron.SpecSchedule }

// Next returns the first time after t at which the expression is due. Times that a change of the
// clock leaves out are due once, at the moment of the change. A time that a change repeats is due
// the first time only, unless the expression is due several times in an hour.
func (w wallClock) Next(t time.Time) time.Time {
	next := w.SpecSchedule.Next(t)
	if w.Hour&allHours == allHours {
		return next
	}
	for !next.IsZero() && w.repeated(next) {
		next = w.SpecSchedule.Next(next)
	}
	if change := w.leftOut(t, next); !change.IsZero() {
		return change
	}
	return next
}

// local returns t in the zone of the expression. cron.SpecSchedule takes that of t for time.Local.
func (w wallClock) local(t time.Time) time.Time {
	if w.Location == time.Local {
		return t
	}
	return t.In(w.Location)
}

// repeated reports whether the wall clock showed the time of t once before.
func (w wallClock) repeated(t time.Time) bool {
	t = w.local(t)
	change, _ := t.ZoneBounds()
	if change.IsZero() || bits.OnesCount64(w.Minute&allMinutes) > 1 {
		return false
	}
	return t.Sub(change) < -advance(change)
}

// leftOut returns the first change of the clock between t and next, both exclusive, that leaves out
// a time at which the expression would be due; zero when there is none.
func (w wallClock) leftOut(t, next time.Time) time.Time {
	for at := w.local(t); ; {
		_, change := at.ZoneBounds()
		if change.IsZero() || !change.Before(next) {
			return time.Time{}
		}
		if gap := advance(change); gap > 0 {
			// What is left out does exist in UTC.
			utc := *w.SpecSchedule
			utc.Location = time.UTC
			_, offset := change.Add(-time.Second).Zone()
			first := change.UTC().Add(time.Duration(offset) * time.Second)
			due := utc.Next(first.Add(-time.Second))
			if !due.IsZero() && due.Before(first.Add(gap)) {
				return change.In(t.Location())
			}
		}
		at = change
	}
}

// advance returns by how much the clock is put forward at a change of its zone.
func advance(change time.Time) time.Duration {
	_, before := change.Add(-time.Second).Zone()
	_, after := change.Zone()
	return time.Duration(after-before) * time.Second
}
