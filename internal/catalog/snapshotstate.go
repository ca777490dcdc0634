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

	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
)

var (
	bucketSnapshotState = []byte("known")

	bucketParts = []byte("parts")
	bucketKeys  = []byte("keys")
	keySecret   = []byte("secret")
	keyBase     = []byte("base")
)

const secretSize = 32

// SnapshotState returns the store of the states that one snapshot of a source leaves for the next
// of its scope. A state may be lost at any time.
func (c *Catalog) SnapshotState(storeID, source string) incremental.StateStore {
	return snapshotState{c, storeID, source}
}

type snapshotState struct {
	catalog       *Catalog
	store, source string
}

// Load implements incremental.StateStore.
func (s snapshotState) Load(ctx context.Context, scope string) (incremental.State, error) {
	return s.catalog.snapshotState(ctx, stateName(s.store, s.source, scope))
}

// Update implements incremental.StateStore.
func (s snapshotState) Update(ctx context.Context, scope string,
	delta incremental.StateDelta) error {
	return s.catalog.updateSnapshotState(ctx, stateName(s.store, s.source, scope), delta)
}

// storedKey is the record of a shard or a pack.
type storedKey struct{ incremental.StoredKey }

func (k storedKey) check() error {
	if k.Size < 0 || k.Written.IsZero() {
		return errors.New("stored key has no size or no time")
	}
	return nil
}

// snapshotState reads the state of a source in a store; the first time it makes the secret. A state
// with damaged records is replaced with an empty one.
func (c *Catalog) snapshotState(ctx context.Context, name []byte) (incremental.State, error) {
	state, err := c.readSnapshotState(ctx, name)
	damaged := errors.Is(err, errRecord)
	if err != nil && !damaged || err == nil && state.Secret != nil {
		return state, err
	}
	secret := make([]byte, secretSize)
	rand.Read(secret) // never fails
	err = c.update(ctx, func(tx *bolt.Tx) error {
		all := tx.Bucket(bucketSnapshotState)
		if damaged && all.Bucket(name) != nil {
			if err := all.DeleteBucket(name); err != nil {
				return err
			}
		}
		b, err := all.CreateBucketIfNotExists(name)
		if err != nil || b.Get(keySecret) != nil {
			return err
		}
		if err := dropOldestStates(all, name); err != nil {
			return err
		}
		return errors.Join(b.Put(keySecret, secret), clearState(b))
	})
	if err != nil {
		return incremental.State{}, fmt.Errorf("make snapshot state %s: %w", name, err)
	}
	return c.readSnapshotState(ctx, name)
}

// stateName names the state of a scope. That of whole snapshots has the name that it had before
// there were scopes.
func stateName(storeID, source, scope string) []byte {
	if scope == store.ScopeWhole {
		return []byte(storeID + "/" + source)
	}
	return []byte(storeID + "/" + source + "/" + scope)
}

// stateScopes limits the states of one source. Each may be as large as the index of the source, and
// a scope that is never asked for again leaves its own behind.
const stateScopes = 16

// dropOldestStates makes room for the state name, of which the oldest others of its source go.
func dropOldestStates(all *bolt.Bucket, name []byte) error {
	source := bytes.Join(bytes.SplitN(name, []byte("/"), 3)[:2], []byte("/"))
	var others [][]byte
	err := all.ForEachBucket(func(k []byte) error {
		if bytes.HasPrefix(k, append(bytes.Clone(source), '/')) && !bytes.Equal(k, name) {
			others = append(others, bytes.Clone(k))
		}
		return nil
	})
	if err != nil || len(others) < stateScopes {
		return err
	}
	// what is stored is the key of an envelope, which begins with its time
	slices.SortFunc(others, func(a, b []byte) int {
		return bytes.Compare(all.Bucket(a).Get(keyBase), all.Bucket(b).Get(keyBase))
	})
	for _, k := range others[:len(others)-stateScopes+1] {
		err = errors.Join(err, all.DeleteBucket(k))
	}
	return err
}

func (c *Catalog) readSnapshotState(ctx context.Context, name []byte) (incremental.State, error) {
	var state incremental.State
	err := c.view(ctx, func(tx *bolt.Tx) error {
		state = incremental.State{Parts: map[store.ContentID][]byte{},
			Keys: map[string]incremental.StoredKey{}}
		b := tx.Bucket(bucketSnapshotState).Bucket(name)
		if b == nil {
			return nil
		}
		state.Secret, state.Snapshot = bytes.Clone(b.Get(keySecret)), string(b.Get(keyBase))
		return walkState(b, func(key string, k incremental.StoredKey) { state.Keys[key] = k },
			func(name store.ContentID, sealed []byte) { state.Parts[name] = bytes.Clone(sealed) })
	})
	if err != nil {
		return incremental.State{}, fmt.Errorf("read snapshot state %s: %w", name, err)
	}
	return state, nil
}

