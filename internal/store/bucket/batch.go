package bucket

import (
	"context"
	"errors"
)

// BatchRemover is the ability to delete many keys with few requests. A prune uses it: the time of
// one request for each key is most of what a prune of a remote bucket takes.
type BatchRemover interface {
	// BatchSize returns how many keys a DeleteBatch should get. It is 1 when the storage deletes
	// only one key with a request, which may be known only after the first DeleteBatch.
	BatchSize() int
	// DeleteBatch deletes each key as Remover.Delete does, and may run twice like that. It returns
	// an error for every key that Delete would return one for, and no entry for a deleted key.
	// ErrUnbatched says that Delete has to be called for a key.
	DeleteBatch(ctx context.Context, keys []string) map[string]error
}

// ErrUnbatched says that a key was not deleted together with others, for a reason that does not
// count for the key alone: the storage does not know such requests, or does not say what became of
// the key.
var ErrUnbatched = errors.New("not deleted together with other keys")

// BatchSizeOf returns how many keys a deletion from b should get at once, at least 1.
func BatchSizeOf(b Bucket) int {
	r, ok := b.(BatchRemover)
	if !ok {
		return 1
	}
	return max(r.BatchSize(), 1)
}

// DeleteEach is a DeleteBatch with one Delete after the other.
func DeleteEach(ctx context.Context, r Remover, keys []string) map[string]error {
	failed := map[string]error{}
	for _, key := range keys {
		if err := r.Delete(ctx, key); err != nil {
			failed[key] = err
		}
	}
	return failed
}
