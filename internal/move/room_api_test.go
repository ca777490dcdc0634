//go:build api

package move_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// TestAPIMoveMakesReadyWhileItWaits: while the first unit is not seen at work on the target, those
// after the next one are copied, too.
func TestAPIMoveMakesReadyWhileItWaits(t *testing.T) {
	fx := newFixture(t, "ready-ahead")
	first, last := allUnits[0], allUnits[2]
	copied := make(chan struct{})
	var once sync.Once
	wait := fx.beginning(first, "post-flight", func() error {
		select {
		case <-copied:
			return nil
		case <-time.After(time.Minute):
			return errors.New(last + " is not copied while " + first + " is awaited")
		}
	})
	o := fx.order(doMove)
	o.Concurrency = 1 // each unit is a group
	fx.carryOut(o, catalog.Succeeded, func(ctx context.Context, r catalog.StepRecord) error {
		if r.Step.Unit == fx.namespace+"/"+last && r.Step.Phase == "pre-create" {
			once.Do(func() { close(copied) })
		}
		return wait(ctx, r)
	})
	st, err := fx.state()
	must(t, err)
	fx.report(fx.ended(false, st))
}
