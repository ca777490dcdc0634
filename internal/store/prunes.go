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
	// links lead over removed envelopes, by source. ownLinks are those that the signing key signed.
	links, ownLinks map[string][]record.Link
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
	p = Pruned{Removed: map[string][]Range{}, links: map[string][]record.Link{},
		ownLinks: map[string][]record.Link{}}
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
		case OfStore(ctx, err) != nil:
			return p, false, err
		case err != nil:
			p.Unusable = append(p.Unusable, key.Key)
			continue
		}
		s.addPruned(&p, key, &r, signature)
	}
	return p, replaced, nil
}

// addPruned adds what a record says.
func (s *Store) addPruned(p *Pruned, key bucket.Info, r *record.Prune, signature Signature) {
	counted := 0
	for source, ranges := range r.Removed {
		if s.accepted(signature.For(pruneClaim(source)).Trust) {
			p.Removed[source] = record.MergeRanges(append(p.Removed[source], ranges...))
			counted++
		}
	}
	own := signature.KeyID == s.keys.SigningKeyID()
	for source, links := range r.Links {
		// A key that was stolen is trusted for no record: the thief could make up links.
		if signature.For(pruneClaim(source)).Trust != Trusted {
			continue
		}
		p.links[source] = append(p.links[source], links...)
		if own {
			p.ownLinks[source] = append(p.ownLinks[source], links...)
		}
	}
	if counted < len(r.Removed) || !s.accepted(signature.Trust) {
		p.Unusable = append(p.Unusable, key.Key)
	}
	if own && counted == len(r.Removed) {
		p.own = append(p.own, key)
	}
}

// pruneClaim is the claim of the part of a prune record that is about one source: a key that is
// limited to sources counts for these.
func pruneClaim(source string) keys.Claim {
	return keys.Claim{Purpose: keys.ForPrune, Sources: []string{source}}
}

// Removal is what a prune is about to remove.
type Removal struct {
	// Gone are the snapshots that are to be removed, Stay all others that were read. Those that
	// CanBeParent refuses prove nothing about sequence numbers, and are not put on record.
	Gone, Stay []*Signed
	// Numbers are further sequence numbers to record, by source, of snapshots that are not there.
	Numbers map[string][]int64
	// Listed are the keys of all snapshots that are there, read or not.
	Listed []EnvelopeKey
}

// PutPruneRecord records, before snapshots are removed, which are, by source and sequence number,
// together with what was read of earlier records less what is still there, and the links over them
// (Removal.links); then those records go that the same key signed and that are not of this hour.
// Those of other keys stay: who trusts a key for some sources only would lose what they say of
// others. It returns when that was by the clock of the storage. *UsageError when the signing key is
// not trusted for what is removed; ErrRecordGone.
func (s *Store) PutPruneRecord(ctx context.Context, before Pruned, r Removal, now time.Time) (
	time.Time, error) {
	ranges, there := map[string][]Range{}, map[string][]int64{}
	for source, numbers := range r.Numbers {
		for _, n := range numbers {
			ranges[source] = append(ranges[source], Range{From: n, To: n})
		}
	}
	for _, e := range r.Gone {
		if s.CanBeParent(e) {
			ranges[e.Source.UID] = append(ranges[e.Source.UID], Range{From: e.Sequence, To: e.Sequence})
		}
	}
	for _, e := range r.Stay {
		if s.CanBeParent(e) {
			there[e.Source.UID] = append(there[e.Source.UID], e.Sequence)
		}
	}
	return s.putPruneRecord(ctx, before, ranges, there, s.linksOver(before, r), now)
}

// putPruneRecord is PutPruneRecord for ranges of numbers and for links.
func (s *Store) putPruneRecord(ctx context.Context, before Pruned, removed map[string][]Range,
	there map[string][]int64, links map[string][]record.Link, now time.Time) (time.Time, error) {
	now = now.UTC().Truncate(time.Millisecond)
	key := record.PruneFolder + now.Format(layout.EnvelopeTime) + "-" +
		string(NewSnapshotID()) + layout.EnvelopeSuffix
	r := record.Prune{Header: s.signer().Header(key), Time: now,
		Removed: map[string][]Range{}, Links: map[string][]record.Link{}}
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
	for source, list := range links {
		if len(r.Removed[source]) > 0 {
			r.Links[source] = list
		}
	}
	if err := fitLinks(&r, maxPruneRecord); err != nil {
		return time.Time{}, err
	}
	if err := s.putSigned(ctx, key, &r, maxPruneRecord); err != nil {
		return time.Time{}, err
	}
	return s.replaceRecords(ctx, before, key)
}

// ErrRecordGone says that the record that was just written is gone again. Another prune has
// replaced it by one that says the same, if this process slept for an hour in between; otherwise
// somebody deleted it.
var ErrRecordGone error = recordGoneError{}

type recordGoneError struct{}

func (recordGoneError) Error() string { return "the record of what is removed is gone again" }

// Hint says what to do next.
func (recordGoneError) Hint() string {
	return "no snapshot was removed: see that nobody, and no rule of the bucket, deletes what is " +
		"new in its folder prunes/, and prune again"
}

// replaceRecords removes the records that the one under key replaces, and returns the storage's
// time of that one. ErrRecordGone.
func (s *Store) replaceRecords(ctx context.Context, before Pruned, key string) (time.Time,
	error) {
	info, err := s.bucket.Stat(ctx, key)
	switch {
	case IsMissing(err):
		return time.Time{}, fmt.Errorf("%s: %w", key, ErrRecordGone)
	case err == nil:
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
