package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// openRelease opens the snapshot and the target of a finished restore that left everything paused.
// It sets in r what is to be restored once more, and released: the plan of that adopts the paused
// copies, and all checks of a restore are made.
func (s *Server) openRelease(ctx context.Context, r *restoreRequest, identity []byte) (
	*restoreInputs, error) {
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	op, err := findOperation(ctx, c, r.releaseOf)
	if err != nil {
		return nil, err
	}
	stored, err := pausedRestore(ctx, c, op)
	if err != nil {
		return nil, err
	}
	if err := stored.Plan.CheckModifiers(r.modifiers); err != nil {
		return nil, err
	}
	r.spec = releaseSpec(stored.Plan, r.spec)
	inputs, err := s.reopenRestore(ctx, op, stored, identity)
	if err == nil {
		inputs.store, inputs.modifiers = ownershipHome(inputs.store, r.spec.Force), r.modifiers
	}
	return inputs, err
}

// pausedRestore returns the stored plan of an operation that is a finished restore and left
// everything paused; for any other operation it returns a usage error.
func pausedRestore(ctx context.Context, c *catalog.Catalog, op catalog.Operation) (*storedRestore,
	error) {
	refused := &Error{Reason: ReasonUsage}
	stored := &storedRestore{}
	switch {
	case op.Kind != catalog.KindRestore:
		refused.Message = fmt.Sprintf("operation %s is a %s: only a restore leaves workload clusters "+
			"paused", op.ID, op.Kind)
		return nil, refused
	case op.State != catalog.Succeeded:
		refused.Message = fmt.Sprintf("operation %s is %s: only a finished restore is released", op.ID,
			op.State)
		refused.Hint, refused.HintKey = "resume it first", object.HintResume
		return nil, refused
	}
	if err := readPlan(ctx, c, op, stored); err != nil {
		return nil, err
	}
	if !stored.Plan.Spec.NoRelease {
		refused.Message = fmt.Sprintf("operation %s has released everything that it restored", op.ID)
		return nil, refused
	}
	return stored, nil
}

// releaseSpec returns what releases the units of a plan that left them paused: the same units, and
// what the operator vouches for and accepts now.
func releaseSpec(p restore.Plan, now restore.Spec) restore.Spec {
	spec := p.Spec
	spec.NoRelease, spec.SourceIsGone, spec.Force = false, now.SourceIsGone, now.Force
	spec.Accept = append(slices.Clone(spec.Accept), now.Accept...)
	spec.RenewKubeconfigs = spec.RenewKubeconfigs || now.RenewKubeconfigs
	spec.Only = []string{}
	for _, u := range p.Units {
		if !u.Blocked {
			spec.Only = append(spec.Only, u.Name)
		}
	}
	return spec
}

// settleReleased settles the restores whose workload clusters an operation has released, here and
// in their mirrors. An error is only logged: their snapshots stay longer than they are needed,
// until they are released once more or rolled back.
func (s *Server) settleReleased(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) {
	settled, err := c.SettleReleased(ctx, id)
	for _, op := range settled {
		err = errors.Join(err, s.finishMirror(ctx, c, op))
	}
	if err != nil {
		s.cfg.Log.Warn("record that restores are released", "operation", id, "error", err)
	}
}
