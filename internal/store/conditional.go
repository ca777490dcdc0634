package store

import (
	"context"
	"errors"
	"fmt"
)

// Conditional is what a bucket can do besides when it honours conditions on writes. Only ownership
// records need it: they are the only keys that ever change. Errors and retries are those of Bucket.
type Conditional interface {
	// GetTagged reads a whole key and the tag of its bytes; ErrNotFound when it is not there. A tag
	// stands for the bytes, not for the write: it may be the same again when the same bytes come
	// back.
	GetTagged(ctx context.Context, key string) (data []byte, tag string, err error)
	// PutIf stores data under key if the key still has the tag; "" means that it must not be there.
	// It returns the new tag. ErrConflict when the condition does not hold, and then nothing was
	// changed. The bytes are whole and durable when it returns; of several concurrent calls with
	// one tag at most one succeeds, provided that they write different bytes: an answer that was
	// lost is looked up, and goes by the bytes: where another has written on top by then, it is
	// ErrConflict, too, though the key was ours for a moment. After any other error the key has the
	// old bytes or the new ones.
	PutIf(ctx context.Context, key string, data []byte, tag string) (newTag string, err error)
}

// maxTagged bounds what GetTagged reads.
const maxTagged = 1 << 20

// prober is a Conditional that cannot tell before it has tried whether conditions are honoured: a
// server that does not know them ignores them.
type prober interface {
	// honours tries it out once for each place, and keeps what it found there.
	honours(ctx context.Context) (bool, error)
}

var errUnconditional = errors.New("conditions on writes are not honoured here")

// conditional returns the bucket as a Conditional; errUnconditional when it is none.
func conditional(ctx context.Context, b Bucket) (Conditional, error) {
	c, ok := b.(Conditional)
	if !ok {
		return nil, errUnconditional
	}
	if p, ok := b.(prober); ok {
		honoured, err := p.honours(ctx)
		if err != nil {
			return nil, err
		}
		if !honoured {
			return nil, errUnconditional
		}
	}
	return c, nil
}

// FenceError says that ownership cannot be recorded in this store, so that nothing there keeps two
// management clusters from one workload cluster. CanFence, PutOwner.
type FenceError struct {
	Store  string
	Reason string
	Tip    string
}

func (e *FenceError) Error() string {
	return fmt.Sprintf("fence by store %s: %s", e.Store,
		e.Reason)
}

// Hint says what an operator can do.
func (e *FenceError) Hint() string { return e.Tip }

// CanFence tells whether ownership can be recorded here: nil, a *FenceError that says what is
// missing, or the bucket's error.
func (s *Store) CanFence(ctx context.Context) error {
	_, err := s.fencing(ctx)
	return err
}

func (s *Store) fencing(ctx context.Context) (Conditional, error) {
	if s.Encrypted() && !s.keys.CanSign() {
		return nil, &FenceError{
			Store: s.String(), Reason: "no key to sign ownership records with",
			Tip: "give the signing key (--signing-key), or go on without fencing by the store " +
				"(--no-fence) if you know that nothing else works on these workload clusters",
		}
	}
	c, err := conditional(ctx, s.bucket)
	if errors.Is(err, errUnconditional) {
		return nil, &FenceError{
			Store: s.String(), Reason: err.Error(),
			Tip: "use a store whose server honours If-None-Match and If-Match, or go on without fencing " +
				"by the store (--no-fence) if you know that nothing else works on these workload clusters",
		}
	}
	return c, err
}
