package retention

import (
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// RefusedError reports that a snapshot may not be deleted.
type RefusedError struct {
	Key    store.EnvelopeKey
	Reason string
	Tip    string
	TipKey object.HintKey // "" when no command of a client belongs to the tip
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("delete snapshot %s: %s", e.Key.ID, e.Reason)
}

// Hint returns what an operator can do.
func (e *RefusedError) Hint() string { return e.Tip }

// HintKey names the command that belongs to the hint.
func (e *RefusedError) HintKey() object.HintKey { return e.TipKey }

// RetainedError reports that the storage retains some of the snapshots that were to be deleted, and
// that the others are gone.
type RetainedError struct {
	Gone int
	Stay []*RefusedError
}

func (e *RetainedError) Error() string {
	text := fmt.Sprintf("%d of %d snapshots are deleted", e.Gone, e.Gone+len(e.Stay))
	for _, one := range e.Stay {
		text += "; " + one.Error()
	}
	return text
}

// Hint returns what an operator can do.
func (e *RetainedError) Hint() string { return e.Stay[0].Tip }

// retainedByStorage returns the refusal to delete a snapshot that the storage retains.
func retainedByStorage(key store.EnvelopeKey, err error) *RefusedError {
	e := &RefusedError{Key: key, Reason: "the storage retains it",
		Tip: "delete it when its retention has ended; until then it stays whole, with all that it " +
			"names: docs/retention.md"}
	if why, ok := errors.AsType[*store.BucketError](err); ok {
		if why.Err != nil {
			e.Reason += ": " + why.Err.Error()
		}
		if why.Tip != "" { // a legal hold has no end
			e.Tip = why.Tip
		}
	}
	return e
}

// allRetained returns one refusal for snapshots that the storage retains without exception.
func allRetained(list []*RefusedError) error {
	e := *list[0]
	for _, other := range list[1:] {
		e.Reason += "; " + other.Error()
	}
	return &e
}

// BlockedError reports that no content was removed, since it is not known which snapshots need it.
// The findings name the envelopes.
type BlockedError struct{ Envelopes int }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("no content was removed: what %d snapshots need is not known", e.Envelopes)
}

// Hint returns what an operator can do.
func (e *BlockedError) Hint() string {
	return "restore these envelopes or trees from a copy of the store, or delete the snapshots"
}

// HintKey names the command that deletes them.
func (e *BlockedError) HintKey() object.HintKey { return object.HintDeleteDamaged }

// PlanChangedError reports that other snapshots would go than in the plan that was approved.
// Nothing was removed.
type PlanChangedError struct{}

func (e *PlanChangedError) Error() string {
	return "other snapshots would be removed than in the approved plan"
}

// Hint returns what an operator can do.
func (e *PlanChangedError) Hint() string { return "plan it again, and approve the new plan" }
