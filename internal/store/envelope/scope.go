package envelope

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

const (
	// ScopeWhole is the ID of the scope of a snapshot that has everything.
	ScopeWhole = "whole"
	// ScopeAny stands for all scopes where one is named.
	ScopeAny = "any"
)

const (
	// scopeDigits is how long the ID of another scope is.
	scopeDigits = 32
	// scopeMinDigits is how much of it names a scope.
	scopeMinDigits = 8
)

// Scope is what a snapshot was asked to hold. Snapshots of different scopes do not replace each
// other: retention, the newest one and the parent of a snapshot go by it.
type Scope struct {
	// ID is ScopeWhole or a digest of the selection. Who knows the names of namespaces can confirm
	// a guess at the selection by it.
	ID string `json:"id"`
	// Schedule is the name of the schedule that took the snapshot; it is for people. Two schedules
	// with one selection share a scope.
	Schedule string `json:"schedule,omitempty"`
	// Operation is the id of the operation that took the snapshot for itself, of what it has in
	// flight; empty for all others. Such a snapshot is never the newest one, nor the parent of
	// another. All of one operation share a scope.
	Operation string `json:"operation,omitempty"`
}

// ScopeOf returns the scope of a selection: namespaces in any order, and a selector of workload
// clusters in its canonical form. Both empty select everything.
func ScopeOf(source string, namespaces []string, selector, schedule string) Scope {
	if len(namespaces) == 0 && selector == "" {
		return Scope{ID: ScopeWhole, Schedule: schedule}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(namespaces)))
	// names of namespaces have no line breaks
	sum := sha256.Sum256([]byte("mgmtd scope\n" + source + "\n" + strings.Join(sorted, "\n") + "\n\n" +
		selector))
	return Scope{ID: hex.EncodeToString(sum[:])[:scopeDigits], Schedule: schedule}
}

// OperationScope returns the scope of the snapshots that an operation takes of a source for itself.
func OperationScope(source, operation string) Scope {
	sum := sha256.Sum256([]byte("mgmtd scope of an operation\n" + source + "\n" + operation))
	return Scope{ID: hex.EncodeToString(sum[:])[:scopeDigits], Operation: operation}
}

// OfOperation returns the id of the operation that took a snapshot for itself, or an empty string.
func (e *Envelope) OfOperation() string {
	if e.Scope == nil {
		return ""
	}
	return e.Scope.Operation
}

// ScopeID returns the ID of the scope of a snapshot; "" for a partial one of an earlier version,
// which did not write it.
func (e *Envelope) ScopeID() string {
	switch {
	case e.Scope != nil:
		return e.Scope.ID
	case e.Partial:
		return ""
	default:
		return ScopeWhole
	}
}

// InScope reports whether a snapshot is of a scope, which is named by the name of the schedule, by
// the id of the operation or by at least 8 digits of its ID; "" names the whole one, ScopeAny all.
func (e *Envelope) InScope(name string) bool {
	switch name {
	case "", ScopeWhole:
		return e.ScopeID() == ScopeWhole
	case ScopeAny:
		return true
	}
	return e.Scope != nil && (e.Scope.Schedule == name || e.Scope.Operation == name ||
		len(name) >= scopeMinDigits && strings.HasPrefix(e.Scope.ID, name))
}

func (e *Envelope) validateScope() error {
	switch s := e.Scope; {
	case s == nil:
		return nil
	case s.ID != ScopeWhole && !layout.IsHex(s.ID, scopeDigits):
		return errors.New("the id of the scope is not one")
	case (s.ID == ScopeWhole) == e.Partial:
		return errors.New("scope and partial contradict each other")
	case s.ID == ScopeWhole && s.Operation != "":
		return errors.New("the scope is whole, and that of an operation")
	case !document.Printable(s.Schedule), !document.Printable(s.Operation):
		return errors.New("the schedule or the operation of the scope does not print")
	}
	return nil
}
