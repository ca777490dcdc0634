package faultbucket

import (
	"context"
	"io"
	"sync"
	"syscall"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Refusals are the errors of a storage that does not give one key, and gives others.
var Refusals = map[string]bucket.Error{
	"a key that the storage denies":       {Class: bucket.ErrDenied},
	"a key that the disk cannot read":     {Err: syscall.EIO},
	"a key that is encrypted for another": {Err: syscall.EINVAL},
}

// Outages are the errors of a storage that gives nothing.
var Outages = map[string]bucket.Error{
	"a storage that does not answer": {Class: bucket.ErrUnreachable},
	"a storage without the store":    {Class: bucket.ErrStoreMissing},
}

// Refusing is a bucket that lists some keys and does not give them.
type Refusing struct {
	Whole

	mu      sync.Mutex
	refused map[string]bucket.Error
}

// NewRefusing returns a bucket that gives all keys of another one.
func NewRefusing(next Whole) *Refusing {
	return &Refusing{Whole: next, refused: map[string]bucket.Error{}}
}

// Refuse makes each read of some keys fail from now on.
func (r *Refusing) Refuse(with bucket.Error, keys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		r.refused[key] = with
	}
}

// Init makes the place.
func (r *Refusing) Init(ctx context.Context) error {
	if i, ok := r.Whole.(interface{ Init(context.Context) error }); ok {
		return i.Init(ctx)
	}
	return nil
}

func (r *Refusing) check(key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err, refused := r.refused[key]
	if !refused {
		return nil
	}
	err.Op, err.Key = "get", key
	return &err
}

// Get implements bucket.Bucket.
func (r *Refusing) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := r.check(key); err != nil {
		return nil, err
	}
	return r.Whole.Get(ctx, key)
}

// GetTagged implements bucket.Conditional.
func (r *Refusing) GetTagged(ctx context.Context, key string) ([]byte, string, error) {
	if err := r.check(key); err != nil {
		return nil, "", err
	}
	return r.Whole.GetTagged(ctx, key)
}
