package catalog

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// pending is a write that waits for a commit. Catalog.commitMu guards the fields after fn.
type pending struct {
	fn   func(*bolt.Tx) error
	done bool
	err  error
}

// update runs fn in a writing transaction and returns when that is on disk. Writes that arrive
// during a commit share the next one, so that 32 goroutines wait for two fsyncs and not for 32.
// (bbolt's own Batch waits 10 ms for more writes, even when none come.)
//
// fn may run more than once, in any goroutine. It must change only the transaction and variables
// that it sets from scratch in each run. When fn returns an error, nothing of it is written. A
// context that has ended prevents fn from being queued; after that, update ignores the context.
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

// commit writes a batch in one transaction. When one write fails, commit removes it and runs the
// others again. When the commit as a whole fails, commit tries each write alone: a huge plan on a
// full disk must not fail the small record of a finished step.
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

// view runs fn in a reading transaction. fn must be short and must not call code of others: bbolt
// cannot grow its file during a read, so a reader that waits for a writer would wait forever.
func (c *Catalog) view(ctx context.Context, fn func(*bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.transaction(c.db.View, fn)
}

// transaction calls run (Update or View). Damaged pages make bbolt panic or read outside of the
// memory map; transaction returns both as *DamagedError. The catalog is disposable, the daemon
// around it is not.
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
