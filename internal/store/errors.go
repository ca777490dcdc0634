package store

import (
	"fmt"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
)

// The classes of what a bucket can answer, as package bucket defines them. Every function here that
// reaches the bucket may return ErrDenied, ErrNoSpace (those that write) and ErrStoreMissing,
// wrapped in a *BucketError; test with errors.Is.
var (
	ErrNotFound     = bucket.ErrNotFound
	ErrExists       = bucket.ErrExists
	ErrNoSpace      = bucket.ErrNoSpace
	ErrDenied       = bucket.ErrDenied
	ErrStoreMissing = bucket.ErrStoreMissing
	ErrInvalidKey   = bucket.ErrInvalidKey
	ErrConflict     = bucket.ErrConflict
	ErrUnreachable  = bucket.ErrUnreachable
	ErrRetained     = bucket.ErrRetained
	ErrForeign      = bucket.ErrForeign
)

// The errors that the packages below a Store return, and a Store with them.
type (
	BucketError  = bucket.Error
	CorruptError = bucket.CorruptError
	UsageError   = bucket.UsageError
	FormatError  = document.FormatError
)

// KeyError says that content cannot be read with the identities at hand, or that a key is none.
// ReadPack, GetShard, LoadKeys.
type KeyError struct {
	Object string // the key in the store, or the file
	Reason string
	Tip    string // what to do where that is not about an identity
}

func (e *KeyError) Error() string { return fmt.Sprintf("open %s: %s", e.Object, e.Reason) }

// Hint says what an operator can do.
func (e *KeyError) Hint() string {
	if e.Tip != "" {
		return e.Tip
	}
	return "give an identity file (--identity) that belongs to one of the recipients the snapshot " +
		"was written to"
}

// TrustError says that an envelope or a record is not signed by a trusted key.
// Signed.RequireTrusted, SignedOwner.RequireTrusted, GetOperationRecord.
type TrustError struct {
	Key   string
	Trust Trust
	KeyID string // who signed it, if anyone did
}

func (e *TrustError) Error() string {
	switch e.Trust {
	case Unsigned:
		return fmt.Sprintf("check signature of %s: it is not signed", e.Key)
	case Unchecked:
		return fmt.Sprintf("check signature of %s: signed by key %s, no trusted keys to check it with",
			e.Key, e.KeyID)
	default:
		return fmt.Sprintf("check signature of %s: signed by key %s, which is not trusted", e.Key,
			e.KeyID)
	}
}

// Hint says what an operator can do.
func (e *TrustError) Hint() string {
	if e.Trust == Unsigned {
		return "somebody took its signature away, or it was taken without --signing-key: use another " +
			"snapshot, and look at the access log of the store"
	}
	return "give the public key of the mgmtd that wrote it (--trusted-key signing.pub), after " +
		"checking that it is the right one"
}

// LookupError says that a snapshot that was asked for is not there, or that its id is not unique.
// Find.
type LookupError struct {
	Ref       string
	Source    string // empty for all
	Ambiguous bool
	// what an ambiguous id could mean; otherwise the snapshots there are, oldest first
	Matches []EnvelopeKey
}

func (e *LookupError) Error() string {
	where := "the store"
	if e.Source != "" {
		where = "source " + e.Source
	}
	switch {
	case e.Ambiguous:
		return fmt.Sprintf("find snapshot %q: the id is not unique, it could be %s", e.Ref,
			listIDs(e.Matches))
	case len(e.Matches) == 0:
		return fmt.Sprintf("find snapshot %q: %s has no snapshots", e.Ref, where)
	default:
		return fmt.Sprintf("find snapshot %q: there is none, %s has %s", e.Ref, where, listIDs(e.Matches))
	}
}

// Hint says what an operator can do.
func (e *LookupError) Hint() string {
	if e.Ambiguous {
		return "give more digits of the id"
	}
	return "\"mgmtctl snapshot list\" shows what there is"
}

// listIDs names the newest few: an operator can act on ten ids, not on ten thousand.
func listIDs(keys []EnvelopeKey) string {
	const most = 10
	var b strings.Builder
	for i := len(keys) - 1; i >= 0; i-- {
		if n := len(keys) - 1 - i; n == most {
			fmt.Fprintf(&b, " and %d older", i+1)
			break
		} else if n > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", keys[i].ID, keys[i].Time.Format("2006-01-02T15:04:05Z"))
	}
	return b.String()
}
