//go:build api

package move_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// TestAPIFirstHostWakesUpAfterATakeOver suspends a host at the beginning of a step, whose record
// is in the store. Another host, which has the store and its keys only, finishes the move or
// undoes it. Then the first host wakes up: it must change nothing that the other one has done, and
// end. With MGMTD_TEST_STATES it does so in more steps.
func TestAPIFirstHostWakesUpAfterATakeOver(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "wakes-up")
	for _, c := range []struct {
		phase, do string
		want      catalog.State
		long      bool // with MGMTD_TEST_STATES only
	}{
		{"pause", doRollback, catalog.RolledBack, true},
		{"pause", doResume, catalog.Succeeded, true},
		{"hand-over", doRollback, catalog.RolledBack, false},
		{"hand-over", doResume, catalog.Succeeded, false},
		{"release", doResume, catalog.Succeeded, true},
		{"retire", doResume, catalog.Succeeded, true},
	} {
		if c.long && only == "" {
			continue
		}
		t.Run(c.phase+"/"+c.do, func(t *testing.T) {
			stop := fx.watch()
			wake, ended := fx.sleepIn(c.phase)
			second, err := fx.run(fx.elsewhere(c.do))
			wake()
			e := <-ended
			must(t, err)
			if second.State != string(c.want) {
				t.Errorf("the other host ended as %s: %s", second.State, second.Message)
			}
			if e.State != string(catalog.Failed) || !strings.Contains(e.Message,
				"has taken over operation") {
				t.Errorf("the first host ended as %s: %s", e.State, e.Message)
			}
			st, err := fx.state()
			must(t, err)
			fx.report(append(stop(), fx.ended(c.do == doRollback, st)...))
		})
	}
}

// sleepIn begins a move, and returns once its host sleeps at the beginning of a step of this phase,
// whose record is in the store. The channel receives how it ended after it was woken.
func (fx *fixture) sleepIn(phase string) (wake func(), ended <-chan end) {
	asleep, woken, ends := make(chan struct{}), make(chan struct{}), make(chan end, 1)
	o := fx.order(doMove)
	go func() {
		var once sync.Once
		e, err := carryOut(context.WithoutCancel(fx.t.Context()), o, func(_ context.Context,
			r catalog.StepRecord) error {
			if r.Step.Phase == phase && r.State == catalog.StepBegun {
				once.Do(func() {
					close(asleep)
					<-woken
				})
			}
			return nil
		})
		if err != nil {
			fx.t.Errorf("the first host: %v", err)
		}
		ends <- e
	}()
	<-asleep
	return func() { close(woken) }, ends
}
