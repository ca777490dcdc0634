package move

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestACanaryThatHasLeftHoldsUpNoLaterRun: the run in which it is deleted ends, since nothing has
// shown that the target is well.
func TestACanaryThatHasLeftHoldsUpNoLaterRun(t *testing.T) {
	m := &run{Tuning: restore.Tuning{Canary: "a/b"}, Units: map[string]catalog.UnitState{}}
	m.results.gone = map[string]bool{"a/b": true}
	p := &pipeline{run: m, groups: []*readyGroup{{}}}
	if !m.enough(t.Context()) || !p.awaitsCanary() {
		t.Errorf("the run goes on: enough %t, it awaits %t", m.enough(t.Context()), p.awaitsCanary())
	}
	m.results.gone, m.Units["a/b"] = nil, catalog.UnitRolledBack
	if m.enough(t.Context()) || p.awaitsCanary() {
		t.Errorf("the next run: enough %t, it awaits %t", m.enough(t.Context()), p.awaitsCanary())
	}
}

// TestABatchTakesWhatIsReadyWithinASecond: units share a batch when they are ready within a second
// and belong to one group, in the order of the plan, whichever was ready first; no batch waits for
// a unit that is slow, or has failed.
func TestABatchTakesWhatIsReadyWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &readyGroup{units: []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6"}}
		other := &readyGroup{units: []string{"b/1"}}
		p := &pipeline{run: &run{Tuning: restore.Tuning{Concurrency: 8, Gather: time.Second}},
			arrivals: make(chan arrival, 8), coming: 7, groups: []*readyGroup{one, other}}
		go func() {
			for _, a := range []struct {
				after time.Duration
				arrival
			}{
				{time.Minute, arrival{unit: "a/3"}}, // failed
				{0, arrival{unit: "a/4", ready: true}},
				{0, arrival{unit: "a/2", ready: true}},
				{0, arrival{unit: "b/1", ready: true}},
				{time.Second / 2, arrival{unit: "a/1", ready: true}},
				{time.Minute, arrival{unit: "a/6", ready: true}},
				{time.Hour, arrival{unit: "a/5"}},
			} {
				time.Sleep(a.after)
				p.arrivals <- a.arrival
			}
		}()
		began := time.Now()
		for i, want := range []struct {
			of    *readyGroup
			units []string
			at    time.Duration
		}{
			{one, []string{"a/1", "a/2"}, time.Minute + time.Second/2},
			{one, []string{"a/4"}, time.Minute + time.Second},
			{other, []string{"b/1"}, time.Minute + time.Second},
			{one, []string{"a/6"}, 2*time.Minute + 3*time.Second/2},
			{nil, nil, time.Hour + 2*time.Minute + time.Second/2},
		} {
			of, units := p.nextBatch(t.Context(), 2)
			if of != want.of || !slices.Equal(units, want.units) || time.Since(began) != want.at {
				t.Errorf("batch %d: %v after %s, want %v after %s", i, units, time.Since(began), want.units,
					want.at)
			}
		}
		if p.unitsLeft() {
			t.Error("units are left")
		}
		p.coming = 1
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, units := p.nextBatch(ctx, 2); len(units) > 0 {
			t.Errorf("a run that has ended begins %v", units)
		}
	})
}
