package retention

import (
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// ReasonKind is why a snapshot stays.
type ReasonKind int

// The kinds of reasons. Those up to Grace are mandatory: they hold against every policy, and refuse
// the deletion of a named snapshot.
const (
	Pinned         ReasonKind = iota // Detail says why, if the pin does
	InUse                            // by the operation in Detail
	Unreadable                       // its envelope cannot be read
	Untrusted                        // no trusted key signed it
	Newest                           // of its scope
	NewestVerified                   // newest of its scope that is known to be verified
	NewestStored                     // newest of its scope by the storage's clock
	Grace                            // until the time in Detail a run may have it as its parent
	Rule                             // of the policy, in Detail
	Unexpired                        // until the time in Detail
	NoRule                           // the policy has no rule, and the snapshot no expiry
	UnknownScope                     // of an earlier version: no rule can count it
	NotRequested                     // another source or other snapshots were named
	NotPlanned                       // it may go, but the plan did not name it
)

var reasonTexts = [...]string{
	Pinned: "pinned", InUse: "in use by operation ", Unreadable: "unreadable",
	Untrusted: "not trusted", Newest: "newest",
	NewestVerified: "newest verified", NewestStored: "newest to the storage",
	Grace: "grace until ", Rule: "", Unexpired: "until ", NoRule: "no rule",
	UnknownScope: "scope not recorded",
	NotRequested: "not asked", NotPlanned: "next time",
}

// Reason is one reason for a snapshot to stay.
type Reason struct {
	Kind   ReasonKind
	Detail string // what follows the words of the kind
}

// String is the reason as plans show it: "daily 2026-01-02", "pinned: before the upgrade".
func (r Reason) String() string { return reasonTexts[r.Kind] + r.Detail }

func until(kind ReasonKind, t time.Time) Reason {
	return Reason{kind, t.UTC().Format(time.RFC3339)}
}

// refused returns the error for a named snapshot that stays for reason r.
func (r Reason) refused(key store.EnvelopeKey) *RefusedError {
	e := &RefusedError{Key: key}
	switch r.Kind {
	case Pinned:
		e.Reason, e.Tip, e.TipKey = "it is pinned", "unpin it first", object.HintUnpin
	case InUse:
		e.Reason = "it is " + r.String()
		e.Tip, e.TipKey = "let the operation end first", object.HintOperation
	case Grace:
		e.Reason = "a snapshot that is being taken may need it (" + r.String() + ")"
		e.Tip = "run it again after that time"
	default:
		e.Reason = "it is the " + r.String() + " of its scope"
		e.Tip = "it can be deleted once there is a newer one, and the grace has passed; a prune can " +
			"drop a scope that is taken no more"
	}
	return e
}
