package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

var errDaemonEnds = errors.New("stopped since the daemon ended")

// fixture is a scheduler over a catalog whose snapshots take a given time and end with a given
// error. The clock is synctest's: it begins at midnight UTC.
type fixture struct {
	*Scheduler
	t    *testing.T
	stop func()

	mu       sync.Mutex // the bubble's clock orders nothing for the race detector
	begun    []time.Time
	requests []SnapshotRequest
	takes    time.Duration
	fails    error         // of the run
	refuse   error         // of its beginning
	stops    bool          // an operator stops the run
	bugs     int           // as many runs panic when they begin
	lateBugs int           // as many runs panic when they end
	ahead    time.Duration // by which the scheduler's clock is ahead

	prunes       []time.Time
	lastPrune    time.Time
	pruneRunning bool

	skipped     int
	overdue     time.Duration
	wentBack    int
	lastSuccess time.Time

	hidesAfter time.Duration // somebody hides each snapshot so long after it was begun; 0: nobody
	visible    int           // as many snapshots stay there
	unreadable error         // of the store
	dated      time.Duration // by which the times in keys are ahead
	lists      int
	newest     time.Time
}

func newFixture(t *testing.T, path string, schedules ...Schedule) *fixture {
	t.Helper()
	return newFixtureThat(t, path, func(*fixture) {}, schedules...)
}

// newFixtureThat lets a caller say how runs go before the first one begins.
func newFixtureThat(t *testing.T, path string, set func(*fixture),
	schedules ...Schedule) *fixture {
	t.Helper()
	return newFixtureAhead(t, path, 0, set, schedules...)
}

// newFixtureAhead makes a scheduler whose clock is ahead of the bubble's.
func newFixtureAhead(t *testing.T, path string, ahead time.Duration, set func(*fixture),
	schedules ...Schedule) *fixture {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, ahead: ahead}
	ctx, cancel := context.WithCancel(t.Context())
	f.Scheduler, err = New(ctx, Options{Schedules: schedules,
		Snapshots: &snapshots{f, ctx}, Stores: &stores{f}, States: c, Metrics: &metrics{f},
		Log: slog.New(slog.DiscardHandler), Prune: func(string) bool { return true }, Now: f.clock})
	if err != nil {
		t.Fatal(err)
	}
	set(f)
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	f.stop = func() {
		cancel()
		<-done
		catalog.PostTestCheck(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return f
}

// snapshots begins runs, which end with the time or with the daemon.
type snapshots struct {
	*fixture
	daemon context.Context
}

func (s *snapshots) BeginSnapshot(_ context.Context, r SnapshotRequest) (Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bugs > 0 {
		s.bugs--
		panic("a bug")
	}
	if s.refuse != nil {
		return nil, s.refuse
	}
	s.begun, s.requests = append(s.begun, time.Now().UTC()), append(s.requests, r)
	id := catalog.OperationID(fmt.Sprintf("op%d", len(s.begun)))
	bug := s.lateBugs > 0
	if bug {
		s.lateBugs--
	}
	return &run{catalog.Operation{ID: id, Location: "l"}, s.daemon, time.After(s.takes), s.fails,
		s.stops, bug}, nil
}

func (s *snapshots) BeginPrune(schedule, location string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schedule != "s" || location != "l" {
		s.t.Errorf("prune of location %q after schedule %q", location, schedule)
	}
	s.lastPrune = time.Now()
	s.prunes = append(s.prunes, s.lastPrune)
}

func (s *snapshots) LastPrune(string) (began time.Time, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastPrune, s.pruneRunning
}

type run struct {
	operation catalog.Operation
	daemon    context.Context
	ends      <-chan time.Time
	fails     error
	stops     bool
	bug       bool
}

func (r *run) Stopped() bool { return r.stops }

func (r *run) Operation() catalog.Operation { return r.operation }

func (r *run) Wait() error {
	select {
	case <-r.ends:
		if r.bug {
			panic("a bug")
		}
		return r.fails
	case <-r.daemon.Done():
		return errDaemonEnds
	}
}

type metrics struct{ *fixture }

func (m *metrics) ScheduleKnown(_ string, lastSuccess time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastSuccess = lastSuccess
}

func (m *metrics) ClockWentBack(_ string, lastSuccess time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wentBack++
	m.lastSuccess = lastSuccess
}

func (m *metrics) RunSkipped(string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skipped++
}

func (m *metrics) Overdue(_ string, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.overdue = by
}

func (m *metrics) NewestStored(_ string, taken time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest = taken
}

// clock is the scheduler's.
func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead)
}

