package schedule

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// stores has the snapshots of the runs, except those that somebody hid.
type stores struct{ *fixture }

// keyOf returns the key of the snapshot of the run with this number, from 1.
func (s *stores) keyOf(n int) store.EnvelopeKey {
	return store.EnvelopeKey{Source: "uid", Time: s.begun[n-1].Add(s.dated),
		ID: store.SnapshotID(fmt.Sprintf("%012x", n))}
}

func (s *stores) hidden(n int) bool {
	return s.hidesAfter > 0 && n > s.visible && !time.Now().Before(s.begun[n-1].Add(s.hidesAfter))
}

func (s *stores) Taken(_ context.Context, op catalog.OperationID) (store.EnvelopeKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int
	_, err := fmt.Sscanf(string(op), "op%d", &n)
	return s.keyOf(n), err
}

func (s *stores) IsStored(_ context.Context, _ Schedule, key store.EnvelopeKey) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(string(key.ID), "%x", &n); err != nil {
		return false, err
	}
	return !s.hidden(n), s.unreadable
}

func (s *stores) NewestStored(context.Context, Schedule, string) (Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	for n := len(s.begun); n > 0; n-- {
		if !s.hidden(n) {
			return Stored{Key: s.keyOf(n), Time: s.keyOf(n).Time}, s.unreadable
		}
	}
	return Stored{}, s.unreadable
}

// setStore changes what the store answers.
func (f *fixture) setStore(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

const hourly = "CRON_TZ=UTC 0 * * * *"

func TestHiddenSnapshotsMakeAScheduleOverdue(t *testing.T) {
	for _, tt := range []struct {
		name       string
		cron       string
		hidesAfter time.Duration
		always     bool // a run hides it at no time
	}{
		{"hidden at once", hourly, time.Nanosecond, true},
		{"hidden after seconds", hourly, 20 * time.Second, true},
		{"hidden after minutes", hourly, 20 * time.Minute, false},
		{"of a schedule of many runs", "@every 5m", 50 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: tt.cron, Location: "l"})
				rest(3*time.Hour + time.Minute)
				if by, _, _ := f.observed(); by != 0 || f.only().Overdue {
					t.Fatalf("overdue by %s while every snapshot is there", by)
				}
				f.setStore(func() { f.visible, f.hidesAfter = len(f.begun), tt.hidesAfter })
				newest := f.only().LastSuccess
				rest(6*time.Hour - 2*time.Minute)
				s := f.only()
				if age := time.Since(s.LastSuccess); age > time.Hour+time.Minute {
					t.Fatalf("the runs do not succeed: the last one began %s ago", age)
				}
				if !s.Overdue || !s.Newest.Equal(newest) || !f.newest.Equal(newest) {
					t.Errorf("overdue %t, newest %s and in the metric %s; want true, %s", s.Overdue, s.Newest,
						f.newest, newest)
				}
				f.passTime(func() {
					if by, _, _ := f.observed(); by < 4*time.Hour && tt.always {
						t.Errorf("%s: overdue by %s", time.Since(began), by)
					}
				})
				if f.lists > 10 {
					t.Errorf("the store was listed %d times", f.lists)
				}
				f.stop()
			})
		})
	}
}

// passTime calls fn in each quarter of a minute of an hour.
func (f *fixture) passTime(fn func()) {
	for range 60 * 4 {
		rest(15 * time.Second)
		fn()
	}
}

func TestAScheduleIsNotOverdueOnceItsSnapshotsStayAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: hourly, Location: "l"})
		f.setStore(func() { f.hidesAfter, f.visible = time.Nanosecond, 1 })
		rest(3*time.Hour + 2*time.Minute)
		if by, _, _ := f.observed(); by < 2*time.Hour {
			t.Errorf("overdue by %s", by)
		}
		f.setStore(func() { f.hidesAfter = 0 })
		rest(time.Hour)
		if by, _, _ := f.observed(); by != 0 {
			t.Errorf("overdue by %s although the last snapshot is there", by)
		}
		f.stop()
	})
}

func TestSnapshotsThatNobodyCouldSearchForDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, t.TempDir()+"/c.db", Schedule{Name: "s", Cron: hourly, Location: "l"})
		rest(3*time.Hour + 2*time.Minute)
		f.setStore(func() { f.unreadable = errors.New("denied") })
		rest(4 * time.Hour)
		if by, _, _ := f.observed(); by < 3*time.Hour {
			t.Errorf("overdue by %s although nobody can read the store", by)
		}
		f.setStore(func() { f.unreadable = nil })
		rest(storeEvery)
		if by, _, _ := f.observed(); by != 0 {
			t.Errorf("overdue by %s although the store is read again", by)
		}
		f.stop()
	})
}

func TestASnapshotOfAClockThatWasAheadHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureThat(t, t.TempDir()+"/c.db",
			func(f *fixture) { f.setStore(func() { f.dated = 10 * 365 * 24 * time.Hour }) },
			Schedule{Name: "s", Cron: hourly, Location: "l"})
		rest(2*time.Hour + 2*time.Minute)
		f.setStore(func() { f.hidesAfter, f.visible = time.Nanosecond, 3 })
		rest(6 * time.Hour)
		if by, _, _ := f.observed(); by < 4*time.Hour {
			t.Errorf("overdue by %s: the newest snapshot in the store has a time in the future", by)
		}
		f.stop()
	})
}

func TestAnotherSelectionIsNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		f := newFixture(t, path, Schedule{Name: "s", Cron: hourly, Location: "l"})
		rest(2 * time.Minute)
		f.stop()
		f = newFixtureThat(t, path,
			func(f *fixture) { f.setStore(func() { f.hidesAfter = time.Nanosecond }) },
			Schedule{Name: "s", Cron: hourly, Location: "l", Namespaces: []string{"a"}})
		rest(30 * time.Minute)
		if by, _, _ := f.observed(); by != 0 {
			t.Errorf("overdue by %s before the first run with this selection", by)
		}
		f.stop()
	})
}

func TestARestartRemembersWhichSnapshotIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/c.db"
		s := Schedule{Name: "s", Cron: hourly, Location: "l"}
		f := newFixture(t, path, s)
		rest(2*time.Hour + 30*time.Minute)
		f.stop()
		begun := f.begun
		f = newFixtureThat(t, path, func(f *fixture) {
			f.setStore(func() { f.begun, f.hidesAfter, f.visible = begun, time.Nanosecond, 1 })
		}, s)
		rest(time.Minute)
		if by, _, _ := f.observed(); by < 90*time.Minute {
			t.Errorf("overdue by %s after a restart", by)
		}
		f.stop()
	})
}
