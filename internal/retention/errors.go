package retention

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// RefusedError says that a snapshot may not be deleted.
type RefusedError struct {
	Key    store.EnvelopeKey
	Reason string
	Tip    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("delete snapshot %s: %s", e.Key.ID, e.Reason)
}

// Hint says what an operator can do.
func (e *RefusedError) Hint() string { return e.Tip }

// RetainedError says that the storage retains some of the snapshots that were to be deleted, and
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

// Hint says what an operator can do.
func (e *RetainedError) Hint() string { return e.Stay[0].Tip }

// allRetained is the refusal when the storage let go of none.
func allRetained(list []*RefusedError) error {
	e := *list[0]
	for _, other := range list[1:] {
		e.Reason += "; " + other.Error()
	}
	return &e
}

// BlockedError says that content stays, since it is not known what it is needed for. The findings
// tell which envelopes.
type BlockedError struct{ Envelopes int }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("no content was removed: what %d snapshots need is not known", e.Envelopes)
}

// Hint says what an operator can do.
func (e *BlockedError) Hint() string {
	return "restore these envelopes or trees from a copy of the store, or delete the snapshots: " +
		"mgmtctl snapshot delete KEY --damaged"
}

// retainedSnapshot notes that the storage keeps an envelope. Who named it is told so by an error:
// rules come back to it by themselves, nobody else does.
func (p *pruner) retainedSnapshot(v Verdict, err error) {
	if p.Delete == nil {
		p.retained(v.Key.String(), v.Size, err)
		return
	}
	p.result.Retained.add(v.Size)
	e := &RefusedError{
		Key: v.Key, Reason: "the storage retains it", Tip: "delete it when its retention has ended; " +
			"until then it stays whole, with all that it names: docs/retention.md",
	}
	if why, ok := errors.AsType[*store.BucketError](err); ok {
		if why.Err != nil {
			e.Reason += ": " + why.Err.Error()
		}
		if why.Tip != "" { // what keeps it has no end
			e.Tip = why.Tip
		}
	}
	p.retains = append(p.retains, e)
}

// retained notes that the storage keeps a key; each is not worth a finding of its own.
func (p *pruner) retained(key string, size int64, err error) {
	p.result.Retained.add(size)
	i := slices.IndexFunc(p.result.Findings,
		func(f object.Finding) bool { return f.Code == FoundRetained })
	if i < 0 {
		p.found(object.Info, FoundRetained, "", "nothing to do: a later prune removes them when their "+
			"retention has ended")
		i = len(p.result.Findings) - 1
	}
	p.result.Findings[i].Message = fmt.Sprintf("the storage retains %d keys with %d bytes that "+
		"were to go, such as %s: %v", p.result.Retained.Keys, p.result.Retained.Bytes, key, err)
}
