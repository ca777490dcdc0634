package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/task"
)

// CopyingExpiry is the age, by the clock of the storage, from which on a prune ignores the record
// of a copy run: nobody completes that run any more. A run that is larger than that is a run that
// was interrupted, and begins with a new record.
const CopyingExpiry = 7 * 24 * time.Hour

const maxCopying = 1 << 20

// recordReads is how many small records, or keys of a copy, are asked for at once.
const recordReads = 16

// CopyingRecord is the record of a copy run as it was read or written.
type CopyingRecord struct {
	Key   string
	Trees []Key
	// Modified is when the storage received it.
	Modified time.Time
}

// PutCopying records which trees a copy run is about to bring, which are stored already: what they
// name stays from now on, until RemoveCopying or CopyingExpiry.
func (s *Store) PutCopying(ctx context.Context, trees []Key, now time.Time) (CopyingRecord, error) {
	now = now.UTC().Truncate(time.Millisecond)
	key := record.CopyingFolder + now.Format(layout.EnvelopeTime) + "-" + string(NewSnapshotID()) +
		layout.EnvelopeSuffix
	c := record.Copying{Header: s.signer().Header(key), Time: now, Trees: trees}
	if err := c.Validate(); err != nil {
		return CopyingRecord{}, fmt.Errorf("write %s: %w", key, err)
	}
	if err := s.checkStoreID(ctx); err != nil {
		return CopyingRecord{}, fmt.Errorf("write %s: %w", key, err)
	}
	if err := s.putSigned(ctx, key, &c, maxCopying); err != nil {
		return CopyingRecord{}, err
	}
	info, err := s.bucket.Stat(ctx, key)
	if err == nil {
		err = requireModTime(info)
	}
	return CopyingRecord{Key: key, Trees: trees, Modified: info.Modified}, err
}

// CopyRuns are the records of copy runs, each part oldest first by the times in their names.
type CopyRuns struct {
	// Live are accepted; where somebody wrote over one, an older version is.
	Live []CopyingRecord
	// Unusable are damaged, or no trusted key signed them: which trees they name is not known.
	Unusable []CopyingRecord
	// Expired are those that the storage received CopyingExpiry ago. They were not read.
	Expired []CopyingRecord
}

// Copyings returns the records of copy runs, as of a time by the clock of the storage.
func (s *Store) Copyings(ctx context.Context, now time.Time) (CopyRuns, error) {
	var runs CopyRuns
	var young []CopyingRecord
	err := s.bucket.List(ctx, record.CopyingFolder, func(i bucket.Info) error {
		switch r := (CopyingRecord{Key: i.Key, Modified: i.Modified}); {
		case !record.IsCopyingKey(i.Key):
		case now.Sub(i.Modified) >= CopyingExpiry:
			runs.Expired = append(runs.Expired, r)
		default:
			young = append(young, r)
		}
		return nil
	})
	if err != nil {
		return CopyRuns{}, err
	}
	gone, accepted := make([]bool, len(young)), make([]bool, len(young))
	g, gctx := task.WithContext(ctx)
	g.SetLimit(recordReads)
	for i := range young {
		g.Go(func() (err error) {
			young[i].Trees, accepted[i], err = s.readCopying(gctx, young[i].Key)
			if gone[i] = IsMissing(err); gone[i] { // its run has ended since it was listed
				err = nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return CopyRuns{}, err
	}
	for i, r := range young {
		switch {
		case gone[i]:
		case accepted[i]:
			runs.Live = append(runs.Live, r)
		default:
			runs.Unusable = append(runs.Unusable, r)
		}
	}
	return runs, nil
}

// readCopying returns the trees of a record; accepted is false when neither it nor an older version
// is accepted. ErrNotFound.
func (s *Store) readCopying(ctx context.Context, key string) (trees []Key, accepted bool,
	err error) {
	open := func(data []byte) (bool, error) {
		var c record.Copying
		signature, err := s.signer().Open(key, data, &c)
		if accepted = err == nil && s.accepted(signature.Trust); accepted {
			trees = c.Trees
		}
		return accepted, nil
	}
	data, err := bucket.ReadAll(ctx, s.bucket, key, maxCopying)
	if IsMissing(err) || OfStore(ctx, err) != nil {
		return nil, false, err
	}
	if err == nil {
		_, _ = open(data)
	}
	if accepted || !s.keys.CanTrust() {
		return trees, accepted, nil
	}
	err = previousDocuments(ctx, s.bucket, key, maxCopying, open)
	return trees, accepted, err
}

// RequireStored returns ErrNotFound when one of the keys of content is not in the bucket.
func (s *Store) RequireStored(ctx context.Context, keys []Key) error {
	g, gctx := task.WithContext(ctx)
	g.SetLimit(recordReads)
	for _, key := range keys {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			_, err := s.bucket.Stat(gctx, string(key))
			return err
		})
	}
	return g.Wait()
}

// RemoveCopying removes the record of a copy run. One that does not exist is success. ErrRetained.
func (s *Store) RemoveCopying(ctx context.Context, r CopyingRecord) error {
	return s.remove(ctx, r.Key)
}

// PutExplained records in a copy that snapshots are not in it on purpose: the origin removed them,
// or the run leaves them out. Numbers in there stay unexplained. It writes nothing when before says
// all of that already; wrote is false then.
func (s *Store) PutExplained(ctx context.Context, before Pruned, explained map[string][]Range,
	there map[string][]int64, now time.Time) (wrote bool, err error) {
	added := map[string][]Range{}
	for source, ranges := range explained {
		for _, r := range record.Without(record.MergeRanges(ranges), there[source]) {
			if left := record.Unexplained(r.From, r.To, before.Removed[source]); len(left) > 0 {
				added[source] = append(added[source], left...)
			}
		}
	}
	if len(added) == 0 {
		return false, nil
	}
	// What is there and was removed before came back; PutPruneRecord of the next prune sees to that.
	_, err = s.putPruneRecord(ctx, before, added, there, before.ownLinks, now)
	if errors.Is(err, ErrRecordGone) {
		err = nil // what explains numbers allows nothing; the next run writes it again if it has to
	}
	return true, err
}

// WithoutNumbers takes numbers out of ranges.
func WithoutNumbers(ranges []Range, numbers []int64) []Range {
	return record.Without(record.MergeRanges(ranges), slices.Clone(numbers))
}
