package retention

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

var ages = regexp.MustCompile(`^(?:(\d{1,5})w)?(?:(\d{1,5})d)?(.*)$`)

// ParseAge reads a duration of weeks, days and what Go's durations have: "30d", "2w", "1d12h",
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

// AgeText returns the shortest form that ParseAge reads.
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
