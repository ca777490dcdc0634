package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Range is the sequence numbers From to To, both among them.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// pruneRecord says which snapshots were removed on purpose, so that a gap in their numbers is not
// taken for a snapshot that somebody hides.
type pruneRecord struct {
	placed
	Time    time.Time          `json:"time"`
	Removed map[string][]Range `json:"removed"` // by source; sorted, apart
}

// Pruned is what trusted records say was removed on purpose.
type Pruned struct {
	Removed map[string][]Range // by source; sorted, apart
	// Unusable are records that say nothing: damaged, or not signed by a trusted key.
	Unusable []string
	keys     []bucket.Info // of those that were read
}

const (
	pruneFolder    = "prunes/"
	maxPruneRecord = 8 << 20
	replaceAfter   = time.Hour
)

// prunedTries is how often the records are listed anew of which one was replaced by a newer one
// meanwhile.
const prunedTries = 3

// Pruned reads all records of what was removed.
func (s *Store) Pruned(ctx context.Context) (p Pruned, err error) {
	for range prunedTries {
		var replaced bool
		if p, replaced, err = s.readPruned(ctx); err != nil || !replaced {
			break
		}
	}
	return p, err
}

// readPruned tells also whether a record went since it was listed: what was in it is in a newer
// one, which may not have been listed.
func (s *Store) readPruned(ctx context.Context) (p Pruned, replaced bool, err error) {
	p.Removed = map[string][]Range{}
	var keys []bucket.Info
	err = s.bucket.List(ctx, pruneFolder, func(i bucket.Info) error {
		if isPruneKey(i.Key) {
			keys = append(keys, i)
		}
		return nil
	})
	if err != nil {
		return p, false, err
	}
	for _, key := range keys {
		var r pruneRecord
		trust, err := s.getSigned(ctx, key.Key, &r, maxPruneRecord)
		switch {
		case errors.Is(err, ErrNotFound) && !errors.Is(err, ErrStoreMissing):
			replaced = true
			continue
		case isUnusable(err), err == nil && (!s.vouched(trust) || !r.sound()):
			p.Unusable = append(p.Unusable, key.Key)
			continue
		case err != nil:
			return p, false, err
		}
		p.keys = append(p.keys, key)
		for source, ranges := range r.Removed {
			p.Removed[source] = mergeRanges(append(p.Removed[source], ranges...))
		}
	}
	return p, replaced, nil
}

func isUnusable(err error) bool {
	_, corrupt := errors.AsType[*CorruptError](err)
	_, format := errors.AsType[*FormatError](err)
	return corrupt || format || errors.Is(err, ErrForeign)
}

func isPruneKey(key string) bool {
	name, ok := strings.CutPrefix(key, pruneFolder)
	if !ok {
		return false
	}
	_, err := ParseEnvelopeKey(layout.EnvelopeFolder + "x/" + name) // the same form
	return err == nil
}

func (r *pruneRecord) sound() bool {
	for source, ranges := range r.Removed {
		if !layout.ValidSource(source) {
			return false
		}
		for _, one := range ranges {
			if one.From < 1 || one.To < one.From {
				return false
			}
		}
	}
	return true
}

// PutPruneRecord records, before snapshots are removed, which are, by source and sequence number,
// together with what was read of earlier records less what is still there; then those go that are
// not of this hour. It returns when that was by the clock of the storage.
func (s *Store) PutPruneRecord(ctx context.Context, before Pruned, removed,
	there map[string][]int64, now time.Time) (time.Time, error) {
	now = now.UTC().Truncate(time.Millisecond)
	key := pruneFolder + now.Format(layout.EnvelopeTime) + "-" +
		string(NewSnapshotID()) + layout.EnvelopeSuffix
	r := pruneRecord{placed: placed{Format: Format, StoreID: s.ID(), Key: key}, Time: now,
		Removed: map[string][]Range{}}
	for source, ranges := range before.Removed {
		r.Removed[source] = without(ranges, there[source])
	}
	for source, numbers := range removed {
		for _, n := range numbers {
			r.Removed[source] = append(r.Removed[source], Range{From: n, To: n})
		}
	}
	for source, ranges := range r.Removed {
		if r.Removed[source] = mergeRanges(ranges); len(ranges) == 0 {
			delete(r.Removed, source)
		}
	}
	if err := s.putSigned(ctx, key, &r, maxPruneRecord); err != nil {
		return time.Time{}, err
	}
	info, err := s.bucket.Stat(ctx, key)
	if err == nil {
		err = requireModTime(info)
	}
	if err != nil {
		return time.Time{}, err
	}
	for _, old := range before.keys {
		if old.Modified.After(info.Modified.Add(-replaceAfter)) {
			continue // another prune may just have written it, and be about to ask for its time
		}
		if err := s.remove(ctx, old.Key); err != nil && !errors.Is(err, ErrRetained) {
			return time.Time{}, fmt.Errorf("replace prune record: %w", err)
		}
	}
	return info.Modified, nil
}

// mergeRanges sorts ranges and joins those that touch.
func mergeRanges(ranges []Range) []Range {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	var merged []Range
	for _, r := range ranges {
		if n := len(merged); n > 0 && r.From-1 <= merged[n-1].To {
			merged[n-1].To = max(merged[n-1].To, r.To)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// without takes numbers out of ranges that are sorted and apart.
func without(ranges []Range, numbers []int64) []Range {
	numbers = slices.Sorted(slices.Values(numbers))
	var left []Range
	for _, r := range ranges {
		i, _ := slices.BinarySearch(numbers, r.From)
		for ; i < len(numbers) && numbers[i] <= r.To; i++ {
			if numbers[i] > r.From {
				left = append(left, Range{From: r.From, To: numbers[i] - 1})
			}
			r.From = numbers[i] + 1
		}
		if r.From <= r.To {
			left = append(left, r)
		}
	}
	return left
}

// unexplained gives the parts of from to to that are not in ranges.
func unexplained(from, to int64, ranges []Range) []Range {
	var left []Range
	for _, r := range ranges {
		if r.To < from || r.From > to {
			continue
		}
		if r.From > from {
			left = append(left, Range{From: from, To: r.From - 1})
		}
		if r.To >= to {
			return left
		}
		from = r.To + 1
	}
	if from <= to {
		left = append(left, Range{From: from, To: to})
	}
	return left
}
