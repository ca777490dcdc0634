package move

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestUnitsMeetBeforeTheyArePaused: the fast one waits for the slow one, but not for one that left
// nor longer than the run lasts.
func TestUnitsMeetBeforeTheyArePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		together := newMeeting([]string{"a/fast", "a/slow", "a/failing"})
		go func() {
			time.Sleep(time.Minute)
			together.leave("a/failing")
		}()
		go func() {
			defer together.leave("a/slow")
			time.Sleep(time.Hour)
			if err := together.wait(t.Context(), "a/slow"); err != nil {
				t.Error(err)
			}
		}()
		if err := together.wait(t.Context(), "a/fast"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("the fast one waited for %s, the slow one comes after an hour", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if newMeeting([]string{"a/x", "a/y"}).wait(ctx, "a/x") == nil {
			t.Error("a run that ends does not end the wait")
		}
	})
}

// TestUnitsOfABatchShareACapture: those that are verified within a second wait for each other and
// get the same moment, which is after each of them came; one that is late, or that comes when the
// others have gone, is not waited for.
func TestUnitsOfABatchShareACapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight([]string{"a/first", "a/second", "a/failing", "a/blocked"})
		f.leaveOthers([]restore.Unit{{Name: "a/first"}, {Name: "a/second"}, {Name: "a/failing"}})
		began, first := time.Now(), make(chan time.Time)
		go func() { first <- f.meet(t.Context(), "a/first") }()
		time.Sleep(meetWait / 2)
		f.leave("a/failing")
		second := f.meet(t.Context(), "a/second")
		if at := <-first; !at.Equal(second) || at.Sub(began) != meetWait/2 {
			t.Errorf("moments after the first one came: %s and %s", at.Sub(began), second.Sub(began))
		}
		time.Sleep(time.Hour)
		if at := f.meet(t.Context(), "a/second"); !at.Equal(time.Now()) {
			t.Errorf("one that comes an hour later has a moment of before: %s", at.Sub(began))
		}
		alone := newFlight([]string{"a/x", "a/y"})
		began = time.Now()
		if at := alone.meet(t.Context(), "a/x"); at.Sub(began) != meetWait {
			t.Errorf("one whose neighbour is late waits for %s", at.Sub(began))
		}
		alone.end()
		if alone.released.over(t.Context()) != nil || alone.well.over(t.Context()) != nil {
			t.Error("the end of a flight does not end its meetings")
		}
	})
}

// asked counts the questions about rights.
type asked struct {
	Prober
	n     int
	error error
}

func (p *asked) Allowed(context.Context, string, kube.Kind, string) (bool, error) {
	p.n++
	return p.error == nil && p.n > 1, p.error
}

// TestARightIsAskedForOnce: but one that was missing, or of which the API server said nothing, is
// asked for again.
func TestARightIsAskedForOnce(t *testing.T) {
	p := &asked{}
	once := &askedOnce{Prober: p, answers: map[string]bool{}}
	for i, want := range []bool{false, true, true, true} {
		if got, err := once.Allowed(t.Context(), "get", kube.SecretKind, ""); got != want || err != nil {
			t.Errorf("answer %d: %v, %v", i, got, err)
		}
	}
	if p.n != 2 {
		t.Errorf("%d questions, want 2", p.n)
	}
	p.error = errors.New("no answer")
	for range 2 {
		if _, err := once.Allowed(t.Context(), "list", kube.SecretKind, ""); err == nil {
			t.Error("an error is forgotten")
		}
	}
}

// TestUnitsThatWereSeenAtWorkMakeRoom: the first one is alone, four may follow it, and more each
// time, up to the limit; the first one that fails ends it, and later two in a row.
func TestUnitsThatWereSeenAtWorkMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &run{Tuning: restore.Tuning{Concurrency: 3}, results: results{atWork: map[string]bool{},
			well: map[string]bool{}, retired: map[string]bool{}, byShared: map[string]bool{}}}
		p := &pipeline{run: m}
		began := time.Now()
		release := func(units ...string) *flight {
			f := newFlight(units)
			p.unseen = append(p.unseen, f)
			go func() {
				time.Sleep(time.Minute)
				for _, unit := range units {
					m.arrive(restore.Unit{Name: unit}, m.results.atWork, f.atWork)
				}
				time.Sleep(time.Hour)
				for _, unit := range units {
					m.arrive(restore.Unit{Name: unit}, m.results.well, f.well)
				}
			}()
			return f
		}
		for i, tt := range []struct {
			units int
			after time.Duration // of the release before
		}{{1, 0}, {1, time.Minute}, {1, 0}, {2, time.Minute}, {1, 0}, {1, 0}, {3, time.Hour}} {
			if was := time.Now(); !p.haveRoom(t.Context(), tt.units) || time.Since(was) != tt.after {
				t.Errorf("%d: room for %d after %s, want %s; %s in all", i, tt.units, time.Since(was),
					tt.after, time.Since(began))
			}
			release(fmt.Sprint("n/", i))
		}
		for i, want := range []bool{true, false} {
			failed := newFlight([]string{"n/failed"})
			failed.end()
			p.unseen = []*flight{failed}
			if p.haveRoom(t.Context(), 3) != want {
				t.Errorf("after %d failures in a row there is room: %t", i+1, !want)
			}
		}
		p = &pipeline{run: m}
		m.Tuning.Concurrency = 8
		for i, tt := range []struct {
			units int
			after time.Duration
		}{{1, 0}, {2, time.Minute}, {2, 0}, {1, time.Minute}} {
			if was := time.Now(); !p.haveRoom(t.Context(), tt.units) || time.Since(was) != tt.after {
				t.Errorf("%d: room for %d after %s, want %s", i, tt.units, time.Since(was), tt.after)
			}
			var units []string
			for n := range tt.units {
				units = append(units, fmt.Sprint("eight/", i, n))
			}
			release(units...)
		}
		p = &pipeline{run: m}
		first := newFlight([]string{"n/first"})
		first.end()
		if p.unseen = []*flight{first}; p.haveRoom(t.Context(), 1) {
			t.Error("there is room after the first one failed")
		}
		time.Sleep(3 * time.Hour)
	})
}
