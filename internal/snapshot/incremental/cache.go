package incremental

import (
	"sync"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/store"
)

// cachedObjects limits the objects in a RunCache: each takes about a kilobyte of memory.
const cachedObjects = 100_000

// RunCache holds the last result of a process for each source, so that the next run need not read
// the index from the StateStore, nor encode unchanged shards again. The zero value is ready to use;
// a nil one caches nothing. Its methods may be called concurrently.
type RunCache struct {
	mu   sync.Mutex
	runs map[string]*cachedRun // by store and source
}

// cachedRun is the result of one run.
type cachedRun struct {
	snapshot string          // State.Snapshot
	keys     store.ContentID // identifies the keys with which content IDs were made
	index    *Index
	cut      *capture.Cut
	shards   map[string]Shard
}

// keysOf returns a value that is equal for the same keys, store and secret.
func keysOf(ids *store.ContentIDs) store.ContentID { return ids.Of("cache", nil) }

// remove removes and returns the result of the run that made a snapshot, or nil. Its nodes belong
// to the caller from now on: a run changes them, and a failed run leaves them half changed.
func (c *RunCache) remove(name, snapshot string, ids *store.ContentIDs) *cachedRun {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.runs[name]
	delete(c.runs, name)
	if r == nil || r.snapshot != snapshot || r.keys != keysOf(ids) {
		return nil
	}
	return r
}

// put adds the result of a run, and removes others where there is no room for all. The caller gives
// up the nodes.
func (c *RunCache) put(name string, r *cachedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, name)
	size := r.index.objects()
	if size > cachedObjects {
		return
	}
	for name, other := range c.runs {
		if size += other.index.objects(); size > cachedObjects {
			size -= other.index.objects()
			delete(c.runs, name)
		}
	}
	if c.runs == nil {
		c.runs = map[string]*cachedRun{}
	}
	c.runs[name] = r
}
