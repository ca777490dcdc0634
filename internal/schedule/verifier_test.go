package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// verifyFixture is a verifier over a catalog whose verifies take a given time and come to a given
// result. The clock is synctest's.
type verifyFixture struct {
	*Verifier
	t      *testing.T
	daemon context.Context
	stop   func()

	mu      sync.Mutex // the bubble's clock orders nothing for the race detector
	began   time.Time
	begun   []string // "<since the beginning> <location>/<source> <level>"
	going   map[string]bool
	known   []string
	holds   []string // sources in each location
	holdErr error
	takes   time.Duration
	outcome store.VerifyOutcome
	err     error
	refuse  error
	// failing is how many passes come to no result from now on.
	failing int
	bugs    int // as many verifies panic
}

func newVerifyFixture(t *testing.T, path string, o VerifyOptions, set func(*verifyFixture),
	locations ...string) *verifyFixture {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &verifyFixture{t: t, daemon: ctx, began: time.Now(), holds: []string{"a"},
		outcome: store.OutcomeOK, going: map[string]bool{}}
	set(f)
	f.Verifier = NewVerifier(o, locations, f, c, slog.New(slog.DiscardHandler))
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

// VerifyKnown implements Verifies.
func (f *verifyFixture) VerifyKnown(location, source string, level store.VerifyLevel,
	last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = append(f.known, fmt.Sprintf("%s/%s %s %v", location, source, level, !last.IsZero()))
}

// Sources implements Verifies.
func (f *verifyFixture) Sources(context.Context, string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holds, f.holdErr
}

// BeginVerify implements Verifies.
func (f *verifyFixture) BeginVerify(_ context.Context, r VerifyRequest) (VerifyRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bugs > 0 {
		f.bugs--
		panic("a bug")
	}
	if f.refuse != nil {
		return nil, f.refuse
	}
	if f.going[r.Location] {
		f.t.Errorf("%+v began while a verify of this location is going", r)
	}
	f.going[r.Location] = true
	f.begun = append(f.begun, fmt.Sprintf("%s %s/%s %s", time.Since(f.began), r.Location, r.Source,
		r.Level)+string(r.Identity))
	id := catalog.OperationID(fmt.Sprintf("op%d", len(f.begun)))
	return &verifyRun{f, r, catalog.Operation{ID: id}, time.After(f.takes), f.outcome, f.err}, nil
}

// VerifyPass implements Verifies.
func (f *verifyFixture) VerifyPass(_ context.Context, location, source string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = append(f.begun, fmt.Sprintf("%s %s/%s pass", time.Since(f.began), location, source))
	return !f.passFails()
}

// passFails needs the lock.
func (f *verifyFixture) passFails() bool {
	f.failing--
	return f.failing >= 0
}

type verifyRun struct {
	*verifyFixture
	request   VerifyRequest
	operation catalog.Operation
	ends      <-chan time.Time
	outcome   store.VerifyOutcome
	err       error
}

func (r *verifyRun) Operation() catalog.Operation { return r.operation }

func (r *verifyRun) PassFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passFails()
}

func (r *verifyRun) Wait() (store.VerifyOutcome, error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.going[r.request.Location] = false
	}()
	select {
	case <-r.ends:
		return r.outcome, r.err
	case <-r.daemon.Done():
		return "", errDaemonEnds
	}
}

// saw compares what was begun and forgets it.
func (f *verifyFixture) saw(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.begun); diff != "" {
		f.t.Error(diff)
	}
	f.begun = nil
}

func (f *verifyFixture) then(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func structureDaily() VerifyOptions {
	return VerifyOptions{Every: 24 * time.Hour, Level: store.LevelStructure}
}

func TestEachSourceOfEachLocationIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(), func(f *verifyFixture) {
			f.holds, f.takes = []string{"b", "a"}, time.Minute
		}, "one")
		rest(49 * time.Hour)
		f.saw("0s one/a structure", "1m0s one/b structure", "24h0m0s one/a structure",
			"24h1m0s one/b structure", "48h0m0s one/a structure", "48h1m0s one/b structure")
		f.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(),
			func(f *verifyFixture) { f.takes = time.Minute }, "one", "two")
		rest(time.Hour)
		f.then(func() {
			if len(f.begun) != 2 || f.begun[0] == f.begun[1] || f.begun[0][:3] != "0s " ||
				f.begun[1][:3] != "0s " {
				t.Errorf("not both locations at once: %v", f.begun)
			}
		})
		f.stop()
	})
}

func TestNothingIsVerifiedWithoutAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", VerifyOptions{}, func(*verifyFixture) {}, "one")
		f.NewSnapshot("one", "a")
		rest(1000 * time.Hour)
		f.saw()
		f.stop()
	})
}

// TestFirstSnapshotIsVerifiedAtOnce: a store that was empty is not asked again before a day has
// passed; a snapshot of this daemon says that there is something.
func TestFirstSnapshotIsVerifiedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(),
			func(f *verifyFixture) { f.holds = nil }, "one")
		rest(time.Hour)
		f.saw()
		for range 50 {
			f.NewSnapshot("one", "a")
		}
		rest(time.Hour)
		f.saw("1h0m0s one/a structure")
		f.then(func() { f.holds = []string{"a", "b"} }) // another daemon's
		rest(23 * time.Hour)
		f.saw("24h0m0s one/b structure", "25h0m0s one/a structure")
		f.stop()
	})
}

