package schedule

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

const tenYears = 3652 * 24 * time.Hour

// recordState records the state of a schedule before the daemon starts.
func recordState(t *testing.T, path string, change func(*catalog.ScheduleState)) {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdateSchedule(t.Context(), "s", change); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRecordedTimesAheadOfTheClockStopNoSchedule(t *testing.T) {
	for name, fails := range map[string]error{"succeeds": nil, "fails": errors.New("no space")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path, began := t.TempDir()+"/c.db", time.Now()
				recordState(t, path, func(s *catalog.ScheduleState) {
					s.Seen = began.Add(tenYears)
					s.LastRun, s.LastSuccess = s.Seen, s.Seen
				})
				s := Schedule{Name: "s", Cron: "@hourly"}
				f := newFixtureThat(t, path, func(f *fixture) { f.fails = fails }, s)
				if _, wentBack, at := f.observed(); wentBack != 1 || at.After(time.Now()) {
					t.Errorf("reported %d times, last success at %v", wentBack, at)
				}
				rest(3 * time.Hour)
				overdue, wentBack, _ := f.observed()
				if wentBack != 1 {
					t.Errorf("reported %d times", wentBack)
				}
				if fails == nil {
					f.times(began, time.Hour, 2*time.Hour, 3*time.Hour)
				}
				if want := map[bool]time.Duration{true: 2 * time.Hour}[fails != nil]; overdue != want {
					t.Errorf("overdue for %v, want %v", overdue, want)
				}
				f.stop()
				f = newFixture(t, path, s)
				if _, wentBack, at := f.observed(); wentBack != 0 || at.After(time.Now()) {
					t.Errorf("after a restart: reported %d times, last success at %v", wentBack, at)
				}
				f.stop()
			})
		})
	}
}

func TestClockThatGoesBackStopsNoRunningSchedule(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ten years": tenYears, "a day": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := newFixtureAhead(t, t.TempDir()+"/c.db", ahead, func(*fixture) {},
					Schedule{Name: "s", Cron: "@hourly"})
				rest(90 * time.Minute)
				f.setAhead(0)
				rest(2 * time.Hour)
				f.times(began, 0, time.Hour, 2*time.Hour, 3*time.Hour)
				overdue, wentBack, lastSuccess := f.observed()
				if overdue != 0 || wentBack != 1 || lastSuccess.After(time.Now()) {
					t.Errorf("overdue for %v, reported %d times, last success at %v", overdue, wentBack,
						lastSuccess)
				}
				f.then(errors.New("no space"), nil)
				rest(time.Hour)
				if overdue, _, _ := f.observed(); overdue < 29*time.Minute ||
					overdue > 30*time.Minute {
					t.Errorf("overdue for %v after a failure", overdue)
				}
				f.stop()
			})
		})
	}
}

// TestClockThatGoesBackDuringARun: the run ends with a time that lies ahead.
func TestClockThatGoesBackDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixtureAhead(t, t.TempDir()+"/c.db", tenYears,
			func(f *fixture) { f.takes = 10 * time.Minute }, Schedule{Name: "s", Cron: "@hourly"})
		rest(5 * time.Minute)
		f.setAhead(0)
		rest(2*time.Hour + 10*time.Minute)
		f.times(began, 0, time.Hour, 2*time.Hour)
		if s := f.only(); s.LastSuccess.After(time.Now()) || s.LastRun.After(time.Now()) || s.Overdue {
			t.Errorf("%+v", s)
		}
		f.stop()
	})
}

func TestSmallStepOfTheClockIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureAhead(t, t.TempDir()+"/c.db", 3*time.Minute, func(*fixture) {},
			Schedule{Name: "s", Cron: "@hourly"})
		rest(time.Minute)
		f.setAhead(0)
		rest(time.Hour)
		if _, wentBack, _ := f.observed(); wentBack != 0 || len(f.begun) != 2 {
			t.Errorf("reported %d times, runs at %v", wentBack, f.begun)
		}
		f.stop()
	})
}

