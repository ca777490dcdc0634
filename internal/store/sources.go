package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

const (
	// MostSources is how many sources SearchSources reads snapshots of. Anybody who can write to the
	// bucket can put any number of them there. Those that the storage received first come first, so
	// that what is put there later hides no source that was there before.
	MostSources = 256
	// sourceReads is how many envelopes at one end of a list SearchSources reads of a source.
	sourceReads = 3
)

// FoundSource is a source in a store.
type FoundSource struct {
	UID string
	// Snapshot is the newest of the snapshots that were read and count (CanBeParent); nil when none
	// does.
	Snapshot *Signed
	// Passed are the envelopes that were read and do not count.
	Passed []PassedOver
}

// Name returns the display name of the source; empty when no snapshot counts, since anybody could
// have written the others.
func (f *FoundSource) Name() string {
	if f.Snapshot == nil {
		return ""
	}
	return f.Snapshot.Source.Name
}

// SearchSources reads some snapshots of each source: those with the latest times in their names,
// those that the storage received last and, where none of these counts, those that it received
// first. The sources that the storage knows longest come first. unread is how many more there are
// than MostSources; nothing of them was read. Errors are those of Newest.
func (s *Store) SearchSources(ctx context.Context) (found []FoundSource, unread int, err error) {
	all, err := s.ListedSnapshots(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	sources := bySource(all)
	unread = max(0, len(sources)-MostSources)
	sources = sources[:len(sources)-unread]
	n := &newest{store: s, read: map[EnvelopeKey]candidate{}}
	var batch []StoredSnapshot
	for _, list := range sources {
		batch = append(batch, newestListed(list)...)
	}
	if err := n.readBatches(ctx, batch); err != nil {
		return nil, 0, err
	}
	batch = nil
	for _, list := range sources {
		if n.bestOf(list[0].Key.Source) == nil {
			batch = append(batch, n.unread(list[:min(len(list), sourceReads)])...)
		}
	}
	if err := n.readBatches(ctx, batch); err != nil {
		return nil, 0, err
	}
	for _, list := range sources {
		source := list[0].Key.Source
		found = append(found, FoundSource{UID: source, Snapshot: n.bestOf(source),
			Passed: n.passedOf(source)})
	}
	return found, unread, nil
}

// bySource returns the envelopes of each source, in the order in which the storage received them,
// and the sources in the order of their first ones.
func bySource(all []StoredSnapshot) [][]StoredSnapshot {
	index := map[string]int{}
	var sources [][]StoredSnapshot
	for _, stored := range all {
		i, ok := index[stored.Key.Source]
		if !ok {
			i = len(sources)
			index[stored.Key.Source], sources = i, append(sources, nil)
		}
		sources[i] = append(sources[i], stored)
	}
	for _, list := range sources {
		slices.SortStableFunc(list, compareReceived)
	}
	slices.SortStableFunc(sources, func(a, b []StoredSnapshot) int {
		return compareReceived(a[0], b[0])
	})
	return sources
}

func compareReceived(a, b StoredSnapshot) int {
	return cmp.Or(a.Modified.Compare(b.Modified), strings.Compare(a.Key.String(), b.Key.String()))
}

// newestListed returns the newest envelopes of a source by receipt and by name.
func newestListed(byReceipt []StoredSnapshot) []StoredSnapshot {
	byName := slices.Clone(byReceipt)
	slices.SortFunc(byName, func(a, b StoredSnapshot) int {
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	from := max(0, len(byName)-sourceReads)
	list := slices.Clone(byReceipt[from:])
	for _, stored := range byName[from:] {
		if !slices.Contains(list, stored) {
			list = append(list, stored)
		}
	}
	return list
}

// unread returns those of a list that were not read.
func (n *newest) unread(list []StoredSnapshot) []StoredSnapshot {
	return slices.DeleteFunc(slices.Clone(list), func(stored StoredSnapshot) bool {
		_, read := n.read[stored.Key]
		return read
	})
}

func (n *newest) readBatches(ctx context.Context, list []StoredSnapshot) error {
	for batch := range slices.Chunk(list, newestReads) {
		if err := n.readAll(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// bestOf returns the newest envelope of a source that was read and counts.
func (n *newest) bestOf(source string) *Signed {
	return n.best(func(e *Signed) bool { return e.Source.UID == source })
}

// passedOf returns the envelopes of a source that were read and do not count, by key.
func (n *newest) passedOf(source string) (passed []PassedOver) {
	for key, c := range n.read {
		if c.passed != nil && key.Source == source {
			passed = append(passed, PassedOver{Key: key, Err: c.passed})
		}
	}
	slices.SortFunc(passed, func(a, b PassedOver) int {
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	return passed
}
