package service

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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// bench is a scheduler over a catalog whose snapshots take a given time and end with a given error.
// The clock is synctest's: it begins at midnight UTC.
type bench struct {
	*scheduler
	t    *testing.T
	path string
	stop func()

	mu     sync.Mutex // the bubble's clock orders nothing for the race detector
	begun  []time.Time
	wanted []wantedSnapshot
	takes  time.Duration
	fails  error // of the run
	refuse error // of its beginning
}

func newBench(t *testing.T, path string, schedules ...Schedule) *bench {
	t.Helper()
	return newBenchThat(t, path, func(*bench) {}, schedules...)
}

// newBenchThat lets a caller say how runs go before the first one begins.
func newBenchThat(t *testing.T, path string, set func(*bench), schedules ...Schedule) *bench {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, path: path}
	set(b)
	begin := func(ctx context.Context, w wantedSnapshot) (*mgmtv1.Operation, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.refuse != nil {
			return nil, b.refuse
		}
		b.begun, b.wanted = append(b.begun, time.Now().UTC()), append(b.wanted, w)
		ends, fails := time.After(b.takes), b.fails
		go func() {
			select {
			case <-ends:
				w.ended(fails)
			case <-ctx.Done():
				w.ended(errDaemonEnds)
			}
		}()
		return &mgmtv1.Operation{Id: fmt.Sprintf("op%d", len(b.begun))}, nil
	}
	b.scheduler, err = newScheduler(t.Context(), &scheduler{begin: begin, states: c,
		log: slog.New(slog.DiscardHandler), m: newMetrics(prometheus.NewRegistry(), "test")}, schedules)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.run(ctx) }()
	b.stop = func() {
		cancel()
		<-done
		synctest.Wait()
		if problems := c.Check(context.WithoutCancel(ctx)); len(problems) > 0 {
			t.Error(problems)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return b
}

// then says how runs go from now on.
func (b *bench) then(fails, refuse error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails, b.refuse = fails, refuse
}

// times compares the beginnings, as time since the test began.
func (b *bench) times(since time.Time, want ...time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	got := make([]time.Duration, 0, len(b.begun))
	for _, at := range b.begun {
		got = append(got, at.Sub(since))
	}
	if diff := cmp.Diff(append([]time.Duration{}, want...), got); diff != "" {
		b.t.Error(diff)
	}
}

func (b *bench) only() *mgmtv1.Schedule { return b.toProto(b.list[0]) }

// rest lets time pass.
func rest(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func TestFirstRunIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := newBench(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: "CRON_TZ=UTC 0 3 * * *",
			Namespaces: []string{"a"}, Location: "l", Source: "m"})
		rest(50 * time.Hour)
		b.times(began, 0, 3*time.Hour, 27*time.Hour)
		w := b.wanted[0]
		w.ended = nil
		if diff := cmp.Diff(wantedSnapshot{source: "m", location: "l", namespaces: []string{"a"},
			schedule: "s", interval: 24 * time.Hour}, w, cmp.AllowUnexported(wantedSnapshot{})); diff != "" {
			t.Error(diff)
		}
		b.stop()
	})
}

func TestSkipImmediatelyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := newBench(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: "CRON_TZ=UTC 0 3 * * *",
			SkipImmediately: true})
		rest(4 * time.Hour)
		b.times(began, 3*time.Hour)
		b.stop()
	})
}

func TestMissedRunIsMadeUpForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		s := Schedule{Name: "s", Cron: "@hourly"}
		b := newBench(t, path, s)
		rest(90 * time.Minute) // at 0:00 and 1:00
		b.stop()
		time.Sleep(5 * time.Hour)
		began := time.Now()
		b = newBench(t, path, s) // at 6:30
		rest(40 * time.Minute)
		b.times(began, 0, 30*time.Minute)
		b.stop()
		// A restart between two times runs nothing.
		b = newBench(t, path, s)
		rest(time.Minute)
		b.times(began)
		b.stop()
	})
}

func TestRunWhileOneIsGoingIsSkippedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := newBenchThat(t, t.TempDir()+"/c.db", func(b *bench) { b.takes = 70 * time.Second },
			Schedule{Name: "s", Cron: "@every 30s"})
		rest(100 * time.Second)
		b.times(began, 0, 90*time.Second)
		if got := b.only().GetSkipped(); got != 2 {
			t.Errorf("skipped %d", got)
		}
		if got := testutil.ToFloat64(b.m.skipped.WithLabelValues("s")); got != 2 {
			t.Errorf("counted %v", got)
		}
		if _, err := b.runNow(t.Context(), "s"); ExitCode(err) != ExitHeld {
			t.Errorf("run while one is going: %v", err)
		}
		b.stop()
	})
}

func TestFailedRunWaitsAndIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := newBenchThat(t, t.TempDir()+"/c.db", func(b *bench) { b.fails = errors.New("no space") },
			Schedule{Name: "s", Cron: "@hourly"})
		rest(30 * time.Minute)
		b.times(began, 0)
		if s := b.only(); s.GetLastError() != "no space" || !s.GetOverdue() ||
			s.GetLastSuccessTime() != nil {
			t.Errorf("after a failure: %v", s)
		}
		if got := testutil.ToFloat64(b.m.overdue.WithLabelValues("s")); got != 1800 {
			t.Errorf("overdue for %v", got)
		}
		b.then(nil, errors.New("unreachable"))
		rest(time.Hour)
		b.times(began, 0)
		if s := b.only(); s.GetLastError() != "unreachable" || s.GetLastOperation() != "" {
			t.Errorf("after one that could not begin: %v", s)
		}
		b.then(nil, nil)
		rest(time.Hour)
		b.times(began, 0, 2*time.Hour)
		if s := b.only(); s.GetLastError() != "" || s.GetOverdue() || s.GetLastOperation() != "op2" {
			t.Errorf("after a success: %v", s)
		}
		b.stop()
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		began := time.Now()
		s := Schedule{Name: "s", Cron: "@hourly", SkipImmediately: true}
		b := newBench(t, path, s)
		rest(90 * time.Minute)
		if _, err := b.setPaused(t.Context(), "s", true); err != nil {
			t.Fatal(err)
		}
		rest(5 * time.Hour)
		b.times(began, time.Hour)
		if p := b.only(); !p.GetPaused() || p.GetNextTime() != nil || p.GetOverdue() {
			t.Errorf("paused: %v", p)
		}
		if _, err := b.runNow(t.Context(), "s"); err != nil {
			t.Errorf("run while paused: %v", err)
		}
		rest(time.Minute)
		b.stop()
		b = newBench(t, path, s)
		rest(3 * time.Hour)
		b.times(began) // over the restart, too
		if _, err := b.setPaused(t.Context(), "s", false); err != nil {
			t.Fatal(err)
		}
		rest(time.Hour)
		b.times(began, 10*time.Hour)
		if _, err := b.setPaused(t.Context(), "t", false); FromStatus(err).Reason != ReasonNotFound {
			t.Errorf("no such schedule: %v", err)
		}
		b.stop()
	})
}

// TestResumeMakesUp: without SkipImmediately, what was due in a pause of the configuration is made
// up for once it ends.
func TestResumeMakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		b := newBench(t, path, Schedule{Name: "s", Cron: "@hourly", Paused: true})
		rest(90 * time.Minute)
		b.times(time.Now())
		began := time.Now()
		if _, err := b.setPaused(t.Context(), "s", false); err != nil {
			t.Fatal(err)
		}
		rest(40 * time.Minute)
		b.times(began, 0, 30*time.Minute)
		b.stop()
		// It outlives the daemon.
		b = newBench(t, path, Schedule{Name: "s", Cron: "@hourly", Paused: true})
		if b.only().GetPaused() {
			t.Error("paused again after a restart")
		}
		b.stop()
	})
}

// TestPauseEndsWithAChangeOfTheConfiguration: an operator who edits the file, later, is not
// overruled by an old pause.
func TestPauseEndsWithAChangeOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		b := newBench(t, path, Schedule{Name: "s", Cron: "@hourly", Paused: true})
		if _, err := b.setPaused(t.Context(), "s", true); err != nil {
			t.Fatal(err)
		}
		b.stop()
		b = newBench(t, path, Schedule{Name: "s", Cron: "@hourly"})
		if b.only().GetPaused() {
			t.Error("still paused")
		}
		b.stop()
	})
}

func TestParseCron(t *testing.T) {
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
