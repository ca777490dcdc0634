package retention

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPolicyRetainsTheNewestOfEachPeriod(t *testing.T) {
	at := func(texts ...string) (list []time.Time) {
		for _, text := range texts {
			parsed, err := time.Parse("2006-01-02T15:04", text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, parsed)
		}
		return list
	}
	tests := map[string]struct {
		policy Policy
		in     []time.Time // newest first
		want   [][]string
	}{
		"no rule": {Policy{}, at("2026-01-02T10:00"), [][]string{nil}},
		"nothing": {Policy{Last: 1}, nil, [][]string{}},
		"last": {Policy{Last: 2}, at("2026-01-02T10:00", "2026-01-02T10:00", "2026-01-02T09:59"),
			[][]string{{"last"}, {"last"}, nil}},
		"last many": {Policy{Last: 9}, at("2026-01-02T10:00", "2026-01-01T10:00"),
			[][]string{{"last"}, {"last"}}},
		"hourly": {Policy{Hourly: 2}, at("2026-01-02T10:59", "2026-01-02T10:00", "2026-01-02T08:30",
			"2026-01-02T07:00"),
			[][]string{{"hourly 2026-01-02T10"}, nil, {"hourly 2026-01-02T08"}, nil}},
		"same hour of two days": {Policy{Hourly: 2}, at("2026-01-02T10:00", "2026-01-01T10:00"),
			[][]string{{"hourly 2026-01-02T10"}, {"hourly 2026-01-01T10"}}},
		"daily": {Policy{Daily: 2}, at("2026-01-02T00:00", "2026-01-01T23:59", "2026-01-01T00:00",
			"2025-12-31T23:59"),
			[][]string{{"daily 2026-01-02"}, {"daily 2026-01-01"}, nil, nil}},
		// 2025-12-29 is the Monday of the first week of 2026.
		"weekly over new year": {Policy{Weekly: 2}, at("2026-01-04T23:59", "2026-01-01T00:00",
			"2025-12-29T00:00", "2025-12-28T23:59"),
			[][]string{{"weekly 2026-W01"}, nil, nil, {"weekly 2025-W52"}}},
		"week 53": {Policy{Weekly: 3}, at("2027-01-04T00:00", "2027-01-03T00:00", "2026-12-27T00:00"),
			[][]string{{"weekly 2027-W01"}, {"weekly 2026-W53"}, {"weekly 2026-W52"}}},
		"monthly": {Policy{Monthly: 2}, at("2026-03-31T00:00", "2026-03-01T00:00", "2026-02-28T23:59",
			"2025-02-28T00:00"),
			[][]string{{"monthly 2026-03"}, nil, {"monthly 2026-02"}, nil}},
		"within is seen from the newest": {Policy{Within: 24 * time.Hour},
			at("2026-01-02T10:00", "2026-01-01T10:00", "2026-01-01T09:59"),
			[][]string{{"within 1d"}, {"within 1d"}, nil}},
		"any rule retains": {Policy{Last: 1, Daily: 2, Monthly: 2, Within: time.Hour},
			at("2026-01-01T10:00", "2026-01-01T09:30", "2025-12-31T10:00", "2025-12-30T10:00"),
			[][]string{{"last", "daily 2026-01-01", "monthly 2026-01", "within 1h"}, {"within 1h"},
				{"daily 2025-12-31", "monthly 2025-12"}, nil}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.policy.Match(tt.in)); diff != "" {
				t.Errorf("matches (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPolicyCountsInUTC: hours and days are those of UTC, whatever zone a time came with.
func TestPolicyCountsInUTC(t *testing.T) {
	zone := time.FixedZone("east", 5*3600)
	// 23:00 and 22:00 of one day
	in := []time.Time{time.Date(2026, 1, 2, 4, 0, 0, 0, zone), time.Date(2026, 1, 1, 22, 0, 0, 0,
		time.UTC)}
	want := [][]string{{"daily 2026-01-01"}, nil}
	if diff := cmp.Diff(want, Policy{Daily: 5}.Match(in)); diff != "" {
		t.Errorf("matches (-want +got):\n%s", diff)
	}
}

func TestPolicyRefusesNegativeRules(t *testing.T) {
	for _, p := range []Policy{{Last: -1}, {Hourly: -1}, {Daily: -1}, {Weekly: -1}, {Monthly: -1},
		{Within: -1}} {
		if p.Check() == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	if err := (Policy{Last: 1, Within: time.Hour}).Check(); err != nil {
		t.Error(err)
	}
}
