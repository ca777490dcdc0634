package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// StoredSnapshot is an envelope in the bucket, read or not.
type StoredSnapshot struct {
	Key EnvelopeKey
	// Size, Modified and Tag are what the storage says.
	Size     int64
	Modified time.Time
	Tag      string
}

// StoredSnapshots lists the envelopes of all sources without reading them: oldest first within a
// source. Files with other names are passed over. An error when the storage gives one no time.
func (s *Store) StoredSnapshots(ctx context.Context) ([]StoredSnapshot, error) {
	var list []StoredSnapshot
	err := s.listSnapshots(ctx, "", func(i bucket.Info, stored StoredSnapshot) error {
		list = append(list, stored)
		return requireModTime(i)
	})
	return list, err
}

// ListedSnapshots lists the envelopes of one source, or of all when source is "", without reading
// them: oldest first within a source. Files with other names are passed over.
func (s *Store) ListedSnapshots(ctx context.Context, source string) ([]StoredSnapshot, error) {
	var list []StoredSnapshot
	err := s.listSnapshots(ctx, source, func(_ bucket.Info, stored StoredSnapshot) error {
		list = append(list, stored)
		return nil
	})
	return list, err
}

func (s *Store) listSnapshots(ctx context.Context, source string,
	fn func(bucket.Info, StoredSnapshot) error) error {
	prefix := layout.EnvelopeFolder
	if source != "" {
		if !layout.ValidSource(source) {
			return fmt.Errorf("list snapshots: source %.40q is not a UID", source)
		}
		prefix += source + "/"
	}
	return s.bucket.List(ctx, prefix, func(i bucket.Info) error {
		key, err := ParseEnvelopeKey(i.Key)
		if err != nil {
			return nil
		}
		return fn(i, StoredSnapshot{Key: key, Size: i.Size, Modified: i.Modified, Tag: i.Tag})
	})
}

// maxCached is how many envelopes an EnvelopeCache holds: those of five years, one an hour. Each
// takes about a kilobyte.
const maxCached = 50_000

// EnvelopeCache has envelopes that trusted keys have signed, each as it was read and verified with
// these keys, and with the tag that the storage gave its bytes. The zero value is empty. All
// methods may be called concurrently.
type EnvelopeCache struct {
	mu   sync.Mutex
	held map[cachedEnvelope]Signed
}

// cachedEnvelope names an envelope in a cache. Other bytes have another tag, and readers with other
// trusted keys have another trust.
type cachedEnvelope struct{ store, key, tag, trust string }

func (c *EnvelopeCache) get(k cachedEnvelope) (Signed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.held[k]
	return e, ok
}

func (c *EnvelopeCache) put(k cachedEnvelope, e Signed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil || len(c.held) >= maxCached {
		c.held = map[cachedEnvelope]Signed{} // what is listed again is read again, once
	}
	c.held[k] = e
}

// GetListed is GetEnvelope for a list that is shown. It takes an envelope from the cache when the
// storage says that its bytes are those that were read before, and they were trusted. What decides
// something reads the stored bytes instead, which may have rotted since. The caller does not change
// what the envelope refers to.
func (s *Store) GetListed(ctx context.Context, stored StoredSnapshot, c *EnvelopeCache) (Signed,
	error) {
	k := cachedEnvelope{s.ID(), stored.Key.String(), stored.Tag, s.keys.TrustDigest()}
	if e, ok := c.get(k); ok {
		return e, nil
	}
	e, err := s.GetEnvelope(ctx, stored.Key)
	if err == nil && stored.Tag != "" && e.Trust == Trusted && e.Overwritten == nil {
		c.put(k, e)
	}
	return e, err
}
