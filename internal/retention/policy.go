package retention

import (
	"errors"
	"fmt"
	"time"
)

// Policy is the retention rules for the snapshots of one source. A snapshot that matches any rule
// stays. Counts are of hours, days, weeks (from Monday) or months in UTC that have snapshots; the
// newest snapshot of each stays.
type Policy struct {
	Last, Hourly, Daily, Weekly, Monthly int
	// Within retains snapshots that are at most that much older than the newest.
	Within time.Duration
}

// IsZero reports whether there is no rule. Snapshots without an expiry then stay for ever.
func (p Policy) IsZero() bool { return p == Policy{} }

// Check returns an error for a negative rule.
func (p Policy) Check() error {
	for _, r := range p.rules() {
		if r.count < 0 {
			return fmt.Errorf("keep-%s is negative", r.name)
		}
	}
	if p.Within < 0 {
		return errors.New("keep-within is negative")
	}
	return nil
}

// countRule retains the newest snapshot of each of the newest count periods.
type countRule struct {
	name  string
	count int
	// period names the hour, day, ... of a time; "" makes every snapshot a period of its own.
	period func(time.Time) string
}

func (p Policy) rules() []countRule {
	layout := func(l string) func(time.Time) string {
		return func(t time.Time) string { return t.UTC().Format(l) }
	}
	week := func(t time.Time) string {
		year, week := t.UTC().ISOWeek()
		return fmt.Sprintf("%04d-W%02d", year, week)
	}
	return []countRule{
		{"last", p.Last, func(time.Time) string { return "" }},
		{"hourly", p.Hourly, layout("2006-01-02T15")},
		{"daily", p.Daily, layout(time.DateOnly)},
		{"weekly", p.Weekly, week},
		{"monthly", p.Monthly, layout("2006-01")},
	}
}

// Match returns, for each snapshot time, the rules that retain the snapshot, such as
// "daily 2026-01-02"; none when no rule does. times are sorted newest first.
func (p Policy) Match(times []time.Time) [][]string {
	matches := make([][]string, len(times))
	for _, r := range p.rules() {
		last := ""
		for i, t := range times {
			if r.count == 0 {
				break
			}
			period := r.period(t)
			if period != "" && period == last {
				continue
			}
			last = period
			r.count--
			name := r.name
			if period != "" {
				name += " " + period
			}
			matches[i] = append(matches[i], name)
		}
	}
	for i, t := range times {
		if p.Within > 0 && !t.Before(times[0].Add(-p.Within)) {
			matches[i] = append(matches[i], "within "+AgeText(p.Within))
		}
	}
	return matches
}
