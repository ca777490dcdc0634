package bucket

import (
	"context"
	"errors"
)

// Conditional is the ability to write on a condition. Only ownership records need it: they are the
// only keys that ever change. Errors and retries are those of Bucket.
type Conditional interface {
	// GetTagged reads a whole key and the tag of its bytes; ErrNotFound when the key does not
	// exist. A tag identifies bytes, not a write: the same bytes may have the same tag again.
	GetTagged(ctx context.Context, key string) (data []byte, tag string, err error)
	// PutIf stores data under key if the key still has the tag; "" means that the key must not
	// exist. It returns the new tag. ErrConflict means that the condition does not hold, and
	// nothing was changed. The bytes are whole and durable when PutIf returns. Of several
	// concurrent calls with one tag and different bytes at most one succeeds.
	//
	// When an answer is lost, the implementation reads the key and compares the bytes. If another
	// writer has replaced them by then, the result is ErrConflict although this write had
	// succeeded. After any other error the key has the old bytes or the new ones.
	PutIf(ctx context.Context, key string, data []byte, tag string) (newTag string, err error)
}

// MaxTagged bounds what GetTagged reads.
const MaxTagged = 1 << 20

// ConditionProber is a Conditional that knows only after a trial whether the storage supports
// conditions: a server that does not know the headers ignores them.
type ConditionProber interface {
	// SupportsConditionalWrites tries conditions once for each bucket, and records the result in
	// the bucket.
	SupportsConditionalWrites(ctx context.Context) (bool, error)
}

// ErrUnconditional says that a bucket has no conditional writes.
var ErrUnconditional = errors.New("conditions on writes are not honoured here")

// AsConditional returns b as a Conditional, or ErrUnconditional.
func AsConditional(ctx context.Context, b Bucket) (Conditional, error) {
	c, ok := b.(Conditional)
	if !ok {
		return nil, ErrUnconditional
	}
	if p, ok := b.(ConditionProber); ok {
		supported, err := p.SupportsConditionalWrites(ctx)
		if err != nil {
			return nil, err
		}
		if !supported {
			return nil, ErrUnconditional
		}
	}
	return c, nil
}
