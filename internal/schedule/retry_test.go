package schedule

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// retried checks the beginnings of runs: the first one at first, and each further one after a wait
// between half of the given one and all of it.
func (f *fixture) retried(since time.Time, first time.Duration, waits ...time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.begun) != len(waits)+1 || f.begun[0].Sub(since) != first {
		f.t.Fatalf("runs at %v, want %d from %v", f.begun, len(waits)+1, since.Add(first))
	}
	for i, want := range waits {
		if got := f.begun[i+1].Sub(f.begun[i]); got < want/2 || got > want {
			f.t.Errorf("waited %v after failure %d, want up to %v", got, i+1, want)
		}
	}
}

func TestFailedRunIsRetriedWhileOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, began := t.TempDir()+"/c.db", time.Now()
		s := Schedule{Name: "s", Cron: "@daily"}
		f := newFixtureThat(t, path, func(f *fixture) { f.fails = errors.New("no space") }, s)
		const rested = 6*time.Minute + 59*time.Second
		rest(rested)
		f.mu.Lock()
		runs := len(f.begun)
		f.mu.Unlock()
		if runs < 3 {
			t.Fatalf("%d runs in 7 minutes", runs)
		}
		if s := f.only(); s.LastError != "no space" || !s.Overdue || !s.LastSuccess.IsZero() ||
			time.Until(s.Due) > 8*time.Minute {
			t.Errorf("after failures: %v", s)
		}
		// It is observed once a minute or more often.
		if overdue, _, _ := f.observed(); overdue < rested-time.Minute {
			t.Errorf("overdue for %v", overdue)
		}
		f.then(nil, errors.New("unreachable"))
		rest(time.Hour)
		if s := f.only(); s.LastError != "unreachable" || s.LastOperation != "" {
			t.Errorf("after one that could not begin: %v", s)
		}
		f.then(nil, nil)
		rest(90 * time.Minute)
		if s := f.only(); s.LastError != "" || s.Overdue || !s.Due.Equal(began.Add(24*time.Hour)) {
			t.Errorf("after a success: %v", s)
		}
		f.stop()
	})
}

func TestRetriesBackOffToHalfOfTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) { f.fails = errors.New("no space") },
			Schedule{Name: "s", Cron: "*/10 * * * *", SkipImmediately: true})
		rest(20 * time.Minute)
		f.mu.Lock()
		var waits []time.Duration
		runs := f.begun
		for i := 1; i < len(runs) && runs[i].Sub(runs[0]) < 10*time.Minute; i++ {
			waits = append(waits, min(time.Minute<<(i-1), 5*time.Minute))
		}
		last := runs[len(runs)-1]
		f.begun = runs[:len(waits)+1]
		f.mu.Unlock()
		f.retried(began, 10*time.Minute, waits...)
		if len(waits) < 2 {
			t.Errorf("%d retries", len(waits))
		}
		// The time of the expression comes as ever, and its retries begin with the shortest wait.
		if at := last.Sub(began); at != 20*time.Minute {
			t.Errorf("last run after %v", at)
		}
		if due := time.Until(f.only().Due); due > time.Minute {
			t.Errorf("next retry in %v", due)
		}
		f.stop()
	})
}

func TestRetryDoesNotWaitForTheNextTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) { f.fails = errors.New("no space") },
			Schedule{Name: "s", Cron: "@every 30s"})
		rest(15 * time.Second) // two waits are longer, as each is half of that at least
		f.retried(began, 0, 15*time.Second)
		f.stop()
	})
}

func TestRetryOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		s := Schedule{Name: "s", Cron: "@daily"}
		f := newFixtureThat(t, path, func(f *fixture) { f.fails = errors.New("no space") }, s)
		rest(time.Second)
		f.stop()
		rest(2 * time.Minute)
		began := time.Now()
		f = newFixture(t, path, s)
		rest(time.Hour)
		f.times(began, 0)
		f.stop()
	})
}

func TestStoppedRunIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, began := t.TempDir()+"/c.db", time.Now()
		s := Schedule{Name: "s", Cron: "@hourly"}
		f := newFixtureThat(t, path, func(f *fixture) { f.fails, f.stops = errors.New("stopped"), true }, s)
		rest(20 * time.Minute)
		f.times(began, 0)
		f.stop()
		f = newFixture(t, path, s)
		rest(20 * time.Minute)
		f.times(began)
		f.stop()
	})
}

func TestRequestedSuccessEndsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) { f.fails = errors.New("no space") },
			Schedule{Name: "s", Cron: "@hourly"})
		rest(time.Second)
		f.then(nil, nil)
		if _, err := f.RunNow(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		rest(30 * time.Minute)
		f.times(began, 0, time.Second)
		f.stop()
	})
}

func TestPausedScheduleIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) { f.fails = errors.New("no space") },
			Schedule{Name: "s", Cron: "@hourly"})
		rest(time.Second)
		if _, err := f.SetPaused(t.Context(), "s", true); err != nil {
			t.Fatal(err)
		}
		rest(3 * time.Hour)
		f.times(began, 0)
		f.stop()
	})
}
