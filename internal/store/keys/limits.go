package keys

import (
	"fmt"
	"slices"
	"strings"
)

// Purpose is what a signed document is for. There is one for each kind of signed document.
type Purpose string

// The purposes.
const (
	ForSnapshot  Purpose = "snapshot"  // envelopes
	ForOwnership Purpose = "ownership" // ownership records
	ForCheck     Purpose = "check"     // results of verifies
	ForPrune     Purpose = "prune"     // prune records
	ForPin       Purpose = "pin"       // pins
	ForOperation Purpose = "operation" // records of operations
	ForStore     Purpose = "store"     // what is said of the store itself
)

// purposes is the table of purposes: how a document is called in a message, and whether it is about
// sources. A key that is limited to sources signs no document that is not: an ownership record
// takes a workload cluster from a management cluster that it does not name.
var purposes = []struct {
	purpose  Purpose
	document string
	bySource bool
}{
	{ForSnapshot, "snapshots", true},
	{ForOwnership, "ownership records", false},
	{ForCheck, "results of verifies", true},
	{ForPrune, "prune records", true},
	{ForPin, "pins", true},
	{ForOperation, "records of operations", false},
	{ForStore, "documents about the store", false},
}

// Purposes returns all purposes.
func Purposes() []Purpose {
	var all []Purpose
	for _, p := range purposes {
		all = append(all, p.purpose)
	}
	return all
}

// documents names the documents of a purpose.
func (p Purpose) documents() string {
	for _, row := range purposes {
		if row.purpose == p {
			return row.document
		}
	}
	return string(p)
}

func (p Purpose) bySource() bool {
	for _, row := range purposes {
		if row.purpose == p {
			return row.bySource
		}
	}
	return false
}

// Claim is what a signed document is, and what it is about. A key with limits counts for some
// claims only.
type Claim struct {
	Purpose Purpose
	// Sources are the UIDs of the management clusters that the document is about; none when it is
	// not about certain ones.
	Sources []string
	// Sequence and SHA256 are those of an envelope as it is stored; zero for other documents.
	Sequence int64
	SHA256   string
}

// LastTrusted names a snapshot that a stolen key signed before it was stolen. The snapshots that it
// follows, by the hashes of their envelopes, are named by it, too.
type LastTrusted struct {
	Source   string `json:"source"` // UID
	Sequence int64  `json:"sequence"`
	Hash     string `json:"hash"` // SHA-256 of the stored envelope
}

// Limits say for what a trusted key counts. The zero value is no limit.
type Limits struct {
	// Sources are UIDs of management clusters.
	Sources []string `json:"sources"`
	// Purposes are the kinds of documents.
	Purposes []Purpose `json:"purposes"`
	// LastTrusted is set after a theft: only the snapshots that it names are trusted, and nothing
	// else that the key signed. An empty list that is not nil names none.
	LastTrusted []LastTrusted `json:"lastTrusted"`
}

// any reports whether there is a limit.
func (l *Limits) any() bool {
	return len(l.Sources) > 0 || len(l.Purposes) > 0 || l.LastTrusted != nil
}

// refuse returns why a key with these limits does not count for a claim, in words that follow the
// name of the key; empty when it counts. provable means that the envelope counts all the same if it
// is a predecessor of a snapshot that LastTrusted names.
func (l *Limits) refuse(c Claim) (why string, provable bool) {
	if len(l.Purposes) > 0 && !slices.Contains(l.Purposes, c.Purpose) {
		var documents []string
		for _, p := range l.Purposes {
			documents = append(documents, p.documents())
		}
		return fmt.Sprintf("which is trusted for %s only, not for %s", strings.Join(documents, ", "),
			c.Purpose.documents()), false
	}
	if len(l.Sources) > 0 {
		only := "which is trusted for source " + strings.Join(l.Sources, ", ") + " only"
		if len(c.Sources) == 0 {
			return only + ", not for " + c.Purpose.documents() + ", which are about others, too", false
		}
		for _, source := range c.Sources {
			if !slices.Contains(l.Sources, source) {
				return fmt.Sprintf("%s, not for %.128s", only, source), false
			}
		}
	}
	if l.LastTrusted != nil {
		return l.afterTheft(c)
	}
	return "", false
}

// afterTheft is refuse for a key that was stolen.
func (l *Limits) afterTheft(c Claim) (why string, provable bool) {
	const stolen = "which is not trusted any more"
	if c.Purpose != ForSnapshot || len(c.Sources) != 1 {
		return stolen + " for " + c.Purpose.documents(), false
	}
	last := int64(0)
	for _, t := range l.LastTrusted {
		if t.Source != c.Sources[0] {
			continue
		}
		if t.Sequence == c.Sequence && t.Hash == c.SHA256 {
			return "", false
		}
		last = max(last, t.Sequence)
	}
	switch {
	case last == 0:
		return fmt.Sprintf("%s for source %.128s", stolen, c.Sources[0]), false
	case c.Sequence > last:
		return fmt.Sprintf("%s for source %.128s after snapshot number %d, and this is number %d", stolen,
			c.Sources[0], last, c.Sequence), false
	}
	why = fmt.Sprintf("%s for source %.128s but for what its lastTrusted names, and snapshot "+
		"number %d is not among it", stolen, c.Sources[0], c.Sequence)
	return why, 0 < c.Sequence && c.Sequence < last
}
