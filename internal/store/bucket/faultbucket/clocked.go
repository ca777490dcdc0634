package faultbucket

import (
	"context"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Clocked is a bucket whose storage has a clock of its own, which tests set: what is removed
// depends on when it was written.
type Clocked struct {
	Whole

	mu      sync.Mutex
	ahead   time.Duration // of ours
	written map[string]time.Time
	deleted map[string]bool // since they were written
}

// NewClocked returns a bucket on an empty one. Its clock begins with ours, and goes like it.
func NewClocked(next Whole) *Clocked {
	return &Clocked{Whole: next, written: map[string]time.Time{}, deleted: map[string]bool{}}
}

// Now is what time it is for the storage. It never goes back.
func (c *Clocked) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// Pass lets time pass.
func (c *Clocked) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Init makes the place.
func (c *Clocked) Init(ctx context.Context) error {
	if i, ok := c.Whole.(interface{ Init(context.Context) error }); ok {
		return i.Init(ctx)
	}
	return nil
}

// note comes before a write, since a list may see it at once.
func (c *Clocked) note(key string, replace bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.written[key]; !there || replace || c.deleted[key] {
		c.written[key] = time.Now().Add(c.ahead)
		delete(c.deleted, key)
	}
}

// Put implements bucket.Bucket.
func (c *Clocked) Put(ctx context.Context, key string, data []byte) error {
	c.note(key, false)
	return c.Whole.Put(ctx, key, data)
}

// PutIf implements bucket.Conditional.
func (c *Clocked) PutIf(ctx context.Context, key string, data []byte, tag string) (string, error) {
	c.note(key, true)
	return c.Whole.PutIf(ctx, key, data, tag)
}

// Delete implements bucket.Remover. A key that is written again has a new time; a list that has
// begun may still return the old one.
func (c *Clocked) Delete(ctx context.Context, key string) error {
	err := c.Whole.Delete(ctx, key)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deleted[key] = true
	}
	return err
}

// BatchSize implements bucket.BatchRemover as the bucket below does.
func (c *Clocked) BatchSize() int { return bucket.BatchSizeOf(c.Whole) }

// DeleteBatch implements bucket.BatchRemover.
func (c *Clocked) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	return bucket.DeleteEach(ctx, c, keys)
}

// at gives the time of a key by the clock of the storage.
func (c *Clocked) at(i bucket.Info) bucket.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.written[i.Key]; ok {
		i.Modified = t.Round(0).UTC()
	}
	return i
}

// Stat implements bucket.Bucket.
func (c *Clocked) Stat(ctx context.Context, key string) (bucket.Info, error) {
	i, err := c.Whole.Stat(ctx, key)
	return c.at(i), err
}

// List implements bucket.Bucket.
func (c *Clocked) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return c.Whole.List(ctx, prefix, func(i bucket.Info) error { return fn(c.at(i)) })
}
