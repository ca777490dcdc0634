package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// Pruned is what trusted records say was removed on purpose.
type Pruned struct {
	Removed map[string][]Range // by source; sorted, apart
	// Unusable are records that say nothing, or less than they have: damaged, or not signed by a key
	// that is trusted for all their sources.
	Unusable []string
	own      []bucket.Info // keys of those that the signing key of this store signed
}

// Explains reports whether a record says that snapshot number n of a source was removed.
func (p Pruned) Explains(source string, n int64) bool {
	return len(record.Unexplained(n, n, p.Removed[source])) == 0
}

// ExplainsAll reports whether records say that all numbers of a range were removed.
func (p Pruned) ExplainsAll(source string, r Range) bool {
	return len(record.Unexplained(r.From, r.To, p.Removed[source])) == 0
}

// Highest returns the highest number that a record has of a source; 0 when there is none.
func (p Pruned) Highest(source string) int64 {
	ranges := p.Removed[source]
	if len(ranges) == 0 {
		return 0
	}
	return ranges[len(ranges)-1].To
}

const (
	maxPruneRecord = 8 << 20
	replaceAfter   = time.Hour
)

// prunedTries is how often the records are listed again when a newer one replaced one of them
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

// readPruned reads the records once. replaced reports that one was removed after it was listed: its
// content is in a newer one, which the list may have missed.
func (s *Store) readPruned(ctx context.Context) (p Pruned, replaced bool, err error) {
	p.Removed = map[string][]Range{}
	var records []bucket.Info
	err = s.bucket.List(ctx, record.PruneFolder, func(i bucket.Info) error {
		if record.IsPruneKey(i.Key) {
			records = append(records, i)
		}
		return nil
	})
	if err != nil {
		return p, false, err
	}
	for _, key := range records {
		var r record.Prune
		signature, err := s.getSigned(ctx, key.Key, &r, maxPruneRecord)
		switch {
		case IsMissing(err):
			replaced = true
			continue
		case IsUnusable(err):
			p.Unusable = append(p.Unusable, key.Key)
			continue
		case err != nil:
			return p, false, err
		}
		counted := 0
		for source, ranges := range r.Removed {
			if s.accepted(signature.For(pruneClaim(source)).Trust) {
				p.Removed[source] = record.MergeRanges(append(p.Removed[source], ranges...))
				counted++
			}
		}
		if counted < len(r.Removed) || !s.accepted(signature.Trust) {
			p.Unusable = append(p.Unusable, key.Key)
		}
		if signature.KeyID == s.keys.SigningKeyID() && counted == len(r.Removed) {
			p.own = append(p.own, key)
		}
	}
	return p, replaced, nil
}

// pruneClaim is the claim of the part of a prune record that is about one source: a key that is
// limited to sources counts for these.
func pruneClaim(source string) keys.Claim {
	return keys.Claim{Purpose: keys.ForPrune, Sources: []string{source}}
}

// PutPruneRecord records, before snapshots are removed, which are, by source and sequence number,
// together with what was read of earlier records less what is still there; then those go that the
// same key signed and that are not of this hour. Those of other keys stay: who trusts a key for
// some sources only would lose what they say of others. It returns when that was by the clock of
// the storage. *UsageError when the signing key is not trusted for what is removed.
func (s *Store) PutPruneRecord(ctx context.Context, before Pruned, removed,
	there map[string][]int64, now time.Time) (time.Time, error) {
	ranges := map[string][]Range{}
	for source, numbers := range removed {
		for _, n := range numbers {
			ranges[source] = append(ranges[source], Range{From: n, To: n})
		}
	}
	return s.putPruneRecord(ctx, before, ranges, there, now)
}

// putPruneRecord is PutPruneRecord for ranges of numbers.
func (s *Store) putPruneRecord(ctx context.Context, before Pruned, removed map[string][]Range,
	there map[string][]int64, now time.Time) (time.Time, error) {
	now = now.UTC().Truncate(time.Millisecond)
	key := record.PruneFolder + now.Format(layout.EnvelopeTime) + "-" +
		string(NewSnapshotID()) + layout.EnvelopeSuffix
	r := record.Prune{Header: s.signer().Header(key), Time: now,
		Removed: map[string][]Range{}}
	for source, ranges := range before.Removed {
		if s.keys.MaySign(pruneClaim(source)) == nil {
			r.Removed[source] = record.Without(ranges, there[source])
		}
	}
	for source, ranges := range removed {
		r.Removed[source] = append(r.Removed[source], ranges...)
	}
	for source, ranges := range r.Removed {
		if r.Removed[source] = record.MergeRanges(ranges); len(ranges) == 0 {
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
	for _, old := range before.own {
		if old.Modified.After(info.Modified.Add(-replaceAfter)) {
			continue // another prune may just have written it, and be about to ask for its time
		}
		// Credentials of a copy run may not delete. The new record has all that the old ones have.
		if err := s.remove(ctx, old.Key); err != nil && !errors.Is(err, ErrRetained) &&
			!errors.Is(err, ErrDenied) {
			return time.Time{}, fmt.Errorf("replace prune record: %w", err)
		}
	}
	return info.Modified, nil
}
