package service

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Ownership has one home, the store that takes the snapshots. A restore from a copy of it neither
// sees nor replaces the records there, so an operator has to answer for that: the origin is lost.
// From then on the copy is where this restore, and others from the copy, record ownership.

// ofCopy returns the finding about a restore from a copy, or from what may be one, which cannot
// read who owns what.
func ofCopy(ctx context.Context, st *store.Store) ([]object.Finding, error) {
	f := object.Finding{Severity: object.Error, Code: object.CodeOwnershipFromCopy,
		Message: "the store is a copy of store " + st.Origin() + ", where ownership is recorded: " +
			"whether another management cluster owns what is restored is not known",
		Hint: "restore from the origin; only when it is lost, see that nothing else works on these " +
			"workload clusters, and override this"}
	if st.Origin() != "" {
		return []object.Finding{f}, nil
	}
	id, err := st.CopyTraces(ctx)
	if err != nil || id == "" {
		return nil, err
	}
	f.Message = "the store says that it is no copy, but records of the copy " + id + " are in it: " +
		"either somebody wrote over its mgmtd.json, and who owns what is restored is not known, or " +
		"somebody put them here"
	f.Hint = "find out who writes to this store; restore from the origin if there is one; else see " +
		"that nothing else works on these workload clusters, and override this"
	return []object.Finding{f}, nil
}

// aboutCopy warns that the ownership records that were read are those of a copy alone.
func aboutCopy(st *store.Store) []object.Finding {
	if st == nil || st.Origin() == "" {
		return nil
	}
	return []object.Finding{{Severity: object.Warning, Code: object.CodeOwnershipFromCopy,
		Message: "the store is a copy of store " + st.Origin() + ", where ownership is recorded: only " +
			"what was restored from the copy is known",
		Hint: "name the location of the origin, unless it is lost"}}
}

// refuseCopy returns a *preflight.SourceError for a store that is a copy, unless the operator
// overrides that. The plan has the same finding: a resume, a release and a rollback ask again, of
// the store as it is then.
func refuseCopy(ctx context.Context, st *store.Store, force object.Forced) error {
	findings, err := ofCopy(ctx, st)
	if err != nil {
		return err
	}
	for i, f := range findings {
		findings[i] = force.Override(f)
	}
	return preflight.Refuses(findings)
}

// ownershipHome returns the store in which a restore records ownership: a copy only when the
// operator answers for that.
func ownershipHome(st *store.Store, force object.Forced) *store.Store {
	if force.Has(object.CodeOwnershipFromCopy) {
		return st.AsOwnershipHome()
	}
	return st
}

// originEpochs returns the epochs that this host has seen in the origin of a copy; nil for a store
// that is no copy.
func (o *restoreInputs) originEpochs(ctx context.Context) (map[string]int64, error) {
	if o.store.Origin() == "" {
		return nil, nil
	}
	epochs, err := o.epochs.Epochs(ctx, o.store.Origin())
	if epochs == nil {
		epochs = map[string]int64{}
	}
	return epochs, err
}
