package catalog

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// progressInterval is the time between two reports of progress to a watcher: often enough for a bar
// that moves.
const progressInterval = 250 * time.Millisecond

// Watch returns the history of an operation after an event, 0 for all of it, then new events as
// they are stored. It ends when the operation or its present run has ended and all its events were
// returned. A late watcher misses only old progress. A slow watcher blocks no writer: it reads from
// the file what it has not seen. The last pair may hold an error: ErrNotFound, ErrClosed, or the
// context's.
//
// A watch of an operation that Interrupted lists waits until its state changes.
func (c *Catalog) Watch(ctx context.Context, id OperationID, afterSeq int64) iter.Seq2[Event,
	error] {
	return func(yield func(Event, error) bool) {
		if err := c.watch(ctx, id, afterSeq, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, err)
		}
	}
}

// watch calls yield with events until the operation has ended or yield returns false.
func (c *Catalog) watch(ctx context.Context, id OperationID, afterSeq int64,
	yield func(Event) bool) error {
	seen := map[string]int{}
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		// The channel comes before the read: a commit after the read closes it.
		changed := c.nextChange()
		page, state, err := c.readEvents(ctx, id, afterSeq)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !yield(e) {
				return nil
			}
			afterSeq = e.Seq
		}
		if len(page) == eventPage {
			continue
		}
		if state.Ended() {
			return nil
		}
		select {
		case <-changed:
		case <-ticker.C:
			for _, p := range c.progressSince(id, seen) {
				if !yield(Event{Time: c.now(), Type: EventProgress, Progress: &p}) {
					return nil
				}
			}
		case <-ctx.Done():
			return fmt.Errorf("watch operation %s: %w", id, ctx.Err())
		case <-c.closed:
			return fmt.Errorf("watch operation %s: %w", id, ErrClosed)
		}
	}
}

// nextChange returns a channel that is closed at the next commit that changes an operation.
func (c *Catalog) nextChange() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// notify wakes all watchers. Each reads whether its operation has new events, which costs a read of
// a few pages in memory.
func (c *Catalog) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}
