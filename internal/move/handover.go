package move

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

func handOverStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "hand-over"} }

// handOver is the point of no return of a unit. Its copy on the target is verified and stands still; once more the source is looked at, and then the ownership
// record names the target.
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
	return m.Journal.Do(ctx, handOverStep(u.Name), func(ctx context.Context, h *catalog.StepHandle) error {
		if done, err := m.handedOver(ctx, u); err != nil {
			return err
		} else if done {
			return h.SetUnit(catalog.UnitHandedOver) // by a run that died before it could say so
		}
		if err := m.holdLock(ctx, u.Name); err != nil {
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
}

func (m *run) claim(u restore.Unit) Claim {
	return Claim{WorkloadID: u.WorkloadID, Workload: u.Name, From: m.Plan.Source, To: m.Plan.Target, Operation: m.Operation, Force: m.Plan.Spec.Force}
}

// handedOver asks the bucket, which knows it first. Without records the journal alone knows.
func (m *run) handedOver(ctx context.Context, u restore.Unit) (bool, error) {
	if m.Plan.Spec.NoFence {
		return false, nil
	}
	return owns(ctx, m.Registry, u.WorkloadID, m.Plan.Target)
}
