package store

import (
	"cmp"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// This file keeps the chain of parents whole beyond a prune. After a theft an envelope of the
// stolen key is trusted because a later one has its hash. When the envelopes in between are
// removed, prune records say which parents they named.

// linksOver returns the links that the record of a removal has, by source: those over what is
// removed now, newest first, and those of earlier records of the same key.
//
// A link of another key is never taken over. Should that key turn out to be stolen, its records
// count no more, and neither must what the thief wrote in them.
func (s *Store) linksOver(before Pruned, r Removal) map[string][]record.Link {
	if !s.keys.CanSign() {
		return nil // nobody would trust them
	}
	gone := slices.Clone(r.Gone)
	slices.SortStableFunc(gone, func(a, b *Signed) int { return cmp.Compare(b.Sequence, a.Sequence) })
	links := map[string][]record.Link{}
	for _, e := range gone {
		if s.CanBeParent(e) && e.Parent != nil {
			links[e.Source.UID] = append(links[e.Source.UID],
				record.Link{SHA256: e.SHA256, Parent: *e.Parent})
		}
	}
	there := newPresent(s.keys.LastTrusted(), r)
	for source, old := range before.ownLinks {
		if s.keys.MaySign(pruneClaim(source)) == nil {
			links[source] = append(links[source], there.compress(source, old)...)
		}
	}
	return links
}

// present is what the store has while links are compressed.
type present struct {
	listed map[listedSnapshot]bool
	read   map[string]bool // SHA-256 of the envelopes
	named  map[string]bool // SHA-256 that an envelope has of its parent, or that a limit names
}

type listedSnapshot struct {
	source string
	id     SnapshotID
}

func newPresent(heads []LastTrusted, r Removal) *present {
	p := &present{listed: map[listedSnapshot]bool{}, read: map[string]bool{},
		named: map[string]bool{}}
	for _, k := range r.Listed {
		p.listed[listedSnapshot{k.Source, k.ID}] = true
	}
	for _, e := range slices.Concat(r.Gone, r.Stay) {
		p.read[e.SHA256] = true
		if e.Parent != nil {
			p.named[e.Parent.SHA256] = true
		}
	}
	for _, h := range heads {
		p.named[h.Hash] = true
	}
	return p
}

// compress leads each link of a source as far back as all in between are removed, and leaves out
// those that nothing leads to any more. So there are about as many links as gaps. A snapshot that
// is still there, since somebody pinned it or the storage retains it, is not skipped.
func (p *present) compress(source string, links []record.Link) []record.Link {
	parents := bySHA256(links)
	skipped := map[string]bool{}
	ends := map[string][]Parent{}
	var endsOf func(at Parent) []Parent
	endsOf = func(at Parent) []Parent {
		if p.listed[listedSnapshot{source, at.ID}] || len(parents[at.SHA256]) == 0 {
			return []Parent{at}
		}
		skipped[at.SHA256] = true
		if found, ok := ends[at.SHA256]; ok {
			return found
		}
		ends[at.SHA256] = nil // ends a circle, which no writer makes
		var found []Parent
		for _, next := range parents[at.SHA256] {
			for _, end := range endsOf(next) {
				if !slices.Contains(found, end) {
					found = append(found, end)
				}
			}
		}
		ends[at.SHA256] = found
		return found
	}
	var all []record.Link
	seen := map[record.Link]bool{}
	for _, l := range links {
		for _, end := range endsOf(l.Parent) {
			if to := (record.Link{SHA256: l.SHA256, Parent: end}); !seen[to] {
				seen[to] = true
				all = append(all, to)
			}
		}
	}
	return slices.DeleteFunc(all, func(l record.Link) bool {
		return p.read[l.SHA256] || skipped[l.SHA256] && !p.named[l.SHA256]
	})
}

const (
	// minLink is how many bytes a link takes at least.
	minLink = 180
	// maxSignature is more than a signature takes in a document.
	maxSignature = 1 << 10
)

// fitLinks leaves out the last links of each source until a record fits the format: the numbers
// must be on record before anything is removed, and links only help after a theft.
func fitLinks(r *record.Prune, most int) error {
	for {
		count := 0
		for _, links := range r.Links {
			count += len(links)
		}
		if count*minLink <= most {
			text, err := document.Encode(r)
			if err != nil {
				return err
			}
			// As text inside JSON, each quotation mark is escaped.
			stored, err := document.Encode(document.File{Payload: string(text)})
			if err != nil || count == 0 || len(stored) <= most-maxSignature {
				return err
			}
		}
		for source, links := range r.Links {
			if r.Links[source] = links[:len(links)/2]; len(links) < 2 {
				delete(r.Links, source)
			}
		}
	}
}
