package record

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/envelope"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Range is the sequence numbers From to To, both among them.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Prune says which snapshots were removed on purpose, so that a gap in their numbers is not
// taken for a snapshot that somebody hides.
type Prune struct {
	document.Header
	Time    time.Time          `json:"time"`
	Removed map[string][]Range `json:"removed"` // by source; sorted, apart
	// Links lead over removed snapshots, by source. Earlier versions neither wrote nor read them.
	Links map[string][]Link `json:"links,omitempty"`
}

// Link says which parent an envelope named that was removed. The hash names the bytes of that
// envelope, so that the link is true or false for good, whoever signed the envelope. Parent may
// also be an earlier predecessor, when those in between were removed as well.
type Link struct {
	SHA256 string          `json:"sha256"` // of the stored envelope
	Parent envelope.Parent `json:"parent"`
}

// PruneFolder has the records of prunes.
const PruneFolder = "prunes/"

// IsPruneKey reports whether key is that of a prune record.
func IsPruneKey(key string) bool {
	name, ok := strings.CutPrefix(key, PruneFolder)
	if !ok {
		return false
	}
	_, err := layout.ParseEnvelopeKey(layout.EnvelopeFolder + "x/" + name) // the same form
	return err == nil
}

// Claim returns what the record is for, and the sources that it is about.
func (p *Prune) Claim() keys.Claim {
	sources := slices.AppendSeq(slices.Collect(maps.Keys(p.Removed)), maps.Keys(p.Links))
	slices.Sort(sources)
	return keys.Claim{Purpose: keys.ForPrune, Sources: slices.Compact(sources)}
}

// Validate returns what breaks the format.
func (p *Prune) Validate() error {
	for source, ranges := range p.Removed {
		if !layout.ValidSource(source) {
			return fmt.Errorf("source %.40q is not a UID", source)
		}
		for _, r := range ranges {
			if r.From < 1 || r.To < r.From {
				return fmt.Errorf("from %d to %d is no range of sequence numbers", r.From, r.To)
			}
		}
	}
	for source, links := range p.Links {
		if !layout.ValidSource(source) {
			return fmt.Errorf("source %.40q is not a UID", source)
		}
		for _, l := range links {
			if !layout.IsHex(l.SHA256, 64) || !l.Parent.Valid() {
				return errors.New("a link is not a SHA-256 and a parent")
			}
		}
	}
	return nil
}

// MergeRanges sorts ranges and joins those that touch.
func MergeRanges(ranges []Range) []Range {
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

// Without takes numbers out of ranges that are sorted and apart.
func Without(ranges []Range, numbers []int64) []Range {
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

// Unexplained returns the parts of from to to that are not in ranges.
func Unexplained(from, to int64, ranges []Range) []Range {
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
