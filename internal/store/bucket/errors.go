package bucket

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// The classes of errors. Test with errors.Is. All that reaches the storage may return ErrDenied,
// ErrUnreachable and ErrStoreMissing; all that writes may return ErrNoSpace.
var (
	// ErrNotFound: the key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: the key exists and was not changed.
	ErrExists = errors.New("already exists")
	// ErrNoSpace: the storage is full or its quota is used up; nothing is left under the key.
	ErrNoSpace = errors.New("no space left in the store")
	// ErrDenied: the storage refuses access.
	ErrDenied = errors.New("access to the store denied")
	// ErrStoreMissing: the directory or S3 bucket does not exist, or there is no store in it.
	ErrStoreMissing = errors.New("store missing")
	// ErrInvalidKey: the key breaks the rules of Bucket; a mistake of the caller.
	ErrInvalidKey = errors.New("invalid key")
	// ErrConflict: the condition of a write does not hold, since another writer changed the key;
	// nothing was changed.
	ErrConflict = errors.New("changed by another")
	// ErrUnreachable: the storage does not answer: connection refused, no such host, timeouts,
	// errors of the server, for longer than retries last.
	ErrUnreachable = errors.New("store unreachable")
	// ErrRetained: the storage does not let the key be deleted yet (Object Lock).
	ErrRetained = errors.New("retained by the store")
	// ErrForeign: a document of another store was put into this one.
	ErrForeign = errors.New("belongs to another store")
)

// Error says which operation on which key failed. Class is one of the sentinels above, or
// nil; both Class and Err are unwrapped.
type Error struct {
	Op    string // "put", "get", "stat", "list", "delete", "retain", "open"
	Key   string // empty when it is about the whole bucket
	Class error
	Err   error
	// Tip is what Hint returns, where the bucket knows better than the class, and TipKey the key of
	// that hint. A field cannot have the name of the method.
	Tip    string
	TipKey object.HintKey
}

func (e *Error) Error() string {
	parts := []string{strings.TrimSpace(e.Op + " " + e.Key)}
	for _, err := range []error{e.Class, e.Err} {
		if err != nil {
			parts = append(parts, err.Error())
		}
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the class and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Class, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Hint says what an operator can do, or is empty.
func (e *Error) Hint() string {
	if e.Tip != "" {
		return e.Tip
	}
	switch e.Class {
	case ErrNoSpace:
		return "make room in the store and run it again; nothing was left half-written"
	case ErrDenied:
		return "check the owner and mode of the store's directory and the user that runs this"
	case ErrStoreMissing:
		return "check the store's URL and whether its file system is mounted; the first snapshot " +
			"makes a new store"
	case ErrNotFound:
		return "something in the store names this key, and it is gone: restore it from a copy of the " +
			"store, or use another snapshot; a verify of the snapshot lists all damage"
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

// HintKey names the option or command that belongs to the hint.
func (e *Error) HintKey() object.HintKey {
	switch {
	case e.Tip != "":
		return e.TipKey
	case e.Class == ErrStoreMissing:
		return object.HintStoreURL
	case e.Class == ErrNotFound:
		return object.HintVerify
	}
	return ""
}

// CorruptError says that something in the store is not what its name or its signature says, or
// breaks the format. A retry does not help.
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
	return "restore this key from a copy of the store, or use an older snapshot; a verify of the " +
		"snapshot lists all damage"
}

// HintKey names the command that verifies a snapshot.
func (e *CorruptError) HintKey() object.HintKey { return object.HintVerify }

// DamageError is why stored bytes are not valid, where their key is not known yet.
type DamageError string

func (d DamageError) Error() string { return string(d) }

// AsCorrupt returns DamageError in err as the *CorruptError of a key, and any other error
// unchanged.
func AsCorrupt(key string, err error) error {
	if d, ok := errors.AsType[DamageError](err); ok {
		return &CorruptError{Key: key, Reason: string(d)}
	}
	return err
}

// UsageError says that what the operator asked for is impossible: a wrong URL, an unreadable key
// file, recipients for a plain store, a write without recipients.
type UsageError struct {
	Text   string
	Tip    string
	TipKey object.HintKey // of Tip; "" when no option of a client belongs to it
	Err    error          // cause, or nil
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

// HintKey names the option that belongs to the hint.
func (e *UsageError) HintKey() object.HintKey { return e.TipKey }
