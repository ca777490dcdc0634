package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/store"
)

var (
	bucketKnown = []byte("known")

	bucketParts = []byte("parts")
	bucketKeys  = []byte("keys")
	keySecret   = []byte("secret")
	keyBase     = []byte("base")
)

const secretSize = 32

// Memory is what the catalog knows of a source's newest snapshot in a store. It is of use to the
// next one only, and may be lost at any time.
func (c *Catalog) Memory(storeID, source string) store.Memory { return memory{c, storeID, source} }

type memory struct {
	catalog       *Catalog
	store, source string
}

// Recall implements store.Memory.
func (m memory) Recall(ctx context.Context) (store.Known, error) {
	return m.catalog.known(ctx, m.store, m.source)
}

// Remember implements store.Memory.
func (m memory) Remember(ctx context.Context, change store.KnownChange) error {
	return m.catalog.updateKnown(ctx, m.store, m.source, change)
}

// knownKey is the record of a shard or a pack.
type knownKey struct{ store.KnownKey }

func (k knownKey) check() error {
	if k.Size < 0 || k.Written.IsZero() {
		return errors.New("known key has no size or no time")
	}
	return nil
}

// known reads what is known of a source in a store; the first time it makes the secret. Damaged
// records are as good as none.
func (c *Catalog) known(ctx context.Context, storeID, source string) (store.Known, error) {
	known, err := c.readKnown(ctx, storeID, source)
	damaged := errors.Is(err, errRecord)
	if err != nil && !damaged || err == nil && known.Secret != nil {
		return known, err
	}
	secret := make([]byte, secretSize)
	rand.Read(secret) // never fails
	err = c.update(ctx, func(tx *bolt.Tx) error {
		all, name := tx.Bucket(bucketKnown), knownName(storeID, source)
		if damaged && all.Bucket(name) != nil {
			if err := all.DeleteBucket(name); err != nil {
				return err
			}
		}
		b, err := all.CreateBucketIfNotExists(name)
		if err != nil || b.Get(keySecret) != nil {
			return err
		}
		return errors.Join(b.Put(keySecret, secret), forget(b))
	})
	if err != nil {
		return store.Known{}, fmt.Errorf("begin to know %s: %w", source, err)
	}
	return c.readKnown(ctx, storeID, source)
}

func knownName(storeID, source string) []byte { return []byte(storeID + "/" + source) }

func (c *Catalog) readKnown(ctx context.Context, storeID, source string) (store.Known, error) {
	var known store.Known
	err := c.view(ctx, func(tx *bolt.Tx) error {
		known = store.Known{Parts: map[store.ContentID][]byte{}, Keys: map[string]store.KnownKey{}}
		b := tx.Bucket(bucketKnown).Bucket(knownName(storeID, source))
		if b == nil {
			return nil
		}
		known.Secret, known.Base = bytes.Clone(b.Get(keySecret)), string(b.Get(keyBase))
		return walkKnown(b, func(key string, k store.KnownKey) { known.Keys[key] = k },
			func(name store.ContentID, sealed []byte) { known.Parts[name] = bytes.Clone(sealed) })
	})
	if err != nil {
		return store.Known{}, fmt.Errorf("read what is known of %s: %w", source, err)
	}
	return known, nil
}

// walkKnown reads keys and parts; the bytes of a part are valid during the call.
func walkKnown(b *bolt.Bucket, key func(string, store.KnownKey), part func(store.ContentID,
	[]byte)) error {
	keys, parts := b.Bucket(bucketKeys), b.Bucket(bucketParts)
	if keys == nil || parts == nil || len(b.Get(keySecret)) != secretSize {
		return fmt.Errorf("%w: known content is incomplete", errRecord)
	}
	err := keys.ForEach(func(k, v []byte) error {
		record, err := decode[knownKey]("known key", v)
		if err == nil {
			key(string(k), record.KnownKey)
		}
		return err
	})
	if err != nil {
		return err
	}
	return parts.ForEach(func(k, v []byte) error {
		if len(k) != len(store.ContentID{}) || len(v) == 0 {
			return fmt.Errorf("%w: part %x of what is known", errRecord, k)
		}
		part(store.ContentID(k), v)
		return nil
	})
}

// updateKnown changes what is known, in one transaction. With an empty change.Was all of that is
// forgotten first. With one that is not what is known by now, all is forgotten and nothing learned,
// for the change is one of something else.
func (c *Catalog) updateKnown(ctx context.Context, storeID, source string,
	change store.KnownChange) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketKnown).Bucket(knownName(storeID, source))
		if b == nil {
			return fmt.Errorf("%w: nothing is known", ErrNotFound)
		}
		if outdated := string(b.Get(keyBase)) != change.Was; outdated || change.Was == "" {
			if err := forget(b); err != nil || outdated && change.Was != "" {
				return err
			}
		}
		return learn(b, change)
	})
	if err != nil {
		return fmt.Errorf("update what is known of %s: %w", source, err)
	}
	return nil
}

// ForgetKnown makes the next snapshot of a source write everything, as after keys were lost. It may
// run twice.
func (c *Catalog) ForgetKnown(ctx context.Context, storeID, source string) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucketKnown).Bucket(knownName(storeID, source)); b != nil {
			return forget(b)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget what is known of %s: %w", source, err)
	}
	return nil
}

func forget(b *bolt.Bucket) error {
	for _, name := range [][]byte{bucketParts, bucketKeys} {
		if b.Bucket(name) != nil {
			if err := b.DeleteBucket(name); err != nil {
				return err
			}
		}
		if _, err := b.CreateBucket(name); err != nil {
			return err
		}
	}
	return b.Delete(keyBase)
}

func learn(b *bolt.Bucket, change store.KnownChange) error {
	parts, keys := b.Bucket(bucketParts), b.Bucket(bucketKeys)
	for _, name := range change.GoneParts {
		if err := parts.Delete(name[:]); err != nil {
			return err
		}
	}
	for _, key := range change.GoneKeys {
		if err := keys.Delete([]byte(key)); err != nil {
			return err
		}
	}
	// In order: a leaf is split only at the commit, so that each one put in front of others would
	// move them all.
	for _, name := range slices.SortedFunc(maps.Keys(change.Parts),
		func(a, b store.ContentID) int { return bytes.Compare(a[:], b[:]) }) {
		if err := parts.Put(name[:], change.Parts[name]); err != nil {
			return err
		}
	}
	for key, k := range change.Keys {
		value, err := json.Marshal(k)
		if err != nil {
			return err
		}
		if err := keys.Put([]byte(key), value); err != nil {
			return err
		}
	}
	return b.Put(keyBase, []byte(change.Base))
}

func checkKnown(tx *bolt.Tx, report func(error)) {
	known := tx.Bucket(bucketKnown)
	report(known.ForEachBucket(func(name []byte) error {
		if err := walkKnown(known.Bucket(name), func(string, store.KnownKey) {},
			func(store.ContentID, []byte) {}); err != nil {
			report(fmt.Errorf("known of %s: %w", name, err))
		}
		return nil
	}))
}
