package snapshot

import (
	"sync"

	"github.com/mgmtd/mgmtd/internal/store"
)

// keptObjects bounds what a Kept has in memory: about a kilobyte for each object.
const keptObjects = 100_000

// Kept keeps in memory what the last runs of a process left of their sources, so that the next ones
// need not read it from the StateStore, nor make again what did not change. The zero value is ready;
// a nil one keeps nothing. It may be used by many runs at once.
type Kept struct {
	mu      sync.Mutex
	sources map[string]*keptSource
}

// keptSource is what one run left.
type keptSource struct {
	base   string          // State.Snapshot
	keys   store.ContentID // tells the keys apart with which ids were made
	index  *index
	cut    *Cut
	shards map[string]storedShard
}

func keptName(o Options) string { return o.Store.ID() + " " + o.SourceUID }

// keysOf is the same for the same keys, store and secret.
func keysOf(ids *store.ContentIDs) store.ContentID { return ids.Of("kept", nil) }

// take gives what was left by the run that made base, and forgets it: a run changes its nodes, and
// one that fails would leave them half changed.
func (k *Kept) take(o Options, base string, ids *store.ContentIDs) *keptSource {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	name := keptName(o)
	s := k.sources[name]
	delete(k.sources, name)
	if s == nil || s.base != base || s.keys != keysOf(ids) {
		return nil
	}
	return s
}

// put keeps what a run left, and no more in all than fits.
func (k *Kept) put(o Options, s *keptSource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sources, keptName(o))
	size := s.index.objects()
	if size > keptObjects {
		return
	}
	for name, other := range k.sources {
		if size += other.index.objects(); size > keptObjects {
			size -= other.index.objects()
			delete(k.sources, name)
		}
	}
	if k.sources == nil {
		k.sources = map[string]*keptSource{}
	}
	k.sources[keptName(o)] = s
}
