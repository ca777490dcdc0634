package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// copyFixture is a copier whose runs take a time and end as they are told.
type copyFixture struct {
	*Copier
	t       *testing.T
	started time.Time
	stop    func()

	mu     sync.Mutex
	takes  time.Duration
	err    error // of runs
	refuse error // of their beginning
	idle   bool  // no run begins, and that is no error
	stops  bool  // an operator stops runs
	bugs   int   // as many runs panic
	begun  []string
	pruned []string
	prunes map[string]time.Time
}

func newCopyFixture(t *testing.T, set func(f *copyFixture), copies ...Copy) *copyFixture {
	t.Helper()
	f := &copyFixture{t: t, started: time.Now(), prunes: map[string]time.Time{}}
	set(f)
	f.Copier = NewCopier(CopierOptions{Copies: copies, Begin: f, Log: slog.New(slog.DiscardHandler),
		Prune: func(location string) bool { return strings.HasPrefix(location, "pruned") }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-done
	}
	return f
}

// copyRun ends after a time, or with its copier.
type copyRun struct {
	f     *copyFixture
	ended chan struct{}
	err   error
	stops bool
}

func (*copyRun) Operation() catalog.Operation { return catalog.Operation{} }

func (r *copyRun) Wait() error {
	<-r.ended
	return r.err
}

func (r *copyRun) Stopped() bool { return r.stops }

func (f *copyFixture) BeginCopy(ctx context.Context, c Copy) (Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bugs > 0 {
		f.bugs--
		panic("a bug")
	}
	at := time.Since(f.started).Round(time.Second)
	if f.idle || f.refuse != nil {
		return nil, f.refuse
	}
	f.begun = append(f.begun, fmt.Sprintf("%s %s-%s", at, c.From, c.To))
	run := &copyRun{f: f, ended: make(chan struct{}), err: f.err, stops: f.stops}
	takes := f.takes
	go func() {
		defer close(run.ended)
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}()
	return run, nil
}

func (f *copyFixture) BeginPrune(schedule, location string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pruned = append(f.pruned, schedule+location)
	f.prunes[location] = time.Now()
}

func (f *copyFixture) LastPrune(location string) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.prunes[location], false
}

func (f *copyFixture) then(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// saw compares the runs since the last call.
func (f *copyFixture) saw(want ...string) {
	f.t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.begun)
	if diff := cmp.Diff(want, f.begun, cmp.Transformer("sort", func(s []string) []string {
		return slices.Sorted(slices.Values(s))
	})); diff != "" && len(want)+len(f.begun) > 0 {
		f.t.Errorf("runs (-want +got):\n%s", diff)
	}
	f.begun = nil
}

// TestACopyFollowsEachChange: a run begins when the daemon starts, when there is something new, and
// each hour; changes during a run and shortly after it make one more.
func TestACopyFollowsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.takes = 10 * time.Second }, Copy{"main", "offsite"})
		time.Sleep(10 * time.Minute)
		f.saw("0s main-offsite")
		f.Changed("main")
		f.Changed("elsewhere")
		f.saw("10m0s main-offsite")
		for range 50 {
			f.Changed("main")
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		f.saw("11m10s main-offsite")
		time.Sleep(2 * time.Hour)
		f.saw("1h11m20s main-offsite", "2h11m30s main-offsite")
		f.stop()
	})
}

// TestAFailedCopyIsRetriedWithBackoff: a minute, then twice as long each, at most half an hour; new
// snapshots do not make it faster, and a success ends it.
func TestAFailedCopyIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.err = errors.New("no space") },
			Copy{"main", "offsite"})
		const hours = 6
		for range hours * 60 {
			time.Sleep(time.Minute)
			f.Changed("main")
		}
		synctest.Wait()
		f.then(func() {
			// after 1, 2, 4, 8, 16 minutes and then each 30, or at least half of that
			if n, most := len(f.begun), 7+2*2*hours; n < 5+2*(hours-1) || n > most {
				t.Errorf("%d runs in %d hours", n, hours)
			}
			f.err = nil
		})
		time.Sleep(31 * time.Minute)
		f.then(func() { f.begun, f.started = nil, time.Now() })
		time.Sleep(10 * time.Minute)
		f.Changed("main")
		f.saw("10m0s main-offsite")
		f.stop()
	})
}

