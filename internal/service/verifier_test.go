package service

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
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// verifyBench is a verifier over a catalog whose verifies take a given time and come to a given
// result. The clock is synctest's.
type verifyBench struct {
	*verifier
	t    *testing.T
	stop func()

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
}

func newVerifyBench(t *testing.T, path string, o VerifyOptions, set func(*verifyBench),
	locations ...string) *verifyBench {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &verifyBench{t: t, began: time.Now(), holds: []string{"a"}, outcome: store.OutcomeOK,
		going: map[string]bool{}}
	set(b)
	b.verifier = &verifier{VerifyOptions: o, states: c,
		log: slog.New(slog.DiscardHandler), locations: map[string]*verifiedLocation{}}
	b.verifier.known = func(location, source string, level store.VerifyLevel, last time.Time) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.known = append(b.known, fmt.Sprintf("%s/%s %s %v", location, source, level, !last.IsZero()))
	}
	b.sources = func(context.Context, string) ([]string, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.holds, b.holdErr
	}
	b.begin = b.beginOne
	for _, l := range locations {
		b.add(l)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.run(ctx) }()
	b.stop = func() {
		cancel()
		<-done
		if problems := c.Check(context.WithoutCancel(ctx)); len(problems) > 0 {
			t.Error(problems)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return b
}

func (b *verifyBench) beginOne(ctx context.Context, w wantedVerify) (*mgmtv1.Operation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return nil, b.refuse
	}
	if b.going[w.location] || w.id != latest || w.noRecord {
		b.t.Errorf("begun: %+v, while one is going in this location: %v", w, b.going[w.location])
	}
	b.going[w.location] = true
	b.begun = append(b.begun, fmt.Sprintf("%s %s/%s %s", time.Since(b.began), w.location, w.source,
		w.level)+string(w.identity))
	ends, outcome, err := time.After(b.takes), b.outcome, b.err
	go func() {
		select {
		case <-ends:
		case <-ctx.Done():
			outcome, err = "", errDaemonEnds
		}
		b.mu.Lock()
		b.going[w.location] = false
		b.mu.Unlock()
		w.ended(outcome, err)
	}()
	return &mgmtv1.Operation{Id: fmt.Sprintf("op%d", len(b.begun))}, nil
}

// saw compares what was begun and forgets it.
func (b *verifyBench) saw(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := cmp.Diff(want, b.begun); diff != "" {
		b.t.Error(diff)
	}
	b.begun = nil
}

func (b *verifyBench) then(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func structureDaily() VerifyOptions {
	return VerifyOptions{Every: 24 * time.Hour, Level: store.LevelStructure}
}

func TestVerifyEachSourceOfEachLocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newVerifyBench(t, t.TempDir()+"/c.db", structureDaily(), func(b *verifyBench) {
			b.holds,
				b.takes = []string{"b", "a"}, time.Minute
		}, "one")
		rest(49 * time.Hour)
		b.saw("0s one/a structure", "1m0s one/b structure", "24h0m0s one/a structure",
			"24h1m0s one/b structure", "48h0m0s one/a structure", "48h1m0s one/b structure")
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newVerifyBench(t, t.TempDir()+"/c.db", structureDaily(),
			func(b *verifyBench) { b.takes = time.Minute }, "one", "two")
		rest(time.Hour)
		b.then(func() {
			if len(b.begun) != 2 || b.begun[0] == b.begun[1] || b.begun[0][:3] != "0s " ||
				b.begun[1][:3] != "0s " {
				t.Errorf("not both locations at once: %v", b.begun)
			}
		})
		b.stop()
	})
}

func TestVerifyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newVerifyBench(t, t.TempDir()+"/c.db", VerifyOptions{}, func(*verifyBench) {}, "one")
		b.taken("one", "a")
		rest(1000 * time.Hour)
		b.saw()
		b.stop()
	})
}

// TestVerifyFirstSnapshotAtOnce: a store that was empty is not asked again before a day has passed;
// a snapshot of this daemon says that there is something.
func TestVerifyFirstSnapshotAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newVerifyBench(t, t.TempDir()+"/c.db", structureDaily(),
			func(b *verifyBench) { b.holds = nil }, "one")
		rest(time.Hour)
		b.saw()
		for range 50 {
			b.taken("one", "a")
		}
		rest(time.Hour)
		b.saw("1h0m0s one/a structure")
		b.then(func() { b.holds = []string{"a", "b"} }) // another daemon's
		rest(23 * time.Hour)
		b.saw("24h0m0s one/b structure", "25h0m0s one/a structure")
		b.stop()
	})
}

