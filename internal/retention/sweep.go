package retention

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// batchLimit ends a batch of deletions that a slow storage does not finish. Its keys are then
// deleted one by one, each after a look at the clock. It is well below the ten minutes that
// SweepEnds leaves for deletions that are under way.
const batchLimit = 5 * time.Minute

// sweep removes content: in batches where the storage deletes many keys with a request, and then,
// one by one, what it did not delete so.
func (e *execution) sweep(ctx context.Context, list []store.StoredContent) error {
	rest, err := e.sweepBatches(ctx, list, e.Store.RemovalBatch())
	if err == nil && len(rest) > 0 {
		rest, err = e.sweepBatches(ctx, rest, 1)
	}
	if err == nil && len(rest) > 0 {
		e.reportSweepTooLong(len(rest))
	}
	return err
}

// sweepBatches removes content in batches of a size, and returns what it did not try to remove:
// that the storage does not delete in batches, and what it is too late for.
func (e *execution) sweepBatches(ctx context.Context, list []store.StoredContent, size int) (
	rest []store.StoredContent, err error) {
	var mu sync.Mutex
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for len(list) > 0 && gctx.Err() == nil {
		if e.sweepTooLong() || size > 1 && e.Store.RemovalBatch() == 1 {
			break
		}
		batch := list[:min(size, len(list))]
		list = list[len(batch):]
		g.Go(func() error {
			failed := e.removeBatch(gctx, batch)
			mu.Lock()
			defer mu.Unlock()
			unbatched, err := e.countRemoved(batch, failed)
			rest = append(rest, unbatched...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return append(rest, list...), nil
}

// removeBatch removes content, and returns an error for each key that is not gone.
func (e *execution) removeBatch(ctx context.Context,
	batch []store.StoredContent) map[store.Key]error {
	if len(batch) == 1 {
		return e.Store.RemoveContents(ctx, []store.Key{batch[0].Key})
	}
	keys := make([]store.Key, len(batch))
	for i, c := range batch {
		keys[i] = c.Key
	}
	limited, cancel := context.WithTimeout(ctx, batchLimit)
	defer cancel()
	failed := e.Store.RemoveContents(limited, keys)
	for key, err := range failed {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			failed[key] = store.ErrUnbatched
		}
	}
	return failed
}

// countRemoved counts what a batch removed and what the storage retains, each key by itself. It
// returns the keys that have to be removed alone, and the first error that ends the prune.
func (e *execution) countRemoved(batch []store.StoredContent, failed map[store.Key]error) (
	unbatched []store.StoredContent, first error) {
	for _, c := range batch {
		switch err := failed[c.Key]; {
		case err == nil:
			e.result.Freed.add(c.Size)
			e.Progress("keys removed", e.result.Freed.Keys, 0)
		case errors.Is(err, store.ErrUnbatched):
			unbatched = append(unbatched, c)
		case errors.Is(err, store.ErrRetained):
			e.reportRetained(string(c.Key), c.Size, err)
		case first == nil:
			first = err
		}
	}
	return unbatched, first
}