// setAhead sets the scheduler's clock.
func (f *fixture) setAhead(ahead time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = ahead
}

// observed returns what the metrics have.
func (f *fixture) observed() (overdue time.Duration, wentBack int, lastSuccess time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.overdue, f.wentBack, f.lastSuccess
}

// then says how runs go from now on.
func (f *fixture) then(fails, refuse error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails, f.refuse = fails, refuse
}

// times compares the beginnings, as time since the test began.
func (f *fixture) times(since time.Time, want ...time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	compareTimes(f.t, since, f.begun, want)
}

// pruned compares the beginnings of prunes.
func (f *fixture) pruned(since time.Time, want ...time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	compareTimes(f.t, since, f.prunes, want)
}

func compareTimes(t *testing.T, since time.Time, times []time.Time, want []time.Duration) {
	t.Helper()
	got := make([]time.Duration, 0, len(times))
	for _, at := range times {
		got = append(got, at.Sub(since))
	}
	if diff := cmp.Diff(append([]time.Duration{}, want...), got); diff != "" {
		t.Error(diff)
	}
}

func (f *fixture) only() Status { return f.List()[0] }

// rest lets time pass.
func rest(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func TestFirstRunIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: "CRON_TZ=UTC 0 3 * * *",
			Namespaces: []string{"a"}, Location: "l", Source: "m"})
		rest(50 * time.Hour)
		f.times(began, 0, 3*time.Hour, 27*time.Hour)
		want := SnapshotRequest{Schedule: "s", Source: "m", Location: "l", Namespaces: []string{"a"},
			Interval: 24 * time.Hour}
		if diff := cmp.Diff(want, f.requests[0]); diff != "" {
			t.Error(diff)
		}
		f.stop()
	})
}

func TestSkipImmediatelyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: "CRON_TZ=UTC 0 3 * * *",
			SkipImmediately: true})
		rest(4 * time.Hour)
		f.times(began, 3*time.Hour)
		f.stop()
	})
}

func TestMissedRunIsMadeUpForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		s := Schedule{Name: "s", Cron: "@hourly"}
		f := newFixture(t, path, s)
		rest(90 * time.Minute) // at 0:00 and 1:00
		f.stop()
		time.Sleep(5 * time.Hour)
		began := time.Now()
		f = newFixture(t, path, s) // at 6:30
		rest(40 * time.Minute)
		f.times(began, 0, 30*time.Minute)
		f.stop()
		// A restart between two times runs nothing.
		f = newFixture(t, path, s)
		rest(time.Minute)
		f.times(began)
		f.stop()
	})
}

func TestRunWhileOneIsGoingIsSkippedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) { f.takes = 70 * time.Second },
			Schedule{Name: "s", Cron: "@every 30s"})
		rest(100 * time.Second)
		f.times(began, 0, 90*time.Second)
		if got := f.only().Skipped; got != 2 {
			t.Errorf("skipped %d", got)
		}
		if f.skipped != 2 {
			t.Errorf("counted %v", f.skipped)
		}
		_, err := f.RunNow(t.Context(), "s")
		if e, ok := errors.AsType[*RunningError](err); !ok || e.Operation != "op2" {
			t.Errorf("run while one is going: %v", err)
		}
		f.stop()
	})
}

func TestPauseOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		began := time.Now()
		s := Schedule{Name: "s", Cron: "@hourly", SkipImmediately: true}
		f := newFixture(t, path, s)
		rest(90 * time.Minute)
		if _, err := f.SetPaused(t.Context(), "s", true); err != nil {
			t.Fatal(err)
		}
		rest(5 * time.Hour)
		f.times(began, time.Hour)
		if p := f.only(); !p.Paused || p.Overdue {
			t.Errorf("paused: %v", p)
		}
		if _, err := f.RunNow(t.Context(), "s"); err != nil {
			t.Errorf("run while paused: %v", err)
		}
		rest(time.Minute)
		f.stop()
		f = newFixture(t, path, s)
		rest(3 * time.Hour)
		f.times(began) // over the restart, too
		if _, err := f.SetPaused(t.Context(), "s", false); err != nil {
			t.Fatal(err)
		}
		rest(time.Hour)
		f.times(began, 10*time.Hour)
		_, err := f.SetPaused(t.Context(), "t", false)
		if e, ok := errors.AsType[*UnknownError](err); !ok || e.Hint() != "there are s" {
			t.Errorf("no such schedule: %v", err)
		}
		f.stop()
	})
}

// TestResumeMakesUpForWhatWasDueInAPause: of the configuration, without SkipImmediately.
func TestResumeMakesUpForWhatWasDueInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		f := newFixture(t, path, Schedule{Name: "s", Cron: "@hourly", Paused: true})
		rest(90 * time.Minute)
		f.times(time.Now())
		began := time.Now()
		if _, err := f.SetPaused(t.Context(), "s", false); err != nil {
			t.Fatal(err)
		}
		rest(40 * time.Minute)
		f.times(began, 0, 30*time.Minute)
		f.stop()
		// The resume outlives the daemon.
		f = newFixture(t, path, Schedule{Name: "s", Cron: "@hourly", Paused: true})
		if f.only().Paused {
			t.Error("paused again after a restart")
		}
		f.stop()
	})
}

// TestPauseEndsWithAChangeOfTheConfiguration: an operator who edits the file, later, is not
// overruled by an old pause.
func TestPauseEndsWithAChangeOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		f := newFixture(t, path, Schedule{Name: "s", Cron: "@hourly", Paused: true})
		if _, err := f.SetPaused(t.Context(), "s", true); err != nil {
			t.Fatal(err)
		}
		f.stop()
		f = newFixture(t, path, Schedule{Name: "s", Cron: "@hourly"})
		if f.only().Paused {
			t.Error("still paused")
		}
		f.stop()
	})
}

func TestParseCronRefusesWhatIsNeverDue(t *testing.T) {
	for expression, ok := range map[string]bool{
		"0 3 * * *": true, "@every 30s": true, "@daily": true, "CRON_TZ=Europe/Berlin 0 3 * * *": true,
		"TZ=UTC @hourly": true,
		"":               false, "0 3 * *": false, "0 0 3 * * *": false, "TZ=": false, "TZ=UTC": false,
		"CRON_TZ=Nowhere 0 3 * * *": false, "0 0 30 2 *": false, "@sometimes": false,
	} {
		if _, err := ParseCron(expression); (err == nil) != ok {
			t.Errorf("%q: %v", expression, err)
		}
	}
}

func TestPruneFollowsASnapshotOnceInAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: "@every 25m"})
		rest(110 * time.Minute) // snapshots at 0, 25, 50, 75 and 100 minutes
		f.pruned(began, 0, 75*time.Minute)
		f.mu.Lock()
		f.pruneRunning = true // another one, which takes long
		f.mu.Unlock()
		rest(2 * time.Hour)
		f.mu.Lock()
		f.pruneRunning = false
		f.mu.Unlock()
		f.then(errors.New("no space"), nil)
		rest(2 * time.Hour)
		f.pruned(began, 0, 75*time.Minute)
		f.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) {
			f.Prune = func(string) bool { return false }
		},
			Schedule{Name: "s", Cron: "@hourly"})
		rest(3 * time.Hour)
		f.pruned(time.Now())
		f.stop()
	})
}
