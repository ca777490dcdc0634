package service

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

// TestASlowStoreDelaysNobodyWhoAsksForOwners: a store that does not answer kept the watch from
// asking a management cluster that came back meanwhile. The records of the others are read as
// often as before, and a new epoch makes all of them old.
func TestASlowStoreDelaysNobodyWhoAsksForOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64 // of the quick store
		read := func(ctx context.Context, l *Location) (locationOwners, error) {
			o := locationOwners{began: time.Now(), records: map[string]ownership.Record{}}
			if l.Name == "slow" {
				<-ctx.Done()
				return o, ctx.Err()
			}
			n := reads.Add(1)
			if n == 2 {
				return o, errors.New("no answer")
			}
			if n > 3 {
				o.records["w-1"] = ownership.Record{By: object.Side{Name: "there"}, Epoch: 1}
			}
			return o, nil
		}
		c := newOwnerCache([]Location{{Name: "slow"}, {Name: "quick"}}, read,
			slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		go c.run(ctx)
		want := func(after time.Duration, count int64, version int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if have := c.cached(); reads.Load() != count || have["quick"].version != version ||
				len(have) != 1 {
				t.Errorf("%d reads, version %d, of %d locations; want %d reads and version %d",
					reads.Load(), have["quick"].version, len(have), count, version)
			}
		}
		want(0, 1, 1)
		want(recordsDown+recordsTick, 1, 1) // all management clusters answer
		c.setDown("prod", true)
		want(2*recordsTick, 2, 1) // fails
		want(recordsAgain, 3, 1)  // the same records
		want(recordsDown+recordsTick, 4, 2)
		c.setDown("prod", false)
		want(recordsDown+recordsTick, 4, 2)
		c.outdate()
		want(2*recordsTick, 5, 2)
		want(recordsUp+recordsTick, 6, 2)
		cancel()
		synctest.Wait()
	})
}
