package service

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// TestADayWithAnAttacker lets the schedules of a daemon run for 7 hours, and for a whole day with
// MGMTD_TEST_STATES, while somebody with access to the bucket does one thing after the other, each
// half an hour. At the end the newest snapshot of each scope is found, and can be read, and each
// kind of attack was reported.
func TestADayWithAnAttacker(t *testing.T) {
	for _, tt := range []struct {
		name    string
		attacks []attack
		hurts   bool // there is something to bring back
	}{
		{"nobody", nil, false},
		{"puts beside snapshots", putsBeside, false},
		{"puts over everything", putsOver, true},
		{"hides everything", hides, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := newAttackedDay(t, faultbucket.NewVersioned())
				defer d.close()
				d.pass(2*time.Hour + time.Minute)
				d.prepare()
				for n := range halfHours() {
					d.pass(30 * time.Minute)
					if len(tt.attacks) > 0 {
						d.attack(tt.attacks[n%len(tt.attacks)], n)
					}
				}
				if back := d.repair(); (back > 0) != tt.hurts {
					t.Errorf("a repair brought back %d keys", back)
				}
				d.assertNewest()
				d.verify()
				d.assertAttacksReported(tt.attacks)
				if tt.attacks == nil {
					d.assertQuiet()
				}
			})
		})
	}
}

// halfHours is how many of a day are left to an attacker: the longest list of attacks is gone
// through twice.
func halfHours() int {
	if long {
		return 44
	}
	return 10
}

// TestAClockThatWasTenYearsAhead lets the clock of the daemon's host be ahead for an hour: after
// that the schedules go on, nothing good was removed, and the newest snapshot is the last one.
func TestAClockThatWasTenYearsAhead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newAttackedDay(t, faultbucket.NewVersioned())
		defer d.close()
		d.pass(4 * time.Hour)
		before := d.bucket.Keys("snapshots/")
		d.setClock(10 * 365 * 24 * time.Hour)
		d.pass(time.Hour)
		wrong := d.newestKey()
		d.attacked[wrongClock.name] = slices.DeleteFunc(d.bucket.Keys("snapshots/"),
			func(key string) bool { return slices.Contains(before, key) })
		d.setClock(0)
		d.pass(4*time.Hour + time.Minute)
		if d.newestKey() == wrong {
			t.Error("no snapshot was taken after the clock was right again")
		}
		d.assertNewest()
		d.verify()
		d.assertAttacksReported([]attack{wrongClock})
		for _, s := range d.cfg.Schedules {
			if testutil.ToFloat64(d.metrics.wentBack.WithLabelValues(s.Name)) == 0 {
				t.Errorf("it is not reported that the clock of %s went back", s.Name)
			}
		}
	})
}

func (d *attackedDay) close() {
	if err := d.Close(); err != nil {
		d.t.Error(err)
	}
}

// assertQuiet asserts that a day without an attacker has no finding.
func (d *attackedDay) assertQuiet() {
	d.t.Helper()
	if messages := d.messages(); len(messages) > 0 {
		d.t.Errorf("reported without a reason: %v", messages)
	}
}

// TestHiddenSnapshotsAreOverdueAlthoughEachRunSucceeds lets somebody hide each new envelope a
// moment after it was written. The runs go on and succeed; the schedules are overdue all the same.
func TestHiddenSnapshotsAreOverdueAlthoughEachRunSucceeds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := faultbucket.NewVersioned()
		d := newAttackedDay(t, b)
		defer d.close()
		d.pass(3*time.Hour + 2*time.Minute)
		if by := d.overdue("all"); by != 0 {
			t.Fatalf("overdue by %s before anything was hidden", by)
		}
		envelopes := "snapshots/" + d.source.UID + "/"
		there := b.Keys(envelopes)
		d.during(6*time.Hour-4*time.Minute, func() {
			for _, key := range b.Keys(envelopes) {
				if !slices.Contains(there, key) {
					b.Hide(key)
				}
			}
		})
		for _, name := range []string{"all", "team"} {
			state, err := d.runs.catalog.ScheduleState(t.Context(), name)
			if err != nil || d.now().Sub(state.LastSuccess) > time.Hour || state.LastError != "" {
				t.Fatalf("the runs of %s do not succeed: %+v, %v", name, state, err)
			}
			if by := d.overdue(name); by < 4*time.Hour {
				t.Errorf("%s is overdue by %s only", name, by)
			}
		}
		d.assertReported(object.CodeSnapshotMissing)
	})
}

// overdue returns what the metric says of a schedule.
func (d *attackedDay) overdue(name string) time.Duration {
	d.t.Helper()
	return time.Duration(testutil.ToFloat64(d.metrics.overdue.WithLabelValues(name))) * time.Second
}

// during lets the schedules run for a time, and calls do each five seconds.
func (d *attackedDay) during(hours time.Duration, do func()) {
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				do()
			}
		}
	}()
	d.pass(hours)
	cancel()
	<-done
}