// walkState reads keys and parts; the bytes of a part are valid during the call.
func walkState(b *bolt.Bucket, key func(string, incremental.StoredKey), part func(store.ContentID,
	[]byte)) error {
	keys, parts := b.Bucket(bucketKeys), b.Bucket(bucketParts)
	if keys == nil || parts == nil || len(b.Get(keySecret)) != secretSize {
		return fmt.Errorf("%w: snapshot state is incomplete", errRecord)
	}
	err := keys.ForEach(func(k, v []byte) error {
		record, err := decode[storedKey]("stored key", v)
		if err == nil {
			key(string(k), record.StoredKey)
		}
		return err
	})
	if err != nil {
		return err
	}
	return parts.ForEach(func(k, v []byte) error {
		if len(k) != len(store.ContentID{}) || len(v) == 0 {
			return fmt.Errorf("%w: part %x of a snapshot state", errRecord, k)
		}
		part(store.ContentID(k), v)
		return nil
	})
}

// updateSnapshotState applies a delta in one transaction. If delta.From is empty, the state is
// deleted first. If delta.From is not the stored snapshot, the delta belongs to another run: the
// state is deleted and the delta is dropped.
func (c *Catalog) updateSnapshotState(ctx context.Context, name []byte,
	delta incremental.StateDelta) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketSnapshotState).Bucket(name)
		if b == nil {
			return fmt.Errorf("%w: no snapshot state", ErrNotFound)
		}
		if outdated := string(b.Get(keyBase)) != delta.From; outdated || delta.From == "" {
			if err := clearState(b); err != nil || outdated && delta.From != "" {
				return err
			}
		}
		return writeState(b, delta)
	})
	if err != nil {
		return fmt.Errorf("update snapshot state %s: %w", name, err)
	}
	return nil
}

// ForgetSnapshotState makes the next snapshot of each scope of a source write everything, for
// example after keys were lost. It may run twice.
func (c *Catalog) ForgetSnapshotState(ctx context.Context, storeID, source string) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		all, whole := tx.Bucket(bucketSnapshotState), stateName(storeID, source, store.ScopeWhole)
		return all.ForEachBucket(func(k []byte) error {
			if !bytes.Equal(k, whole) && !bytes.HasPrefix(k, append(bytes.Clone(whole), '/')) {
				return nil
			}
			return clearState(all.Bucket(k))
		})
	})
	if err != nil {
		return fmt.Errorf("forget snapshot state of %s: %w", source, err)
	}
	return nil
}

func clearState(b *bolt.Bucket) error {
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

func writeState(b *bolt.Bucket, delta incremental.StateDelta) error {
	parts, keys := b.Bucket(bucketParts), b.Bucket(bucketKeys)
	for _, name := range delta.DeletedParts {
		if err := parts.Delete(name[:]); err != nil {
			return err
		}
	}
	for _, key := range delta.DeletedKeys {
		if err := keys.Delete([]byte(key)); err != nil {
			return err
		}
	}
	// In order: a leaf is split only at the commit, so that each one put in front of others would
	// move them all.
	for _, name := range slices.SortedFunc(maps.Keys(delta.Parts),
		func(a, b store.ContentID) int { return bytes.Compare(a[:], b[:]) }) {
		if err := parts.Put(name[:], delta.Parts[name]); err != nil {
			return err
		}
	}
	for key, k := range delta.Keys {
		value, err := json.Marshal(k)
		if err != nil {
			return err
		}
		if err := keys.Put([]byte(key), value); err != nil {
			return err
		}
	}
	return b.Put(keyBase, []byte(delta.To))
}

func checkSnapshotStates(tx *bolt.Tx, report func(error)) {
	states := tx.Bucket(bucketSnapshotState)
	report(states.ForEachBucket(func(name []byte) error {
		if err := walkState(states.Bucket(name), func(string, incremental.StoredKey) {},
			func(store.ContentID, []byte) {}); err != nil {
			report(fmt.Errorf("snapshot state of %s: %w", name, err))
		}
		return nil
	}))
}
