package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/store/record"
)

// ChainBreakKind is what is wrong in a chain.
type ChainBreakKind string

// Kinds of ChainBreak.
const (
	// ChainGap: sequence numbers From to To are not there, and no trusted record says that they
	// were removed on purpose.
	ChainGap ChainBreakKind = "gap"
	// ChainFork: a sequence number occurs more than once: two writers, or one that did not see the
	// newest snapshot.
	ChainFork ChainBreakKind = "fork"
	// ChainParent: a snapshot names as its parent another file than the one that is there.
	ChainParent ChainBreakKind = "parent"
)

// ChainBreak is one break in the chain of a source's snapshots. It is no object.Finding, because a
// break has no severity and no code by itself: a restore reports it as snapshot-gap, and a prune as
// snapshot-missing.
type ChainBreak struct {
	Kind     ChainBreakKind
	Key      EnvelopeKey // the snapshot at which it shows
	From, To int64       // sequence numbers of a gap
	Message  string
}

// CheckChain reports all breaks in the chain of the envelopes of one source, given in any order;
// removed are the numbers of those that were removed on purpose, of Store.Pruned. It cannot see
// that the newest ones are hidden. That shows as a gap or a fork after the next snapshot, or to a
// caller who remembers the last sequence number.
func CheckChain(envelopes []Signed, removed []Range) []ChainBreak {
	sorted := slices.Clone(envelopes)
	slices.SortFunc(sorted, func(a, b Signed) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), a.Time.Compare(b.Time),
			cmp.Compare(a.ID, b.ID))
	})
	byID := make(map[SnapshotID]*Signed, len(sorted))
	for i := range sorted {
		byID[sorted[i].ID] = &sorted[i]
	}
	var breaks []ChainBreak
	var last int64
	for i := range sorted {
		e := &sorted[i]
		switch {
		case i > 0 && e.Sequence == last:
			breaks = append(breaks, ChainBreak{Kind: ChainFork, Key: e.Key(),
				Message: fmt.Sprintf("snapshots %s and %s both have number %d", sorted[i-1].ID, e.ID, last)})
		case e.Sequence > last+1:
			for _, gap := range record.Unexplained(last+1, e.Sequence-1, removed) {
				breaks = append(breaks, ChainBreak{Kind: ChainGap, Key: e.Key(), From: gap.From,
					To: gap.To, Message: gapMessage(gap.From, gap.To)})
			}
		}
		if reason := checkParent(e, byID, last, i > 0); reason != "" {
			breaks = append(breaks, ChainBreak{Kind: ChainParent, Key: e.Key(), Message: reason})
		}
		last = e.Sequence
	}
	return breaks
}

func gapMessage(from, to int64) string {
	if from == to {
		return fmt.Sprintf("snapshot number %d is not there", from)
	}
	return fmt.Sprintf("snapshots number %d to %d are not there", from, to)
}

// checkParent returns what is wrong with the parent of e, whose predecessor in the list has the
// number last.
func checkParent(e *Signed, byID map[SnapshotID]*Signed, last int64, hasLast bool) string {
	if e.Parent == nil {
		if e.Sequence > 1 {
			return fmt.Sprintf("snapshot %s has number %d and names no parent", e.ID, e.Sequence)
		}
		return ""
	}
	parent, ok := byID[e.Parent.ID]
	switch {
	case ok && parent.SHA256 != e.Parent.SHA256:
		return fmt.Sprintf("the envelope of %s is not the one that %s was made after", e.Parent.ID, e.ID)
	case ok && parent.Sequence != e.Sequence-1:
		return fmt.Sprintf("snapshot %s has number %d, its parent %s has %d", e.ID, e.Sequence, parent.ID,
			parent.Sequence)
	case !ok && hasLast && last == e.Sequence-1:
		return fmt.Sprintf("snapshot %s was made after %s, which is not there; another one has its "+
			"number", e.ID, e.Parent.ID)
	}
	return ""
}
