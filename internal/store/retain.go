package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/task"
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
// that is taken now, and returns until when each of them is retained. Of each it retains the
// version that a writer of this store stored, never the bytes of somebody who wrote over it. It may
// run twice; a key that is retained for long enough is not changed. Errors: ErrNotFound,
// *CorruptError when the current bytes of a key are not those of its name.
func (s *Store) Retain(ctx context.Context, keys []Key) ([]time.Time, error) {
	r, ok := s.bucket.(bucket.Retainer)
	if envelope, _ := s.Retention(); !ok || envelope == 0 {
		return make([]time.Time, len(keys)), nil
	}
	until := make([]time.Time, len(keys))
	g, ctx := task.WithContext(ctx)
	g.SetLimit(retainCalls)
	for i, key := range keys {
		g.Go(func() (err error) {
			until[i], err = r.Retain(ctx, string(key), key.SHA256())
			return err
		})
	}
	g.Go(func() error {
		at, err := r.Retain(ctx, markerKey, s.marker.sha256)
		if IsCorrupt(err) && !at.IsZero() {
			err = nil // an older version is retained, which readers find as well
		}
		return err
	})
	return until, g.Wait()
}

// Retained is until when the storage retains what a snapshot names.
type Retained struct {
	// Asked reports that the bucket was opened with Object Lock, or that the storage retains the
	// envelope anyway. Otherwise the other fields are zero.
	Asked bool
	// Until is the earliest time of all keys; zero when one of them is not retained, or when these
	// credentials may not see it.
	Until time.Time
	// Least is until when the snapshot was to be retained, by the options of the bucket; zero when
	// nothing is asked of it.
	Least time.Time
	// First is the key that Until is of.
	First string
	// Short are the keys that are retained for less than Least.
	Short int
	// Keys is how many keys were looked at.
	Keys int
}

// RetainedUntil returns until when the storage retains everything that a snapshot names: its
// envelope, its tree, its shards and packs, and mgmtd.json. A key that is gone counts as not
// retained.
func (s *Store) RetainedUntil(ctx context.Context, e Signed) (Retained, error) {
	r, ok := s.bucket.(bucket.Retainer)
	if !ok {
		return Retained{}, nil
	}
	var result Retained
	envelope, _ := r.Retention()
	until, err := r.RetainedUntil(ctx, e.Key().String(), e.SHA256)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	if result.Asked = envelope > 0 || !until.IsZero(); err != nil || !result.Asked {
		return Retained{}, err
	}
	if envelope > 0 {
		result.Least = e.Time.Add(envelope - lockMargin)
	}
	result.add(e.Key().String(), until)
	tree, err := s.GetTree(ctx, e.Tree)
	if err != nil && !IsMissing(err) && !IsUnusable(err) {
		return Retained{}, err
	}
	keys := append([]Key{e.Tree}, slices.Concat(tree.Shards, tree.Packs)...)
	all, err := s.retainedUntil(ctx, r, keys)
	for i, until := range all {
		key := markerKey
		if i < len(keys) {
			key = string(keys[i])
		}
		result.add(key, until)
	}
	return result, err
}

// lockMargin is what Retention adds to the days that an operator asked for, and some seconds for
// clocks that differ.
const lockMargin = time.Hour + time.Minute

// add counts one key.
func (r *Retained) add(key string, until time.Time) {
	if r.Keys == 0 || until.Before(r.Until) {
		r.Until, r.First = until, key
	}
	if r.Keys++; until.Before(r.Least) {
		r.Short++
	}
}

// retainedUntil returns until when keys are retained, and mgmtd.json after them.
func (s *Store) retainedUntil(ctx context.Context, r bucket.Retainer, keys []Key) ([]time.Time,
	error) {
	until := make([]time.Time, len(keys)+1)
	g, ctx := task.WithContext(ctx)
	g.SetLimit(retainCalls)
	for i := range until {
		key, sum := markerKey, s.marker.sha256
		if i < len(keys) {
			key, sum = string(keys[i]), keys[i].SHA256()
		}
		g.Go(func() (err error) {
			until[i], err = r.RetainedUntil(ctx, key, sum)
			if errors.Is(err, ErrNotFound) {
				err = nil
			}
			return err
		})
	}
	return until, g.Wait()
}
