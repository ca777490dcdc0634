package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
)

// Registry keeps the ownership records; a *store.Store is one.
type Registry interface {
	CanFence(ctx context.Context) error
	GetOwner(ctx context.Context, workloadID string) (store.SignedOwner, error)
	PutOwner(ctx context.Context, next store.Owner, previous *store.SignedOwner) (store.SignedOwner, error)
	Owners(ctx context.Context, fn func(workloadID string, o store.SignedOwner, err error) error) error
}

var _ Registry = (*store.Store)(nil)

// Owners reads all ownership records. One that cannot be read counts as one of nobody that is not trusted.
func Owners(ctx context.Context, r Registry) (map[string]restore.Owned, error) {
	owners := map[string]restore.Owned{}
	err := r.Owners(ctx, func(id string, o store.SignedOwner, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			owners[id] = restore.Owned{By: restore.Side{Name: "unreadable"}}
			return nil
		}
		owners[id] = restore.Owned{By: restore.Side{Name: o.Owner.Owner.Name, UID: o.Owner.Owner.UID}, Epoch: o.Epoch, Trusted: o.RequireTrusted() == nil}
		return nil
	})
	return owners, err
}

// OwnedError says that another management cluster owns a workload cluster.
type OwnedError struct {
	Workload string
	By       restore.Side
	Epoch    int64
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("workload cluster %s belongs to management cluster %s (%s) by its ownership record, epoch %d", e.Workload, e.By.Name, e.By.UID, e.Epoch)
}

// Hint tells the operator what to do.
func (e *OwnedError) Hint() string {
	return "it was moved or restored there in the meantime: roll this operation back and work with that management cluster"
}

// Claim says who takes over what from whom.
type Claim struct {
	WorkloadID string
	Workload   string // "namespace/name"
	From, To   restore.Side
	Operation  string
	// Force takes over from anybody.
	Force bool
}

// claims bounds how often a claim is tried against others that write the same record.
const claims = 5

// Take writes the ownership record for a claim: the one switch by which everybody can tell to whom a workload cluster belongs. It may run again: a record that
// names the new owner already is left as it is. Errors: *OwnedError when it belongs to somebody else by now; those of the store.
func Take(ctx context.Context, r Registry, c Claim) error {
	for range claims {
		var previous *store.SignedOwner
		next := store.Owner{WorkloadID: c.WorkloadID, Workload: c.Workload, Owner: store.Source{UID: c.To.UID, Name: c.To.Name}, Epoch: 1, Operation: c.Operation, Time: time.Now()}
		have, err := r.GetOwner(ctx, c.WorkloadID)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		default:
			by := have.Owner.Owner
			if by.UID == c.To.UID {
				return nil
			}
			if by.UID != c.From.UID && !c.Force && have.RequireTrusted() == nil {
				return &OwnedError{Workload: c.Workload, By: restore.Side{Name: by.Name, UID: by.UID}, Epoch: have.Epoch}
			}
			previous, next.Epoch = &have, have.Epoch+1
		}
		if _, err := r.PutOwner(ctx, next, previous); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("write ownership record of %s: others write it at the same time: %w", c.Workload, store.ErrConflict)
}

// owns tells whether the record names side.
func owns(ctx context.Context, r Registry, workloadID string, side restore.Side) (bool, error) {
	have, err := r.GetOwner(ctx, workloadID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && have.Owner.Owner.UID == side.UID, err
}
