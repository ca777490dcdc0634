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
	"time"

	bolt "go.etcd.io/bbolt"
)

var (
	bucketKnown = []byte("known")

	bucketPlaces = []byte("places")
	bucketKeys   = []byte("keys")
	keySecret    = []byte("secret")
	keyBase      = []byte("base")
)

const secretSize = 32

// ContentID tells the same content again. It is an HMAC with a key that is not in here alone, so that who reads the catalog cannot confirm a guess at a Secret.
type ContentID = [20]byte

// Known is where the content of a source's last snapshot in a store is. It is of use to the next snapshot only, and may be lost at any time.
type Known struct {
	Secret []byte               // of the content ids; random, one for each source and store
	Base   string               // which snapshot; empty when nothing is known
	Places map[ContentID]string // keys of packs and shards
	Keys   map[string]KnownKey
}

// KnownKey is a shard or a pack in the bucket.
type KnownKey struct {
	Size    int64     `json:"size"`
	Written time.Time `json:"written"`
}

func (k KnownKey) check() error {
	if k.Size < 0 || k.Written.IsZero() {
		return errors.New("known key has no size or no time")
	}
	return nil
}

// KnownChange is the difference between what is known and what is to be.
type KnownChange struct {
	Was, Base string
	Places    map[ContentID]string
	Gone      []ContentID
	Keys      map[string]KnownKey
	GoneKeys  []string
}

// Known reads what is known of a source in a store; the first time it makes the secret. Damaged records are as good as none.
func (c *Catalog) Known(ctx context.Context, store, source string) (Known, error) {
	known, err := c.readKnown(ctx, store, source)
	damaged := errors.Is(err, errRecord)
	if err != nil && !damaged || err == nil && known.Secret != nil {
		return known, err
	}
	secret := make([]byte, secretSize)
	rand.Read(secret) // never fails
	err = c.update(ctx, func(tx *bolt.Tx) error {
		all, name := tx.Bucket(bucketKnown), knownKey(store, source)
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
		return Known{}, fmt.Errorf("begin to know %s: %w", source, err)
	}
	return c.readKnown(ctx, store, source)
}

func knownKey(store, source string) []byte { return []byte(store + "/" + source) }

func (c *Catalog) readKnown(ctx context.Context, store, source string) (Known, error) {
	var known Known
	err := c.view(ctx, func(tx *bolt.Tx) error {
		known = Known{Places: map[ContentID]string{}, Keys: map[string]KnownKey{}}
		b := tx.Bucket(bucketKnown).Bucket(knownKey(store, source))
		if b == nil {
			return nil
		}
		known.Secret, known.Base = bytes.Clone(b.Get(keySecret)), string(b.Get(keyBase))
		return walkKnown(b, func(key string, k KnownKey) { known.Keys[key] = k }, func(id ContentID, key string) { known.Places[id] = key })
	})
	if err != nil {
		return Known{}, fmt.Errorf("read what is known of %s: %w", source, err)
	}
	return known, nil
}

// walkKnown reads keys and then places, which share the strings of the keys.
func walkKnown(b *bolt.Bucket, key func(string, KnownKey), place func(ContentID, string)) error {
	keys, places := b.Bucket(bucketKeys), b.Bucket(bucketPlaces)
	if keys == nil || places == nil || len(b.Get(keySecret)) != secretSize {
		return fmt.Errorf("%w: known content is incomplete", errRecord)
	}
	names := map[string]string{}
	err := keys.ForEach(func(k, v []byte) error {
		record, err := decode[KnownKey]("known key", v)
		if err != nil {
			return err
		}
		name := string(k)
		names[name] = name
		key(name, record)
		return nil
	})
	if err != nil {
		return err
	}
	return places.ForEach(func(k, v []byte) error {
		name, ok := names[string(v)]
		if !ok || len(k) != len(ContentID{}) {
			return fmt.Errorf("%w: known content %x is in a key that is not known", errRecord, k)
		}
		place(ContentID(k), name)
		return nil
	})
}

// UpdateKnown changes what is known, in one transaction. With an empty change.Was all of that is forgotten first. With one that is not what is known by now, all is
// forgotten and nothing learned, for the change is one of something else.
func (c *Catalog) UpdateKnown(ctx context.Context, store, source string, change KnownChange) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketKnown).Bucket(knownKey(store, source))
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

// ForgetKnown makes the next snapshot of a source write everything, as after keys were lost. It may run twice.
func (c *Catalog) ForgetKnown(ctx context.Context, store, source string) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucketKnown).Bucket(knownKey(store, source)); b != nil {
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
	for _, name := range [][]byte{bucketPlaces, bucketKeys} {
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

func learn(b *bolt.Bucket, change KnownChange) error {
	places, keys := b.Bucket(bucketPlaces), b.Bucket(bucketKeys)
	for _, id := range change.Gone {
		if err := places.Delete(id[:]); err != nil {
			return err
		}
	}
	for _, key := range change.GoneKeys {
		if err := keys.Delete([]byte(key)); err != nil {
			return err
		}
	}
	// In order: a leaf is split only at the commit, so that each one put in front of others would move them all.
	for _, id := range slices.SortedFunc(maps.Keys(change.Places), func(a, b ContentID) int { return bytes.Compare(a[:], b[:]) }) {
		if err := places.Put(id[:], []byte(change.Places[id])); err != nil {
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
		if err := walkKnown(known.Bucket(name), func(string, KnownKey) {}, func(ContentID, string) {}); err != nil {
			report(fmt.Errorf("known of %s: %w", name, err))
		}
		return nil
	}))
}
