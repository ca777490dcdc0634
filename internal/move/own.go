package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Registry keeps the ownership records; a *store.Store is one.
type Registry interface {
	CanFence(ctx context.Context) error
	GetOwner(ctx context.Context, workloadID string) (store.SignedOwner, error)
	PutOwner(ctx context.Context, next store.Owner, previous *store.SignedOwner) (store.SignedOwner,
		error)
	Owners(ctx context.Context, fn func(workloadID string, o store.SignedOwner, err error) error) error
	Vouches(o store.SignedOwner) bool
}

var _ Registry = (*store.Store)(nil)

// Owners reads all ownership records. One that is damaged is told as such; a store that does not
// answer is an error, for it may hide any.
func Owners(ctx context.Context, r Registry) (map[string]restore.Owned, error) {
	owners := map[string]restore.Owned{}
	err := r.Owners(ctx, func(id string, o store.SignedOwner, err error) error {
		_, corrupt := errors.AsType[*store.CorruptError](err)
		_, format := errors.AsType[*store.FormatError](err)
		switch {
		case corrupt || format || errors.Is(err, store.ErrForeign):
			owners[id] = restore.Owned{Damaged: true}
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		default:
			owners[id] = restore.Owned{By: restore.Side{Name: o.Owner.Owner.Name, UID: o.Owner.Owner.UID},
				Epoch: o.Epoch, Trusted: r.Vouches(o)}
		}
		return nil
	})
	return owners, err
}

// OwnedError says that the ownership record of a workload cluster does not allow a claim: it names
// another management cluster, or it was written after planning.
type OwnedError struct {
	Workload string
	By       restore.Side
	Epoch    int64
	Planned  int64 // epoch at planning, 0 when there was no record
}

func (e *OwnedError) Error() string {
	text := fmt.Sprintf("workload cluster %s belongs to management cluster %s (%s) by its ownership "+
		"record, epoch %d", e.Workload, e.By.Name, e.By.UID, e.Epoch)
	switch {
	case e.Epoch <= e.Planned:
		return text
	case e.Planned == 0:
		return text + "; there was no record at planning"
	default:
		return fmt.Sprintf("%s; at planning it was %d", text, e.Planned)
	}
}

// Hint tells the operator what to do.
func (e *OwnedError) Hint() string {
	return "it was moved or restored there in the meantime: roll this operation back and work with " +
		"that management cluster"
}

// Claim says who takes over what from whom.
type Claim struct {
	WorkloadID string
	Workload   string // "namespace/name"
	From, To   restore.Side
	Operation  string
	// Epoch is that of the record at planning, 0 when there was none. A record that was written
	// after planning belongs to another operation, and refuses the claim.
	Epoch int64
	// Force claims from the owner at planning, even when that is neither From nor To.
	Force bool
}

// claims bounds how often a claim is tried against others that write the same record.
const claims = 5

// Take writes the ownership record for a claim: the one switch that says which management cluster
// a workload cluster belongs to. A claim is allowed when there is no record, and when the record is
// the one of planning and names the source, or the target itself: a restore that runs again claims
// what the first one claimed. It may run again: its own record stays as it is. Errors: *OwnedError;
// those of the store.
func Take(ctx context.Context, r Registry, c Claim) error {
	for range claims {
		var previous *store.SignedOwner
		next := store.Owner{WorkloadID: c.WorkloadID, Workload: c.Workload,
			Owner: store.Source{UID: c.To.UID, Name: c.To.Name}, Epoch: 1, Operation: c.Operation,
			Time: time.Now()}
		have, err := r.GetOwner(ctx, c.WorkloadID)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		default:
			by := have.Owner.Owner
			if by.UID == c.To.UID && have.Operation == c.Operation && r.Vouches(have) {
				return nil
			}
			allowed := have.Epoch <= c.Epoch &&
				(c.Force || by.UID == c.From.UID || by.UID == c.To.UID)
			if r.Vouches(have) && !allowed {
				return &OwnedError{Workload: c.Workload, By: restore.Side{Name: by.Name, UID: by.UID},
					Epoch: have.Epoch, Planned: c.Epoch}
			}
			previous, next.Epoch = &have, have.Epoch+1
		}
		if _, err := r.PutOwner(ctx, next, previous); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("write ownership record of %s: others write it at the same time: %w", c.Workload,
		store.ErrConflict)
}

// takeBack writes a record in the name of the source of a claim, so that a hand-over of this claim
// that is still on its way to the bucket fails. A record that names the source and was written after
// planning does the same, whoever wrote it. Errors: those of Take.
func takeBack(ctx context.Context, r Registry, c Claim) error {
	c.To = c.From
	err := Take(ctx, r, c)
	if owned, ok := errors.AsType[*OwnedError](err); ok && owned.By.UID == c.From.UID {
		return nil
	}
	return err
}

// owner returns the record of a workload cluster that is to be obeyed; ok is false when there is
// none.
func owner(ctx context.Context, r Registry, workloadID string) (have store.SignedOwner, ok bool,
	err error) {
	have, err = r.GetOwner(ctx, workloadID)
	if errors.Is(err, store.ErrNotFound) {
		return have, false, nil
	}
	return have, err == nil && r.Vouches(have), err
}
