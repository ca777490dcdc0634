package retention

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Policy says which snapshots of a source are kept. Each rule keeps some, and one that any rule
// keeps stays. Counts are of hours, days, weeks (from Monday) or months in UTC that have snapshots,
// and keep the newest of each.
type Policy struct {
	Last, Hourly, Daily, Weekly, Monthly int
	// Within keeps what is not older than that, as seen from the newest.
	Within time.Duration
}

// IsZero tells whether there is no rule: then all are kept for ever that do not say themselves when
// they expire.
func (p Policy) IsZero() bool { return p == Policy{} }

// Check tells what no policy can be.
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

type keepRule struct {
	name  string
	count int
	// slot names what one snapshot is kept of; "" means that each is its own.
	slot func(time.Time) string
}

func (p Policy) rules() []keepRule {
	layout := func(l string) func(time.Time) string {
		return func(t time.Time) string {
			return t.UTC().Format(l)
		}
	}
	week := func(t time.Time) string {
		year, week := t.UTC().ISOWeek()
		return fmt.Sprintf("%04d-W%02d", year, week)
	}
	return []keepRule{
		{"last", p.Last, func(time.Time) string { return "" }},
		{"hourly", p.Hourly, layout("2006-01-02T15")},
		{"daily", p.Daily, layout(time.DateOnly)},
		{"weekly", p.Weekly, week},
		{"monthly", p.Monthly, layout("2006-01")},
	}
}

// Keep gives for each of the times of snapshots, newest first, the rules that keep it, such as
// "daily 2026-01-02"; none when no rule does.
func (p Policy) Keep(times []time.Time) [][]string {
	kept := make([][]string, len(times))
	for _, r := range p.rules() {
		last := ""
		for i, t := range times {
			slot := r.slot(t)
			if r.count == 0 {
				break
			}
			if slot != "" && slot == last {
				continue
			}
			last = slot
			r.count--
			name := r.name
			if slot != "" {
				name += " " + slot
			}
			kept[i] = append(kept[i], name)
		}
	}
	for i, t := range times {
		if p.Within > 0 && !t.Before(times[0].Add(-p.Within)) {
			kept[i] = append(kept[i], "within "+AgeText(p.Within))
		}
	}
	return kept
}

var ages = regexp.MustCompile(`^(?:(\d{1,5})w)?(?:(\d{1,5})d)?(.*)$`)

// ParseAge reads a duration of weeks and days and what Go's durations have: "30d", "2w", "1d12h",
// "90m".
func ParseAge(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	m := ages.FindStringSubmatch(s)
	if s == "" || m == nil {
		return 0, fmt.Errorf("%q is not a duration: write 30d, 12h or 1d12h", s)
	}
	var d time.Duration
	for i, unit := range []time.Duration{7 * day, day} {
		if n, err := strconv.Atoi(m[i+1]); err == nil {
			d += time.Duration(n) * unit
		}
	}
	if m[3] != "" {
		rest, err := time.ParseDuration(m[3])
		if err != nil || rest < 0 {
			return 0, fmt.Errorf("%q is not a duration: write 30d, 12h or 1d12h", s)
		}
		d += rest
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is too long", s)
	}
	return d, nil
}

// AgeText is the shortest form that ParseAge reads.
func AgeText(d time.Duration) string {
	const day = 24 * time.Hour
	text := ""
	if d >= day {
		text, d = fmt.Sprintf("%dd", d/day), d%day
	}
	if d == 0 && text != "" {
		return text
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}} {
		if d > 0 && d%u.unit == 0 {
			return fmt.Sprintf("%s%d%s", text, d/u.unit, u.name)
		}
	}
	return text + d.String()
}