func TestDaylightSavingLosesAndRepeatsNoTime(t *testing.T) {
	for _, test := range []struct {
		name, cron string
		after      string
		want       []string // in UTC
	}{
		// Berlin goes from 02:00 to 03:00 at 01:00 UTC, and back from 03:00 to 02:00 at 01:00 UTC.
		{"left out", "CRON_TZ=Europe/Berlin 30 2 * * *", "2027-03-27T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"}},
		{"several left out", "CRON_TZ=Europe/Berlin 15,45 2 * * *", "2027-03-27T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-29T00:15:00Z"}},
		{"left out once a year", "CRON_TZ=Europe/Berlin 30 2 28 3 *", "2027-01-01T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2028-03-28T00:30:00Z"}},
		{"beside what is left out", "CRON_TZ=Europe/Berlin 0 3 * * *", "2027-03-27T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-29T01:00:00Z"}},
		{"another day", "CRON_TZ=Europe/Berlin 30 2 * * 1", "2027-03-27T12:00:00Z",
			[]string{"2027-03-29T00:30:00Z"}},
		{"every hour in spring", "CRON_TZ=Europe/Berlin 30 * * * *", "2027-03-28T00:00:00Z",
			[]string{"2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"}},
		{"midnight", "CRON_TZ=Asia/Beirut 0 0 * * *", "2027-03-27T12:00:00Z",
			[]string{"2027-03-27T22:00:00Z", "2027-03-28T21:00:00Z"}},
		{"repeated", "CRON_TZ=Europe/Berlin 30 2 * * *", "2027-10-30T12:00:00Z",
			[]string{"2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"}},
		{"several in the repeated hour", "CRON_TZ=Europe/Berlin 0,30 2 * * *", "2027-10-30T12:00:00Z",
			[]string{"2027-10-31T00:00:00Z", "2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z",
				"2027-10-31T01:30:00Z", "2027-11-01T01:00:00Z"}},
		{"every hour in autumn", "CRON_TZ=Europe/Berlin 30 * * * *", "2027-10-31T00:00:00Z",
			[]string{"2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"}},
		{"after the repeated hour", "CRON_TZ=Europe/Berlin 30 3 * * *", "2027-10-31T00:00:00Z",
			[]string{"2027-10-31T02:30:00Z"}},
		{"no zone", "CRON_TZ=UTC 30 2 * * *", "2027-03-27T12:00:00Z", []string{"2027-03-28T02:30:00Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := ParseCron(test.cron)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, test.after)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if at = s.Next(at); at.Format(time.RFC3339) != want {
					t.Fatalf("due at %v, want %s", at, want)
				}
			}
		})
	}
}

// TestRunOfASpringNight goes through the change of the clock with a daily schedule at a time that
// does not exist that day.
func TestRunOfASpringNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ahead := time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC).Sub(began)
		f := newFixtureAhead(t, t.TempDir()+"/c.db", ahead, func(*fixture) {},
			Schedule{Name: "s", Cron: "CRON_TZ=Europe/Berlin 30 2 * * *"})
		rest(time.Hour)
		f.then(errors.New("no space"), nil)
		rest(12*time.Hour + 10*time.Second)
		f.times(began, 0, 13*time.Hour)
		rest(50 * time.Second)
		if overdue, _, _ := f.observed(); overdue < 30*time.Second || overdue > time.Minute {
			t.Errorf("overdue for %v", overdue)
		}
		f.stop()
	})
}

func TestJitterDelaysRunsAndIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, began := t.TempDir()+"/c.db", time.Now()
		s := Schedule{Name: "s", Cron: "@hourly", SkipImmediately: true, Jitter: 20 * time.Minute}
		f := newFixture(t, path, s)
		for range 9 * 60 {
			rest(time.Minute)
			if overdue, _, _ := f.observed(); overdue > time.Minute {
				t.Fatalf("overdue for %v", overdue)
			}
		}
		f.mu.Lock()
		begun := slices.Clone(f.begun)
		f.mu.Unlock()
		late := map[time.Duration]bool{}
		for i, at := range begun {
			delay := at.Sub(began) - time.Duration(i+1)*time.Hour
			if late[delay] = true; delay < 0 || delay > 20*time.Minute {
				t.Errorf("run %d is delayed by %v", i, delay)
			}
		}
		if len(begun) < 8 || len(late) < len(begun)/2 {
			t.Errorf("runs at %v", begun)
		}
		rest(30 * time.Minute)
		due := f.only().Due
		f.stop()
		f = newFixture(t, path, s)
		if got := f.only().Due; !got.Equal(due) {
			t.Errorf("due at %v after a restart, at %v before", got, due)
		}
		f.stop()
	})
}

func TestJitterIsAtMostHalfOfTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: "*/10 * * * *",
			SkipImmediately: true, Jitter: 24 * time.Hour})
		rest(5*time.Hour + 5*time.Minute)
		if len(f.begun) != 30 {
			t.Errorf("%d runs", len(f.begun))
		}
		for i, at := range f.begun {
			if delay := at.Sub(began) - time.Duration(i+1)*10*time.Minute; delay < 0 ||
				delay > 5*time.Minute {
				t.Errorf("run %d is delayed by %v", i, delay)
			}
		}
		f.stop()
	})
}
