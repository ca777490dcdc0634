package move

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
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
