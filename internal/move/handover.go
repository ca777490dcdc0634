package move

import (
	"context"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

func handOverStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "hand-over"} }

// stoppedError keeps a unit on the source.
type stoppedError struct{}

func (stoppedError) Error() string {
	return "nothing more is handed over, since Machines of another workload cluster came or went " +
		"after its release"
}

// Hint says what to do next.
func (stoppedError) Hint() string {
	return "find out what happened to that one; then resume the operation, which begins from " +
		"scratch with those that were not handed over"
}

// handOver is the point of no return of a unit. Its copy on the target is verified and paused. The
// source is captured once more and must be unchanged; then the ownership record names the target.
func (m *run) handOver(ctx context.Context, u restore.Unit, b *batch, f *flight) error {
	state, err := m.Journal.State(ctx, handOverStep(u.Name))
	if err != nil {
		return err
	}
	if state != catalog.StepDone {
		m.mu.Lock()
		stopped := m.results.stopped
		m.mu.Unlock()
		if stopped && !isBegun(state) {
			return stoppedError{}
		}
		if err := m.Journal.SetUnit(ctx, u.Name, catalog.UnitCopied, ""); err != nil {
			return err
		}
	}
	limited, cancel := m.limit(ctx, u)
	defer cancel()
	if state != catalog.StepDone {
		// Before the step begins, so that a refusal leaves no hand-over that has to be taken back.
		if err := m.checkOverridden(limited, u); err != nil {
			return err
		}
	}
	err = m.Journal.Do(ctx, handOverStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		if by, err := m.claimed(ctx, u); err != nil {
			return err
		} else if by == m.Operation {
			return h.SetUnit(catalog.UnitHandedOver) // by a run that died before it was journaled
		}
		if err := m.holdLock(ctx, u.Name, false); err != nil {
			return err
		}
		var armed task.Group
		defer armed.Finish()
		armed.Go(func() error {
			m.arm(ctx, u.Name) // the list may have been edited since the pause
			return nil
		})
		if err := m.unchanged(ctx, u.Name, b, f.meet(limited, u.Name)); err != nil {
			return err
		}
		armed.Finish()
		if limited.Err() != nil {
			return context.Cause(limited)
		}
		if !m.Plan.Spec.NoFence {
			if err := ownership.Claim(ctx, m.Store, m.request(u)); err != nil {
				return err
			}
		}
		return h.SetUnit(catalog.UnitHandedOver)
	})
	if err != nil {
		return err
	}
	if !m.Plan.Spec.NoFence {
		// Days may have passed since then: a unit that another operation claimed is not released here.
		if err := ownership.Check(ctx, m.Store, m.request(u)); err != nil {
			return err
		}
	}
	return m.allow(ctx, u)
}

// checkOverridden returns a *preflight.SourceError when the owner of a unit whose record the
// operator overrides may reconcile it: days may have passed since the plan.
func (m *run) checkOverridden(ctx context.Context, u restore.Unit) error {
	force := m.Plan.Spec.Force
	if m.Overridden == nil || !force.Has(object.CodeOwnedElsewhere) || m.Plan.Spec.NoFence {
		return nil
	}
	records, err := ownership.Of(ctx, m.Store, []string{u.WorkloadID})
	if err != nil {
		return err
	}
	by := preflight.Owners{Records: records, Force: force,
		Expected: []string{m.Plan.Source.UID, m.Plan.Target.UID}}.Overrides(u.WorkloadID)
	record := records[u.WorkloadID]
	if by.UID == "" { // the record names the source once a hand-over that had begun was taken back
		by = m.Plan.Copy.Overridden[u.WorkloadID]
		record = ownership.Record{By: by}
	}
	if by.UID == "" {
		return nil
	}
	owners, err := m.Overridden(ctx, record)
	if err != nil {
		return err
	}
	owner := owners[by.UID]
	if planned, ok := m.Plan.Copy.OwnersSeen[by.UID]; ok {
		owner.Planned = &planned
	}
	for _, f := range owner.AtWork(u.Name, time.Now()) {
		if f = force.Override(f); f.Severity >= object.Error {
			return &preflight.SourceError{Finding: f}
		}
	}
	return nil
}

// allow lifts the admission policy of the target for a unit, which is about to be released there:
// it was fenced there, or moved away from there.
func (m *run) allow(ctx context.Context, u restore.Unit) error {
	ref, err := clusterRef(u.Name)
	if err != nil {
		return err
	}
	return m.returns.Allow(ctx, ref)
}

func (m *run) request(u restore.Unit) ownership.Request {
	return ownership.Request{
		WorkloadID: u.WorkloadID, Workload: u.Name, From: m.Plan.Source, To: m.Plan.Target,
		Operation: m.Operation, Epoch: max(m.Plan.Epochs[u.WorkloadID], m.knownEpoch(u.Name)),
		Force:         m.Plan.Spec.Force.Has(object.CodeOwnedElsewhere),
		ForceDamaged:  m.Plan.Spec.Force.Has(object.CodeOwnerDamaged),
		ForceWentBack: m.Plan.Spec.Force.Has(object.CodeEpochWentBack),
	}
}

// epochMark returns the annotation that the release of a unit writes. A move that writes no records
// marks the epoch that it knows: the record of an earlier claim, which names another management
// cluster by then, must not fence the Cluster.
func (m *run) epochMark(u restore.Unit) string {
	q := m.request(u)
	if m.Plan.Spec.NoFence {
		return ownership.EpochMark(m.Store.ID(), q.Epoch)
	}
	return ownership.EpochMark(m.Store.ID(), q.Next())
}

// handedOverBy returns the operation that handed a unit over to the target: this one when its
// journal knows of it, else the one that the ownership record names; "" when none did.
func (m *run) handedOverBy(ctx context.Context, u restore.Unit) (operation string, err error) {
	state, err := m.Journal.State(ctx, handOverStep(u.Name))
	if err != nil {
		return "", err
	}
	if state == catalog.StepDone {
		return m.Operation, nil
	}
	return m.claimed(ctx, u)
}

// claimed returns the operation that claimed a unit for the target since planning; "" when none
// did, when the move writes no records, or when there is no store to ask (prove decides then).
func (m *run) claimed(ctx context.Context, u restore.Unit) (operation string, err error) {
	if m.Plan.Spec.NoFence || m.Store == nil {
		return "", nil
	}
	return ownership.Claimed(ctx, m.Store, m.request(u))
}