// TestVerifyOutlivesRestarts: what was done is not done again, what was missed is made up for once.
func TestVerifyOutlivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		b := newVerifyBench(t, path, structureDaily(), func(*verifyBench) {}, "one")
		rest(time.Hour)
		b.saw("0s one/a structure")
		b.stop()
		b = newVerifyBench(t, path, structureDaily(), func(*verifyBench) {}, "one")
		rest(22 * time.Hour)
		b.saw()
		b.then(func() {
			if diff := cmp.Diff([]string{"one/a structure true"}, b.known); diff != "" {
				t.Error(diff)
			}
		})
		b.stop()
		time.Sleep(100 * time.Hour)
		b = newVerifyBench(t, path, structureDaily(), func(*verifyBench) {}, "one")
		rest(time.Hour)
		b.saw("0s one/a structure")
		b.stop()
	})
}

// TestVerifyInterruptedBeginsAnew with the next daemon, and not a day later.
func TestVerifyInterruptedBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		b := newVerifyBench(t, path, structureDaily(), func(b *verifyBench) { b.takes = time.Hour },
			"one")
		rest(time.Minute)
		b.saw("0s one/a structure")
		b.stop()
		b = newVerifyBench(t, path, structureDaily(), func(b *verifyBench) { b.takes = 30 * time.Hour },
			"one")
		rest(31 * time.Hour)
		// one that was due while it was going comes after it, once
		b.saw("0s one/a structure", "30h0m0s one/a structure")
		b.stop()
	})
}

func TestVerifyFailedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		b := newVerifyBench(t, path, structureDaily(),
			func(b *verifyBench) { b.refuse = errors.New("unreachable") }, "one")
		rest(5 * time.Minute)
		b.then(func() { b.refuse, b.outcome, b.err = nil, "", errors.New("unreachable in the middle") })
		rest(10 * time.Minute)
		b.saw("10m0s one/a structure")
		b.then(func() { b.outcome, b.err = store.OutcomeDamaged, errors.New("1 of 3 keys") })
		rest(24 * time.Hour)
		b.saw("20m0s one/a structure") // damage is a result
		state, err := b.states.VerifyState(t.Context(), "one/a")
		if err != nil || state.LastError != "1 of 3 keys" || !state.LastSuccess.IsZero() ||
			state.LastOperation != "op1" {
			t.Errorf("state: %+v, %v", state, err)
		}
		b.then(func() { b.outcome, b.err = store.OutcomeOK, nil })
		rest(time.Hour)
		b.saw("24h20m0s one/a structure")
		if state, err = b.states.VerifyState(t.Context(), "one/a"); err != nil || state.LastError != "" ||
			state.LastSuccess.IsZero() {
			t.Errorf("state: %+v, %v", state, err)
		}
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newVerifyBench(t, t.TempDir()+"/c.db", structureDaily(),
			func(b *verifyBench) { b.holdErr = errors.New("unreachable") }, "one")
		rest(5 * time.Minute)
		b.then(func() { b.holdErr = nil })
		rest(time.Hour)
		b.saw("10m0s one/a structure")
		b.stop()
	})
}

// TestVerifyOfAForgedSnapshotWaits: whoever can write to the store must not keep the daemon busy.
func TestVerifyOfAForgedSnapshotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newVerifyBench(t, t.TempDir()+"/c.db", structureDaily(), func(b *verifyBench) {
			b.outcome,
				b.err = "", &store.TrustError{Trust: store.Unsigned}
		}, "one")
		rest(25 * time.Hour)
		b.saw("0s one/a structure", "24h0m0s one/a structure")
		b.stop()
	})
}

// TestFullVerifyTakesThePlaceOfTheOther: it looks at the structure, too.
func TestFullVerifyTakesThePlaceOfTheOther(t *testing.T) {
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
		b := newVerifyBench(t, t.TempDir()+"/c.db", o, func(*verifyBench) {}, "one")
		rest(97 * time.Hour)
		b.saw("0s one/a full with an identity", "24h0m0s one/a structure", "48h0m0s one/a structure",
			"72h0m0s one/a full with an identity", "96h0m0s one/a structure")
		gone.Store(true)
		rest(72 * time.Hour)
		// the one that needs none goes on
		b.saw("120h0m0s one/a structure", "144h0m0s one/a structure", "168h0m0s one/a structure")
		b.stop()
	})
}
