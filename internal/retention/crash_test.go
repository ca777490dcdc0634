package retention

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// TestPruneSurvivesACrashAtEveryCall: a prune, and the deletion of a snapshot, may die at any call
// of the storage: every snapshot that is there stays whole, and the next one comes to the same end.
func TestPruneSurvivesACrashAtEveryCall(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	first := (&taker{st: st, source: sourceA}).hourly(t, b, 3)
	(&taker{st: st, source: sourceB}).hourly(t, b, 2)
	if err := st.PutPin(t.Context(), first[0].Key(), "", b.time()); err != nil {
		t.Fatal(err)
	}
	// an unpin
	replace(t, b, "pins/"+strings.TrimPrefix(first[0].Key().String(), "snapshots/"), nil)
	b.pass(24 * time.Hour)
	copied := func(t *testing.T) *clocked {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(dir, os.DirFS(b.String())); err != nil {
			t.Fatal(err)
		}
		return &clocked{Bucket: directory.New(dir), now: b.now, written: maps.Clone(b.written),
			retained: map[string]bool{}, size: b.size}
	}
	state := func(t *testing.T, b *clocked) map[string]int {
		t.Helper()
		kinds := map[string]int{}
		err := b.List(t.Context(), "", func(i bucket.Info) error {
			kind, _, _ := strings.Cut(i.Key, "/")
			kinds[kind]++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		delete(kinds, "prunes") // one more for each try
		return kinds
	}
	for name, tt := range map[string]struct {
		size   int // of batches
		change func(*Options)
	}{
		"prune":            {0, func(o *Options) { o.Policy = Policy{Last: 1} }},
		"prune in batches": {3, func(o *Options) { o.Policy = Policy{Last: 1} }},
		"delete":           {0, func(o *Options) { o.Delete = []store.EnvelopeKey{first[1].Key()} }},
	} {
		t.Run(name, func(t *testing.T) {
			b.size = tt.size
			run := func(b *clocked, armed int, after bool) (int, error) {
				m := faultbucket.NewMortal(b)
				o := options(openPlain(t, m), b, Policy{})
				tt.change(&o)
				m.DieAt(armed, after)
				_, err := prune(t.Context(), o)
				return m.Calls(), err
			}
			b := copied(t)
			calls, err := run(b, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			want := state(t, b)
			if calls < 20 {
				t.Fatalf("only %d calls", calls)
			}
			for at := 1; at <= calls; at++ {
				for _, after := range []bool{false, true} {
					b := copied(t)
					if _, err := run(b, at, after); !errors.Is(err, faultbucket.ErrDied) {
						t.Fatalf("call %d: %v, want a crash", at, err)
					}
					whole(t, openPlain(t, b))
					if _, err := run(b, 0, false); err != nil {
						t.Fatalf("after a crash at call %d (after: %v): %v", at, after, err)
					}
					whole(t, openPlain(t, b))
					if diff := cmp.Diff(want, state(t, b)); diff != "" {
						t.Fatalf("after a crash at call %d (after: %v) and another prune (-want +got):\n%s", at,
							after, diff)
					}
				}
			}
		})
	}
}

// TestPrunesRemoveNothingThatWritersNeed: two daemons write snapshots of two sources to one store
// while two prunes run. The prunes remove nothing that the daemons need.
func TestPrunesRemoveNothingThatWritersNeed(t *testing.T) {
	b := newClocked(t)
	st := openPlain(t, b)
	var writers, prunes sync.WaitGroup
	done := make(chan struct{})
	errs := make(chan error, 8)
	var clock sync.RWMutex
	for _, source := range []string{sourceA, sourceB} {
		writers.Go(func() {
			w := &taker{st: st, source: source, storing: func(began time.Time, publish func() error) error {
				clock.RLock()
				defer clock.RUnlock()
				if store.Exceeded(began, b.time(), store.MaxRun) {
					return errTooLong
				}
				return publish()
			}}
			for w.sequence < 50 {
				clock.Lock()
				b.pass(9 * time.Minute)
				clock.Unlock()
				// Its last one is its parent: it is the newest.
				if _, err := w.put(t.Context(), b.time(), nil); err != nil && !errors.Is(err, errTooLong) {
					errs <- err
					return
				}
			}
		})
	}
	removed := make([]int, 2)
	for i := range removed {
		prunes.Go(func() {
			for {
				o := options(st, b, Policy{Last: 1})
				o.Grace = MinGrace
				r, err := prune(t.Context(), o)
				if err != nil && strings.HasPrefix(err.Error(), "stat prunes/") {
					// an hour passed since it wrote its record, and the other one replaced it
					continue
				}
				if err != nil {
					errs <- err
					return
				}
				removed[i] += len(r.Removed)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	prunes.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	whole(t, st)
	if removed[0]+removed[1] == 0 {
		t.Error("no prune removed a snapshot")
	}
	b.pass(24 * time.Hour)
	mustPrune(t, options(st, b, Policy{Last: 1}))
	whole(t, st)
	if got := left(t, st); got != "a50 b50" {
		t.Errorf("%s are left", got)
	}
}
