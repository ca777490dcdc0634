package retention

import (
	"testing"
	"time"
)

func TestParseAgeReadsWeeksAndDays(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"30d": 30 * day, "12h": 12 * time.Hour,
		"2w": 14 * day, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "1w1d1h": 8*day + time.Hour,
		"720h0m0s": 30 * day} {
		if got, err := ParseAge(text); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "30", "d", "-1d", "1d-1h", "1h1d", "a", "1.5d", "999999d",
		"3y"} {
		if got, err := ParseAge(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
	for d, want := range map[time.Duration]string{30 * day: "30d", 36 * time.Hour: "1d12h",
		90 * time.Minute: "90m", time.Hour: "1h", time.Second: "1s", 0: "0s"} {
		if got := AgeText(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
