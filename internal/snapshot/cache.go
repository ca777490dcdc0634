package snapshot

import (
	"sync"

	"github.com/mgmtd/mgmtd/internal/store"
)

// cachedObjects bounds the objects in a RunCache: each takes about a kilobyte of memory.
const cachedObjects = 100_000

// RunCache holds the last result of a process for each source, so that the next run need not read
// the index from the StateStore, nor encode unchanged shards again. The zero value is ready to use;
// a nil one caches nothing. Its methods may be called concurrently.
type RunCache struct {
	mu      sync.Mutex
	sources map[string]*cachedRun
}

// cachedRun is the result of one run.
type cachedRun struct {
	base   string          // State.Snapshot
	keys   store.ContentID // tells the keys apart with which ids were made
	index  *index
	cut    *Cut
	shards map[string]storedShard
}

func cacheName(o Options) string { return o.Store.ID() + " " + o.SourceUID }

// keysOf returns a value that is equal for the same keys, store and secret.
func keysOf(ids *store.ContentIDs) store.ContentID { return ids.Of("kept", nil) }

// remove removes and returns the result of the run that made base. Its nodes belong to the caller
// from now on: a run changes them, and a failed run leaves them half changed.
func (c *RunCache) remove(o Options, base string, ids *store.ContentIDs) *cachedRun {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cacheName(o)
	s := c.sources[name]
	delete(c.sources, name)
	if s == nil || s.base != base || s.keys != keysOf(ids) {
		return nil
	}
	return s
}

// put adds the result of a run and removes others where there is no room for all. The caller gives
// up its nodes.
func (c *RunCache) put(o Options, s *cachedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sources, cacheName(o))
	size := s.index.objects()
	if size > cachedObjects {
		return
	}
	for name, other := range c.sources {
		if size += other.index.objects(); size > cachedObjects {
			size -= other.index.objects()
			delete(c.sources, name)
		}
	}
	if c.sources == nil {
		c.sources = map[string]*cachedRun{}
	}
	c.sources[cacheName(o)] = s
}