// TestACopyThatLeavesSomethingBehindFollowsChanges: one damaged snapshot does not hold up new ones.
func TestACopyThatLeavesSomethingBehindFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.err = fmt.Errorf("one: %w", ErrLeftBehind) },
			Copy{"main", "offsite"})
		const changes = 40
		for range changes {
			time.Sleep(3 * time.Minute)
			f.Changed("main")
		}
		synctest.Wait()
		f.then(func() {
			if n := len(f.begun); n < changes {
				t.Errorf("%d runs after %d changes", n, changes)
			}
		})
		f.stop()
	})
}

// TestACopyThatLeavesSomethingBehindIsPrunedAndCopied: what was copied is there for a copy of the
// copy, and old snapshots of it go, as after a run that left nothing behind. After a run that
// failed in another way nothing is done.
func TestACopyThatLeavesSomethingBehindIsPrunedAndCopied(t *testing.T) {
	for _, tt := range []struct {
		err           error
		pruned, begun []string
	}{
		{fmt.Errorf("one: %w", ErrLeftBehind), []string{"pruned"},
			[]string{"10m0s main-pruned", "10m0s pruned-third"}},
		{errors.New("no space"), nil, []string{"10m0s main-pruned"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newCopyFixture(t, func(*copyFixture) {}, Copy{"main", "pruned"}, Copy{"pruned", "third"})
			time.Sleep(10 * time.Minute)
			f.then(func() {
				f.err, f.begun, f.pruned = tt.err, nil, nil
				clear(f.prunes)
			})
			f.Changed("main")
			f.saw(tt.begun...)
			f.then(func() {
				if diff := cmp.Diff(tt.pruned, f.pruned); diff != "" {
					t.Errorf("after %v, prunes (-want +got):\n%s", tt.err, diff)
				}
			})
			f.stop()
		})
	}
}

// TestACopyThatCannotBeginIsRetried as one that fails; where there is nothing to copy yet, or a run
// of an operator is going, nothing has failed, and it is looked again each minute.
func TestACopyThatCannotBeginIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.refuse = errors.New("unreachable") },
			Copy{"main", "offsite"})
		time.Sleep(2 * time.Hour) // the wait is half an hour by now
		f.then(func() { f.refuse, f.begun = nil, nil })
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		f.then(func() {
			if len(f.begun) != 1 {
				t.Errorf("runs %v", f.begun)
			}
			f.begun, f.idle, f.started = nil, true, time.Now()
		})
		time.Sleep(3 * time.Hour)
		f.then(func() { f.idle, f.started = false, time.Now() })
		time.Sleep(time.Minute)
		synctest.Wait()
		f.then(func() {
			if len(f.begun) != 1 {
				t.Errorf("runs %v", f.begun)
			}
		})
		f.stop()
	})
}

// TestAStoppedCopyWaitsForTheNextHour: the operator who stopped it had a reason.
func TestAStoppedCopyWaitsForTheNextHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.err, f.stops = errors.New("stopped"), true },
			Copy{"main", "offsite"})
		time.Sleep(61 * time.Minute)
		f.saw("0s main-offsite", "1h0m0s main-offsite")
		f.stop()
	})
}

// TestACopyOfACopyFollowsIt, one that is slow delays no other, and a prune follows at most once in
// an hour.
func TestACopyOfACopyFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.takes = time.Minute },
			Copy{"main", "pruned"}, Copy{"pruned", "third"},
			Copy{"other", "pruned-too"})
		time.Sleep(30 * time.Minute)
		// what is copied from an empty place at first is copied once more
		f.saw("0s main-pruned", "0s other-pruned-too", "0s pruned-third", "2m0s pruned-third")
		f.Changed("main")
		time.Sleep(20 * time.Minute)
		f.saw("30m0s main-pruned", "31m0s pruned-third")
		f.then(func() {
			if diff := cmp.Diff([]string{"pruned", "pruned-too"},
				slices.Sorted(slices.Values(f.pruned))); diff != "" {
				t.Errorf("prunes (-want +got):\n%s", diff)
			}
			f.pruned = nil
		})
		f.Changed("main")
		time.Sleep(time.Hour + 3*time.Minute)
		f.then(func() {
			if !slices.Contains(f.pruned, "pruned") {
				t.Errorf("prunes %v", f.pruned)
			}
		})
		f.stop()
	})
}
