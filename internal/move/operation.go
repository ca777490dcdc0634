package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// Options are what every run of a move needs: the first, a resume and a rollback.
type Options struct {
	Ends
	// Catalog holds the operation, its plan and its batches, and the index of snapshots.
	Catalog *catalog.Catalog
	// Journal is that of the operation, which is running.
	Journal *catalog.Journal
	// Program is the name and version of this program for the envelopes of snapshots.
	Program string
}

// Request is what an operator asks of a new move.
type Request struct {
	Spec   Spec
	Tuning restore.Tuning
	// Digest is that of the plan that the operator has seen; empty when there is none.
	Digest string
}

// StoredPlan is the stored plan of a move: everything that a resume or a rollback needs.
type StoredPlan struct {
	Plan     Plan           `json:"plan"`
	Tuning   restore.Tuning `json:"tuning"`
	Location string         `json:"location,omitempty"`
}

// OtherEndsError means that an operation was started between other management clusters or with
// another store than those that are to resume it.
type OtherEndsError struct {
	Operation catalog.OperationID
	// Started and Given are the names of source and target: those of the operation, and these.
	Started, Given [2]string
}

func (e *OtherEndsError) Error() string {
	return fmt.Sprintf("operation %s moves from %s to %s, these are %s and %s (or another store)",
		e.Operation, e.Started[0], e.Started[1], e.Given[0], e.Given[1])
}

// Hint says what the operator can do.
func (e *OtherEndsError) Hint() string {
	return "name the management clusters and the store that it was started with"
}

// Create records the operation of a new move, which is not begun yet.
func (e Ends) Create(ctx context.Context, c *catalog.Catalog) (catalog.Operation, error) {
	return c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindMove, Store: e.Store.ID(), Location: e.Location,
		Source: catalog.Side{Name: e.Source.Name, UID: e.Source.UID},
		Target: catalog.Side{Name: e.Target.Name, UID: e.Target.UID},
	})
}

// ReadPlan reads the stored plan of an operation. catalog.ErrNotFound means that the operation
// ended in pre-flight and changed nothing.
func ReadPlan(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) (*StoredPlan,
	error) {
	text, err := c.Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	stored := &StoredPlan{}
	if err := json.Unmarshal(text, stored); err != nil {
		return nil, fmt.Errorf("decode plan of operation %s: %w", id, err)
	}
	return stored, nil
}

// CheckEnds returns an *OtherEndsError unless an operation was started with these ends.
func (p *StoredPlan) CheckEnds(op catalog.Operation, e Ends) error {
	if e.Source.UID != p.Plan.Source.UID || e.Target.UID != p.Plan.Target.UID ||
		e.Store != nil && e.Store.ID() != op.Store {
		return &OtherEndsError{Operation: op.ID,
			Started: [2]string{p.Plan.Source.Name, p.Plan.Target.Name},
			Given:   [2]string{e.Source.Name, e.Target.Name}}
	}
	return nil
}

// Run is the first run of a move: it plans, checks the plan and stores it, and executes it. It
// changes nothing when the plan is blocked or is not the one that the operator has seen. Errors:
// those of NewPlan, restore.Plan.Admit and Resume.
func Run(ctx context.Context, o Options, r Request) error {
	o.Ends = o.asksOnce()
	plan, seen, err := newPlan(ctx, o.Ends, r.Spec)
	if err != nil {
		return err
	}
	stored := &StoredPlan{Plan: *plan, Tuning: r.Tuning, Location: o.Location}
	digest := r.Digest
	if digest == plan.Digest() {
		digest = plan.Copy.Digest()
	}
	if err := plan.Copy.Admit(ctx, o.Catalog, o.Journal, r.Tuning.Canary, digest,
		stored); err != nil {
		return err
	}
	if len(plan.Suspend) > 0 {
		seen = nil // their owners may apply something until they are suspended
	}
	return watched(ctx, o, false, func() error { return execute(ctx, o, stored, seen) })
}

// Resume executes a stored plan: it skips steps that are done in the journal. It may run again
// after any crash. Cancelling ctx stops it between two steps. Errors: *restore.IncompleteError;
// *modify.MismatchError; the context's; those of the journal.
func Resume(ctx context.Context, o Options, stored *StoredPlan) error {
	if err := stored.Plan.Copy.CheckModifiers(o.Modifiers); err != nil {
		return err // before a batch is planned with others, or with none
	}
	if err := o.setDirection(ctx, false); err != nil {
		return err
	}
	return watched(ctx, o, false, func() error { return execute(ctx, o, stored, nil) })
}

// GoForward brings the units that were handed over to their end on the target, while the source
// does not answer (WithoutSource): it releases them, and retires nothing. That they were handed
// over makes it safe, whatever the source does meanwhile. It may run again after any crash; a later
// Resume retires them. Errors: *SourceLeftError, when all went well; *restore.IncompleteError;
// *modify.MismatchError; the context's; those of the journal.
func GoForward(ctx context.Context, o Options, stored *StoredPlan) error {
	if err := stored.Plan.Copy.CheckModifiers(o.Modifiers); err != nil {
		return err
	}
	m, err := newRun(ctx, o, stored)
	if err != nil {
		return err
	}
	return watched(ctx, o, false, func() error { return m.goForward(ctx) })
}

// Rollback undoes a move for the units that are not handed over: it removes their copies from the
// target and unpauses them on the source, which then is equal to what it was. It may run again
// after any crash. Without a target (WithoutTarget) it gives the units back to the source and
// leaves their copies, which a later Rollback removes. Errors: *ForwardError when units were handed
// over; *CopiesLeftError; *DoubtError; those of the journal and of both sides.
func Rollback(ctx context.Context, o Options, stored *StoredPlan) error {
	if err := o.setDirection(ctx, true); err != nil {
		return err
	}
	err := watched(ctx, o, true, func() error { return rollBack(ctx, o, stored) })
	if _, forward := errors.AsType[*ForwardError](err); forward && ctx.Err() == nil {
		return errors.Join(err, o.setDirection(ctx, false)) // the rest can only go forward
	}
	return err
}

// setDirection records the direction of a move before anything is undone: a resume after a crash
// must not go forward again.
func (o *Options) setDirection(ctx context.Context, back bool) error {
	return o.Catalog.UpdateOperation(context.WithoutCancel(ctx), o.Journal.Operation(),
		func(op *catalog.Operation) { op.Back = back })
}
