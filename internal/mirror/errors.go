package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// FencedError means that another host has taken over an operation.
type FencedError struct {
	Operation catalog.OperationID
	Host      string    // empty when the record cannot be read
	Time      time.Time // of its newest record
}

func (e *FencedError) Error() string {
	host := "another host"
	if e.Host != "" {
		host = "host " + e.Host
	}
	text := fmt.Sprintf("%s has taken over operation %s", host, e.Operation)
	if !e.Time.IsZero() {
		text += ", its newest record is of " + e.Time.Format(time.RFC3339)
	}
	return text
}

// Hint says what the operator can do.
func (e *FencedError) Hint() string {
	return "go on there; to go on here instead, stop it there and resume the operation " +
		"with an identity"
}

// HintKey names the commands.
func (e *FencedError) HintKey() object.HintKey { return object.HintResumeWithIdentity }

// RemovedError means that the store lacks records of an operation that this host wrote. Another
// host may have ended the operation, and a prune may have removed its records since; or they were
// deleted. So the records fence out nobody.
type RemovedError struct {
	Operation catalog.OperationID
	// Newest is the number of the newest record that may be in the store, Wrote that of the newest
	// one that this host wrote.
	Newest, Wrote int64
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("mirror of operation %s: the store has records up to %d, this host wrote %d: "+
		"some were removed, and another host that has gone on with it could not be recognised",
		e.Operation, e.Newest, e.Wrote)
}

// Hint says what the operator can do.
func (e *RemovedError) Hint() string {
	return "make sure that no other host works on it or has ended it; then go on without the mirror"
}

// HintKey names the option.
func (e *RemovedError) HintKey() object.HintKey { return object.HintGiveUpMirror }

// UnwritableError means that the store takes no records of an operation that has some already. To
// go on would be to let another host, which reads them, work on it at the same time.
type UnwritableError struct {
	Operation catalog.OperationID
	// Own: the newest record is of this host, so that it may go on without the mirror when the
	// operator asks for it.
	Own bool
	Err error
}

func (e *UnwritableError) Error() string {
	return fmt.Sprintf("continue the mirror of operation %s: %v", e.Operation, e.Err)
}

// Unwrap returns the cause.
func (e *UnwritableError) Unwrap() error { return e.Err }

// Hint says what the operator can do.
func (e *UnwritableError) Hint() string {
	const mend = "make the store writable, and give the recipient and the signing key"
	if !e.Own {
		return mend + ": another host wrote the newest record, and would not notice this one"
	}
	return mend + "; if that cannot be, see that no other host takes the operation over, and go on " +
		"without the mirror"
}

// HintKey names the option.
func (e *UnwritableError) HintKey() object.HintKey {
	if e.Own {
		return object.HintGiveUpMirror
	}
	return object.HintSigningKey
}

// IsUnable reports whether an error says that a store takes no records, as opposed to a store that
// does not answer.
func IsUnable(err error) bool {
	_, fence := errors.AsType[*store.FenceError](err)
	_, usage := errors.AsType[*store.UsageError](err)
	return fence || usage || errors.Is(err, store.ErrDenied)
}

// Findings are the findings of a plan about the mirror of the operation that would carry it out. A
// store that does not answer is an error.
func Findings(ctx context.Context, st *store.Store) ([]object.Finding, error) {
	err := st.CanRecord(ctx)
	if err == nil || !IsUnable(err) {
		return nil, err
	}
	return []object.Finding{Finding(err)}, nil
}

// Finding is about a store that takes no records of operations.
func Finding(err error) object.Finding {
	return object.Finding{Severity: object.Warning, Code: object.CodeNoMirror,
		Message: "the journal is not mirrored into the store: " + err.Error(),
		Hint: "if this host and its catalog are lost in the middle, no other host can go on: have a " +
			"copy of the catalog, or make the store writable and give a recipient and the signing key"}
}
