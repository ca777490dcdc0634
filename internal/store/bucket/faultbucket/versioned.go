package faultbucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Versioned is a versioned bucket in memory. Overwrite and Hide are what somebody with credentials
// of a real one can do past every rule of a store.
type Versioned struct {
	// Now is the clock of the storage; nil for time.Now.
	Now func() time.Time

	// RetainFor is for how long new keys are retained, as with Object Lock; 0 for not at all.
	RetainFor time.Duration
	// NoChecksums is for a storage that has no hashes on record, as of what somebody wrote without.
	NoChecksums bool
	// NoUndelete is for credentials that may not remove delete markers.
	NoUndelete bool

	number int64 // of this process, for its name

	mu   sync.Mutex
	made int                  // versions so far
	keys map[string][]version // oldest first
	read int64                // bytes of versions that GetVersion gave
}

// version is what one write or deletion left. Only until is ever changed.
type version struct {
	id      string
	data    []byte
	at      time.Time
	deleted bool // a delete marker
	until   time.Time
}

var (
	_ Whole               = (*Versioned)(nil)
	_ bucket.BatchRemover = (*Versioned)(nil)
	_ bucket.Repairer     = (*Versioned)(nil)
	_ bucket.Retainer     = (*Versioned)(nil)
)

// buckets counts the buckets of this process.
var buckets atomic.Int64

// NewVersioned returns an empty bucket.
func NewVersioned() *Versioned {
	return &Versioned{number: buckets.Add(1), keys: map[string][]version{}}
}

// Init implements the making of a place; there is nothing to make.
func (v *Versioned) Init(ctx context.Context) error { return ctx.Err() }

// String implements bucket.Bucket.
func (v *Versioned) String() string { return fmt.Sprintf("bucket %d in memory", v.number) }

// Overwrite stores data under a key, whether that exists or not.
func (v *Versioned) Overwrite(key string, data []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.add(key, version{data: bytes.Clone(data)})
}

// Hide puts a delete marker on a key.
func (v *Versioned) Hide(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.add(key, version{deleted: true})
}

// Keys returns the keys that a list shows, sorted.
func (v *Versioned) Keys(prefix string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(v.keys)) {
		if _, err := v.top("list", key); err == nil && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// add needs the lock.
func (v *Versioned) add(key string, is version) {
	is.at = v.now()
	v.made++
	is.id = fmt.Sprintf("v%06d", v.made)
	v.keys[key] = append(v.keys[key], is)
}

func (v *Versioned) now() time.Time {
	if v.Now != nil {
		return v.Now()
	}
	return time.Now()
}

// top needs the lock.
func (v *Versioned) top(op, key string) (version, error) {
	all := v.keys[key]
	if len(all) == 0 || all[len(all)-1].deleted {
		return version{}, &bucket.Error{Op: op, Key: key, Class: bucket.ErrNotFound}
	}
	return all[len(all)-1], nil
}

// begin checks what every call checks, and takes the lock unless it fails.
func (v *Versioned) begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: op, Key: key, Err: err}
	}
	if err := bucket.ValidateKey(key); err != nil {
		return &bucket.Error{Op: op, Key: key, Err: err}
	}
	v.mu.Lock()
	return nil
}

// Put implements bucket.Bucket.
func (v *Versioned) Put(ctx context.Context, key string, data []byte) error {
	if err := v.begin(ctx, "put", key); err != nil {
		return err
	}
	defer v.mu.Unlock()
	if _, err := v.top("put", key); err == nil {
		return &bucket.Error{Op: "put", Key: key, Class: bucket.ErrExists}
	}
	v.add(key, version{data: bytes.Clone(data), until: v.retainNew()})
	return nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// Close implements io.Closer.
func (r reader) Close() error { return nil }

// Get implements bucket.Bucket.
func (v *Versioned) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := v.begin(ctx, "get", key); err != nil {
		return nil, err
	}
	defer v.mu.Unlock()
	is, err := v.top("get", key)
	if err != nil {
		return nil, err
	}
	return reader{ctx, bytes.NewReader(is.data)}, nil
}

// Stat implements bucket.Bucket.
func (v *Versioned) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if err := v.begin(ctx, "stat", key); err != nil {
		return bucket.Info{}, err
	}
	defer v.mu.Unlock()
	is, err := v.top("stat", key)
	return bucket.Info{Key: key, Size: int64(len(is.data)), Modified: is.at}, err
}

// List implements bucket.Bucket.
func (v *Versioned) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	for _, key := range v.Keys(prefix) {
		i, err := v.Stat(ctx, key)
		if errors.Is(err, bucket.ErrNotFound) {
			continue
		}
		if err == nil {
			err = fn(i)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// GetTagged implements bucket.Conditional.
func (v *Versioned) GetTagged(ctx context.Context, key string) ([]byte, string, error) {
	if err := v.begin(ctx, "get", key); err != nil {
		return nil, "", err
	}
	defer v.mu.Unlock()
	is, err := v.top("get", key)
	if err != nil {
		return nil, "", err
	}
	return bytes.Clone(is.data), tagOf(is.data), nil
}

func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// PutIf implements bucket.Conditional.
func (v *Versioned) PutIf(ctx context.Context, key string, data []byte, tag string) (
	string, error) {
	if err := v.begin(ctx, "put", key); err != nil {
		return "", err
	}
	defer v.mu.Unlock()
	has := ""
	if is, err := v.top("put", key); err == nil {
		has = tagOf(is.data)
	}
	if has != tag {
		return "", &bucket.Error{Op: "put", Key: key, Class: bucket.ErrConflict}
	}
	v.add(key, version{data: bytes.Clone(data)})
	return tagOf(data), nil
}

// Delete implements bucket.Remover.
func (v *Versioned) Delete(ctx context.Context, key string) error {
	if err := v.begin(ctx, "delete", key); err != nil {
		return err
	}
	defer v.mu.Unlock()
	for _, is := range v.keys[key] {
		if is.until.After(v.now()) {
			return &bucket.Error{Op: "delete", Key: key, Class: bucket.ErrRetained}
		}
	}
	delete(v.keys, key)
	return nil
}

// BatchSize implements bucket.BatchRemover.
func (v *Versioned) BatchSize() int { return 100 }

// DeleteBatch implements bucket.BatchRemover.
func (v *Versioned) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	return bucket.DeleteEach(ctx, v, keys)
}

// Clone returns a bucket with the same content, which changes apart from v.
func (v *Versioned) Clone() *Versioned {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := &Versioned{Now: v.Now, RetainFor: v.RetainFor, NoChecksums: v.NoChecksums,
		NoUndelete: v.NoUndelete, made: v.made, keys: maps.Clone(v.keys)}
	for key, all := range c.keys {
		c.keys[key] = slices.Clone(all)
	}
	return c
}
