package schedule

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestScheduleGoesOnAfterAPanic: a run that panics has ended with that error, and is retried like
// others, whether the schedule began it or an operator did.
func TestScheduleGoesOnAfterAPanic(t *testing.T) {
	for name, set := range map[string]func(*fixture){
		"as it begins": func(f *fixture) { f.bugs = 1 },
		"as it ends":   func(f *fixture) { f.lateBugs = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				panics := 0
				f := newFixtureThat(t, t.TempDir()+"/c.db", func(f *fixture) {
					set(f)
					f.Panicked = func(error) { panics++ }
				}, Schedule{Name: "s", Cron: "@every 24h"})
				rest(time.Second)
				state, err := f.States.ScheduleState(t.Context(), "s")
				if err != nil || panics != 1 || !strings.Contains(state.LastError, "a bug ended this") {
					t.Errorf("after %d panics: %+v, %v", panics, state, err)
				}
				rest(time.Hour)
				state, err = f.States.ScheduleState(t.Context(), "s")
				if err != nil || panics != 1 || state.LastError != "" || state.LastSuccess.IsZero() {
					t.Errorf("after the retry: %+v, %v", state, err)
				}
				f.mu.Lock()
				f.lateBugs = 1
				f.mu.Unlock()
				if _, err := f.RunNow(t.Context(), "s"); err != nil {
					t.Error(err)
				}
				rest(time.Hour)
				if _, err := f.RunNow(t.Context(), "s"); err != nil || panics != 2 {
					t.Errorf("after %d panics: %v", panics, err)
				}
				f.stop()
			})
		})
	}
}

// TestVerifierGoesOnAfterAPanic: the loop of its location begins again.
func TestVerifierGoesOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVerifyFixture(t, t.TempDir()+"/c.db", structureDaily(),
			func(f *verifyFixture) { f.bugs = 2 }, "one")
		rest(25 * time.Hour)
		f.saw("2m0s one/a structure", "24h2m0s one/a structure")
		f.stop()
	})
}

// TestCopierGoesOnAfterAPanic: the loop of its copy begins again.
func TestCopierGoesOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCopyFixture(t, func(f *copyFixture) { f.bugs = 2 }, Copy{From: "a", To: "b"})
		rest(10 * time.Minute)
		f.mu.Lock()
		if diff := cmp.Diff([]string{"2m0s a-b"}, f.begun); diff != "" {
			t.Error(diff)
		}
		f.mu.Unlock()
		f.stop()
	})
}
