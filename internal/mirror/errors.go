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
