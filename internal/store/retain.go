package store

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// retainCalls is how many keys are retained at once.
const retainCalls = 16

// Retention returns for how long the bucket's storage retains what is written now: envelope for
// what a snapshot names, content for new content. Both are 0 without retention.
func (s *Store) Retention() (envelope, content time.Duration) {
	if r, ok := s.bucket.(bucket.Retainer); ok {
		return r.Retention()
	}
	return 0, 0
}

// Retain makes the storage retain keys, and mgmtd.json, for as long as the envelope of a snapshot
// that is taken now, and returns until when each of them is retained. It may run twice; a key that
// is retained for long enough is not changed. Errors: ErrNotFound, *CorruptError.
func (s *Store) Retain(ctx context.Context, keys []Key) ([]time.Time, error) {
	r, ok := s.bucket.(bucket.Retainer)
	if envelope, _ := s.Retention(); !ok || envelope == 0 {
		return make([]time.Time, len(keys)), nil
	}
	until := make([]time.Time, len(keys)+1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(retainCalls)
	for i, key := range append(slices.Clone(keys), markerKey) {
		g.Go(func() (err error) {
			until[i], err = r.Retain(ctx, string(key))
			return err
		})
	}
	return until[:len(keys)], g.Wait()
}
