package store

import (
	"errors"
	"fmt"
	"strings"
)

// Classes of what a bucket can answer. Every function here that reaches the bucket may return
// ErrDenied, ErrNoSpace (those that write) and ErrStoreMissing, wrapped in a *BucketError; test
// with errors.Is.
var (
	// ErrNotFound: the key is not there. Bucket.Get and Stat, and whatever reads one key: ReadPack,
	// GetShard, GetTree, GetEnvelope, PutEnvelope (for the tree that the envelope names).
	ErrNotFound = errors.New("not found")
	// ErrExists: the key is there already and was left alone. Bucket.Put and PutEnvelope.
	ErrExists = errors.New("already exists")
	// ErrNoSpace: the store is full or its quota is used up. Bucket.Put and whatever writes;
	// nothing is left under the key.
	ErrNoSpace = errors.New("no space left in the store")
	// ErrDenied: the store refuses access.
	ErrDenied = errors.New("access to the store denied")
	// ErrStoreMissing: the directory is not there, or Open found no store in it.
	ErrStoreMissing = errors.New("store missing")
	// ErrInvalidKey: the key breaks the rules of Bucket; a mistake of the caller.
	ErrInvalidKey = errors.New("invalid key")
	// ErrConflict: the condition of a write does not hold: somebody else wrote the key.
	// Conditional.PutIf and PutOwner; nothing was changed.
	ErrConflict = errors.New("changed by another")
	// ErrUnreachable: the store does not answer: connection refused, no such host, timeouts, errors
	// of the server, for longer than retries last.
	ErrUnreachable = errors.New("store unreachable")
	// ErrRetained: the storage does not let the key be deleted yet (Object Lock). Remover.Delete.
	ErrRetained = errors.New("retained by the store")
	// ErrForeign: an envelope or ownership record of another store was put into this one.
	// GetEnvelope, PutEnvelope, GetOwner and PutOwner.
	ErrForeign = errors.New("belongs to another store")
)

// BucketError says which operation on which key failed. Class is one of the sentinels above, or
// nil; both Class and Err are unwrapped.
type BucketError struct {
	Op    string // "put", "get", "stat", "list", "delete", "retain", "open"
	Key   string // empty when it is about the whole bucket
	Class error
	Err   error
	Tip   string // what to do, where the bucket knows better than the class
}

func (e *BucketError) Error() string {
	parts := []string{strings.TrimSpace(e.Op + " " + e.Key)}
	for _, err := range []error{e.Class, e.Err} {
		if err != nil {
			parts = append(parts, err.Error())
		}
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the class and the cause.
func (e *BucketError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Class, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Hint says what an operator can do, or is empty.
func (e *BucketError) Hint() string {
	if e.Tip != "" {
		return e.Tip
	}
	switch e.Class {
	case ErrNoSpace:
		return "make room in the store and run it again; nothing was left half-written"
	case ErrDenied:
		return "check the owner and mode of the store's directory and the user that runs this"
	case ErrStoreMissing:
		return "check the --store URL and whether its file system is mounted; the first snapshot " +
			"makes a new store"
	case ErrNotFound:
		return "something in the store names this key, and it is gone: restore it from a copy of the " +
			"store, or use another snapshot; \"mgmtctl snapshot verify\" lists all damage"
	case ErrUnreachable:
		return "check the endpoint, the network and whether the storage server runs, then run it " +
			"again; nothing was left half-written"
	case ErrRetained:
		return "nothing to do: it can be deleted when its retention has ended, and the next prune does so"
	case ErrForeign:
		return "two stores were mixed in one place: remove what was copied in, or use the store that " +
			"it came from"
	}
	return ""
}

// CorruptError says that something in the store is not what its name or its signature says, or
// breaks the format. It is never worth a retry. Returned by Open (for mgmtd.json) and by all that
// reads or reuses a key.
type CorruptError struct {
	Key    string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("read %s: damaged: %s", e.Key,
		e.Reason)
}

// Hint says what an operator can do.
func (e *CorruptError) Hint() string {
	return "restore this key from a copy of the store, or use an older snapshot; \"mgmtctl " +
		"snapshot verify\" lists all damage"
}

// FormatError says that mgmtd.json or an envelope was written in a format that this version does
// not know, or that what is in the bucket is no store at all. Open, GetEnvelope.
type FormatError struct {
	Key    string
	Format int    // the version found; 0 when there is none
	Reason string // set when Format is 0
}

func (e *FormatError) Error() string {
	if e.Format == 0 {
		return fmt.Sprintf("read %s: not an mgmtd store: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("read %s: format %d is not known, this version reads format %d", e.Key,
		e.Format, Format)
}

// Hint says what an operator can do.
func (e *FormatError) Hint() string {
	if e.Format == 0 {
		return "check the --store URL; if it is the right place, restore " + markerKey +
			" from a copy of the store; a new store needs an empty place"
	}
	return "use a newer mgmtctl: this store was written by one"
}

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

// UsageError says that what the operator asked for cannot be: a wrong URL, an unreadable key file,
// recipients for a plain store. ParseURL, LoadKeys, Keygen, Open, and the first write to a store
// that was opened without recipients.
type UsageError struct {
	Text string
	Tip  string
	Err  error // cause, or nil
}

func (e *UsageError) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

// Unwrap gives the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Hint says what an operator can do, or is empty.
func (e *UsageError) Hint() string { return e.Tip }

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
