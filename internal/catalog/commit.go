package catalog

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// pending is a write that waits for a commit. Its fields after fn are guarded by Catalog.commitMu.
type pending struct {
	fn   func(*bolt.Tx) error
	done bool
	err  error
}

// update runs fn in a writing transaction and returns when it is on disk. Writes that arrive while
// another commit is in progress share the next one, so that 32 goroutines wait for two fsyncs and
// not for 32. (bbolt's own Batch waits 10 ms for company, even when nobody comes.)
//
// fn may run more than once, in any goroutine: it must leave nothing behind but what it writes to
// the transaction, and results in variables that it sets anew each time. When it returns an error,
// nothing of it is written. A context that has ended keeps fn from being queued; after that it is
// not looked at.
func (c *Catalog) update(ctx context.Context, fn func(*bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &pending{fn: fn}
	c.queueMu.Lock()
	c.queue = append(c.queue, p)
	c.queueMu.Unlock()

	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	if !p.done {
		c.queueMu.Lock()
		batch := c.queue
		c.queue = nil
		c.queueMu.Unlock()
		c.commit(batch)
	}
	return p.err
}

// commit writes a batch in one transaction. A write that fails by itself is taken out and the rest
// is run again without it; when the commit as a whole fails, each is tried alone, for a huge plan
// on a full disk must not take the small record of a finished step with it.
func (c *Catalog) commit(batch []*pending) {
	for len(batch) > 0 {
		current := -1
		err := c.around(func() error {
			return c.transaction(c.db.Update, func(tx *bolt.Tx) error {
				for i, p := range batch {
					current = i
					if err := p.fn(tx); err != nil {
						return err
					}
				}
				current = -1
				return nil
			})
		})
		switch {
		case current >= 0:
			batch[current].done, batch[current].err = true, err
			batch = slices.Delete(slices.Clone(batch), current, current+1)
		case err != nil && len(batch) > 1:
			for _, p := range batch {
				c.commit([]*pending{p})
			}
			return
		default:
			for _, p := range batch {
				p.done, p.err = true, err
			}
			return
		}
	}
}

// view runs fn in a reading transaction. fn must be short and call no code of others: bbolt cannot
// grow its file while a reader is there, so a reader that waits for a writer would wait forever.
func (c *Catalog) view(ctx context.Context, fn func(*bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.transaction(c.db.View, fn)
}

// transaction calls run (Update or View) and turns what damaged pages do to bbolt (panics, and
// reads outside of the memory map) into *DamagedError: the catalog is disposable, the daemon around
// it is not.
func (c *Catalog) transaction(run func(func(*bolt.Tx) error) error, fn func(*bolt.Tx) error) (
	err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &DamagedError{Path: c.path, Cause: fmt.Errorf("panic: %v", r)}
		}
	}()
	return c.wrap(run(fn))
}
