package move

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

func handOverStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "hand-over"} }

// handOver is the point of no return of a unit. Its copy on the target is verified and stands
// still; once more the source is looked at, and then the ownership record names the target.
func (m *run) handOver(ctx context.Context, u restore.Unit, p *part) error {
	state, err := m.Journal.State(ctx, handOverStep(u.Name))
	if err != nil {
		return err
	}
	if state == "" {
		if err := m.Journal.SetUnit(ctx, u.Name, catalog.UnitCopied, ""); err != nil {
			return err
		}
	}
	err = m.Journal.Do(ctx, handOverStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		if by, err := m.recorded(ctx, u); err != nil {
			return err
		} else if by == m.Operation {
			return h.SetUnit(catalog.UnitHandedOver) // by a run that died before it could say so
		}
		if err := m.holdLock(ctx, u.Name, false); err != nil {
			return err
		}
		if err := m.unchanged(ctx, u.Name, p); err != nil {
			return err
		}
		if !m.Plan.Spec.NoFence {
			if err := Take(ctx, m.Registry, m.claim(u)); err != nil {
				return err
			}
		}
		return h.SetUnit(catalog.UnitHandedOver)
	})
	if err != nil || m.Plan.Spec.NoFence {
		return err
	}
	// Days may have passed since then: what went on to a third management cluster is not released
	// here.
	by, err := m.recorded(ctx, u)
	if err == nil && by != m.Operation {
		have, _, err := owner(ctx, m.Registry, u.WorkloadID)
		if err != nil {
			return err
		}
		return &OwnedError{Workload: u.Name, By: restore.Side{Name: have.Owner.Owner.Name,
			UID: have.Owner.Owner.UID}, Epoch: have.Epoch, Planned: m.Plan.Epochs[u.WorkloadID]}
	}
	return err
}

func (m *run) claim(u restore.Unit) Claim {
	return Claim{
		WorkloadID: u.WorkloadID, Workload: u.Name, From: m.Plan.Source, To: m.Plan.Target,
		Operation: m.Operation, Epoch: m.Plan.Epochs[u.WorkloadID], Force: m.Plan.Spec.Force,
	}
}

// recorded asks the bucket, which knows it first: the operation that handed the unit to the target,
// "" when none has since planning.
func (m *run) recorded(ctx context.Context, u restore.Unit) (operation string, err error) {
	if m.Plan.Spec.NoFence {
		return "", nil
	}
	have, ok, err := owner(ctx, m.Registry, u.WorkloadID)
	if err != nil || !ok || have.Owner.Owner.UID != m.Plan.Target.UID ||
		have.Epoch <= m.Plan.Epochs[u.WorkloadID] {
		return "", err
	}
	return have.Operation, nil
}