// TestVerifyStatesOutliveRestarts: what was done is not done again, what was missed is made up for
// once.
func TestVerifyStatesOutliveRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		f := newVerifyFixture(t, path, structureDaily(), func(*verifyFixture) {}, "one")
		rest(time.Hour)
		f.saw("0s one/a structure")
		f.stop()
		f = newVerifyFixture(t, path, structureDaily(), func(*verifyFixture) {}, "one")
		rest(22 * time.Hour)
		f.saw()
		f.then(func() {
			if diff := cmp.Diff([]string{"one/a structure true"}, f.known); diff != "" {
				t.Error(diff)
			}
		})
		f.stop()
		time.Sleep(100 * time.Hour)
		f = newVerifyFixture(t, path, structureDaily(), func(*verifyFixture) {}, "one")
		rest(time.Hour)
		f.saw("0s one/a structure")
		f.stop()
	})
}

// TestInterruptedVerifyBeginsAgain with the next daemon, and not a day later.
func TestInterruptedVerifyBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		f := newVerifyFixture(t, path, structureDaily(), func(f *verifyFixture) { f.takes = time.Hour },
			"one")
		rest(time.Minute)
		f.saw("0s one/a structure")
		f.stop()
		f = newVerifyFixture(t, path, structureDaily(),
			func(f *verifyFixture) { f.takes = 30 * time.Hour },
			"one")
		rest(31 * time.Hour)
		// one that was due while it was going comes after it, once
		f.saw("0s one/a structure", "30h0m0s one/a structure")
		f.stop()
	})
}

func TestFailedVerifyIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		f := newVerifyFixture(t, path, structureDaily(),
			func(f *verifyFixture) { f.refuse = errors.New("unreachable") }, "one")
		rest(5 * time.Minute)
		f.then(func() { f.refuse, f.outcome, f.err = nil, "", errors.New("unreachable in the middle") })
		rest(10 * time.Minute)
		f.saw("10m0s one/a structure")
		f.then(func() { f.outcome, f.err = store.OutcomeDamaged, errors.New("1 of 3 keys") })
		rest(24 * time.Hour)
		f.saw("20m0s one/a structure") // damage is a result
		state, err := f.states.VerifyState(t.Context(), "one/a")
		if err != nil || state.LastError != "1 of 3 keys" || !state.LastSuccess.IsZero() ||
			state.LastOperation != "op1" {
			t.Errorf("state: %+v, %v", state, err)
		}
		f.then(func() { f.outcome, f.err = store.OutcomeOK, nil })
		rest(time.Hour)
		f.saw("24h20m0s one/a structure")
		if state, err = f.states.VerifyState(t.Context(), "one/a"); err != nil || state.LastError != "" ||
			state.LastSuccess.IsZero() {
			t.Errorf("state: %+v, %v", state, err)
		}
		f.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(),
			func(f *verifyFixture) { f.holdErr = errors.New("unreachable") }, "one")
		rest(5 * time.Minute)
		f.then(func() { f.holdErr = nil })
		rest(time.Hour)
		f.saw("10m0s one/a structure")
		f.stop()
	})
}

// TestFailedPassOfTheCycleIsRetriedAlone: what is verified at any time is not verified again for
// that, and the tries become rare.
func TestFailedPassOfTheCycleIsRetriedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(),
			func(f *verifyFixture) { f.failing, f.takes = 3, time.Minute }, "one")
		rest(25 * time.Hour)
		f.saw("0s one/a structure", "11m0s one/a pass", "31m0s one/a pass", "1h11m0s one/a pass",
			"24h0m0s one/a structure")
		f.then(func() { f.failing = 1000 })
		rest(24 * time.Hour)
		f.saw("48h0m0s one/a structure", "48h11m0s one/a pass", "48h31m0s one/a pass")
		f.then(func() { f.failing = 0 })
		rest(24 * time.Hour)
		f.saw("49h11m0s one/a pass", "72h0m0s one/a structure")
		f.stop()
	})
}

// TestVerifyOfAForgedSnapshotWaits: write access to the store must not be enough to occupy the
// daemon.
func TestVerifyOfAForgedSnapshotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(), func(f *verifyFixture) {
			f.outcome, f.err = "", &store.TrustError{Trust: store.Unsigned}
		}, "one")
		rest(25 * time.Hour)
		f.saw("0s one/a structure", "24h0m0s one/a structure")
		f.stop()
	})
}

// TestFullVerifyReplacesTheOther: a full verify includes the structure.
func TestFullVerifyReplacesTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := structureDaily()
		o.FullEvery = 72 * time.Hour
		var gone atomic.Bool
		o.Identity = func() ([]byte, error) {
			if gone.Load() {
				return nil, errors.New("no such file")
			}
			return []byte(" with an identity"), nil
		}
		f := newVerifyFixture(t, t.TempDir()+"/c.db", o, func(*verifyFixture) {}, "one")
		rest(97 * time.Hour)
		f.saw("0s one/a full with an identity", "24h0m0s one/a structure", "48h0m0s one/a structure",
			"72h0m0s one/a full with an identity", "96h0m0s one/a structure")
		gone.Store(true)
		rest(72 * time.Hour)
		// structure needs no identity
		f.saw("120h0m0s one/a structure", "144h0m0s one/a structure", "168h0m0s one/a structure")
		f.stop()
	})
}

// TestClockThatGoesBackStopsNoVerify: what a clock that was ahead by years made due is due now.
func TestClockThatGoesBackStopsNoVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(), func(*verifyFixture) {}, "l")
		rest(time.Hour)
		f.saw("0s l/a structure")
		l := f.locations["l"]
		l.list = l.list.Add(tenYears)
		l.sources["a"][0].due = l.sources["a"][0].due.Add(tenYears)
		f.NewSnapshot("l", "a") // makes the verifier look
		rest(time.Minute)
		f.saw("1h0m0s l/a structure")
		rest(24 * time.Hour)
		f.saw("25h0m0s l/a structure")
		f.stop()
	})
}
