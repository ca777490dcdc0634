package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
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
	ErrUnbatched    = bucket.ErrUnbatched
	ErrForeign      = bucket.ErrForeign
)

// The errors that the packages below a Store return, and a Store with them.
type (
	BucketError  = bucket.Error
	CorruptError = bucket.CorruptError
	UsageError   = bucket.UsageError
	FormatError  = document.FormatError
	KeyError     = keys.Error
	TrustError   = keys.TrustError
)

// IsMissing reports whether err says that a key does not exist, in a store that does.
func IsMissing(err error) bool {
	return errors.Is(err, ErrNotFound) && !errors.Is(err, ErrStoreMissing)
}

// IsCorrupt reports whether err is a *CorruptError.
func IsCorrupt(err error) bool {
	_, ok := errors.AsType[*CorruptError](err)
	return ok
}

// IsUnusable reports whether err is about what is stored and not about the way to it: it is
// damaged, of an unknown format, or of another store. Such a document is reported and passed over
// where others are read.
func IsUnusable(err error) bool {
	_, format := errors.AsType[*FormatError](err)
	return format || IsCorrupt(err) || errors.Is(err, ErrForeign)
}

// LookupError says that a snapshot that was asked for is not there, or that its id is not unique.
// Find.
type LookupError struct {
	Ref       string
	Source    string // empty for all
	Scope     string // in which the newest one was searched; empty for an id
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
	case e.Scope == ScopeWhole:
		return fmt.Sprintf("find snapshot %q: there is no whole one that counts, %s has %s", e.Ref, where,
			listIDs(e.Matches))
	case e.Scope != "":
		return fmt.Sprintf("find snapshot %q: there is none of scope %.80q, %s has %s", e.Ref, e.Scope,
			where, listIDs(e.Matches))
	default:
		return fmt.Sprintf("find snapshot %q: there is none, %s has %s", e.Ref, where, listIDs(e.Matches))
	}
}

// Hint says what an operator can do.
func (e *LookupError) Hint() string {
	switch {
	case e.Ambiguous:
		return "give more digits of the id"
	case e.Scope != "" && len(e.Matches) > 0:
		return "a list of the snapshots shows of which scope each is, and whether a trusted key signed " +
			"it; name one by its id, or a scope"
	}
	return "a list of the snapshots shows what there is"
}

// HintKey names the command that lists snapshots.
func (e *LookupError) HintKey() object.HintKey {
	if e.Ambiguous {
		return ""
	}
	return object.HintSnapshots
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
