package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file has what a rollback without the target needs. The source may reconcile a unit again
// only when the target never will (I1): its copy is paused until the hand-over is recorded. So the
// rollback needs a proof that no hand-over was recorded and none will be. The journal of this host
// is one, since a hand-over begins with a record in it. Where it may lack a record, because another
// host wrote the operation, or where a hand-over was begun and its end is not known, the ownership
// record is the proof: one in the name of the source, with a higher epoch, makes the conditional
// write of the hand-over fail.

// CopiesLeftError means that units were given back to the source, and that their copies may be on
// the target, paused. A rollback that reaches the target removes them.
type CopiesLeftError struct {
	Target string
	Units  []string
}

func (e *CopiesLeftError) Error() string {
	return fmt.Sprintf("the source reconciles everything again that was not handed over; paused "+
		"copies may be left on %s: %d, the first: %s", e.Target, len(e.Units), e.Units[0])
}

// Hint says what the operator can do.
func (e *CopiesLeftError) Hint() string {
	return "unpause none of them there; roll the operation back once more when " + e.Target +
		" answers, which removes them"
}

// HintKey names the command that removes the copies.
func (e *CopiesLeftError) HintKey() object.HintKey { return object.HintRollback }

// DoubtError means that nothing at hand proves that a unit was not handed over. It stays paused.
type DoubtError struct{ Workload string }

func (e *DoubtError) Error() string {
	return "whether workload cluster " + e.Workload + " was handed over is not known without the " +
		"ownership records of the store: it stays paused on the source"
}

// Hint says what the operator can do.
func (e *DoubtError) Hint() string {
	return "roll the operation back again when the store answers"
}

// prove makes sure that a unit was not handed over and never will be. The write of a hand-over that
// was begun may still reach the bucket; a newer ownership record for the source makes that
// conditional write fail. Without the target, which may have a copy, every unit of a batch gets
// that record: whoever finds the copy there then finds out that it is not to be released. Errors:
// *DoubtError; those of ownership.ClaimBack.
func (m *run) prove(ctx context.Context, u restore.Unit) error {
	state, err := m.Journal.State(ctx, handOverStep(u.Name))
	if err != nil {
		return err
	}
	imported, err := m.Journal.Imported(ctx)
	if err != nil {
		return err
	}
	recorded := !m.Plan.Spec.NoFence
	switch begun := isBegun(state); {
	case m.Store == nil && (imported || begun && recorded):
		return &DoubtError{Workload: u.Name}
	case m.Store == nil || !recorded:
		return nil
	case begun || !m.hasTarget() && (imported || m.inBatch(u.Name)):
		return ownership.ClaimBack(ctx, m.Store, m.request(u))
	}
	return nil
}

// inBatch reports whether a batch has a unit, so that its copy may be on the target.
func (m *run) inBatch(unit string) bool {
	return slices.ContainsFunc(m.batches, func(b *batch) bool {
		return slices.Contains(b.units(), unit)
	})
}

// checkSeen makes sure, without the store, that this host has seen no ownership record of a unit
// that was written after planning. *DoubtError otherwise.
func (m *run) checkSeen(ctx context.Context, u restore.Unit) error {
	op, err := m.Catalog.Operation(ctx, m.Journal.Operation())
	if err != nil {
		return err
	}
	seen, err := m.Catalog.Epoch(ctx, op.Store, u.WorkloadID)
	if err == nil && seen > m.Plan.Epochs[u.WorkloadID] {
		err = &DoubtError{Workload: u.Name}
	}
	return err
}

// givenBack returns the units that were given back without the target.
func (m *run) givenBack() (units []string) {
	for _, u := range m.Plan.Copy.Units {
		if m.Units[u.Name] == catalog.UnitGivenBack {
			units = append(units, u.Name)
		}
	}
	return units
}

// reportLeft reports the copies that a rollback without the target leaves there. *CopiesLeftError
// when there may be any.
func (m *run) reportLeft(ctx context.Context) error {
	units := m.givenBack()
	if len(units) == 0 {
		return nil
	}
	left := &CopiesLeftError{Target: m.Target.Name, Units: units}
	var findings []object.Finding
	for _, unit := range units {
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeCopyLeft, Unit: unit, Message: "it was given back to the source; on " +
				m.Target.Name + " the objects of its copy may be left, its Cluster paused with the " +
				"annotation " + capi.AnnotationWasPaused, Hint: left.Hint()})
	}
	if err := m.Journal.EmitFindings(ctx, findings); err != nil {
		return err
	}
	return left
}

// leaveSharedPaused reports the shared objects that stay paused on the source, because a copy may
// be at work on the target, which cannot be asked. A rollback that reaches the target unpauses
// them.
func (m *run) leaveSharedPaused(ctx context.Context, objects []restore.Object) error {
	var findings []object.Finding
	for _, o := range objects {
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeSharedKept, Ref: o.Ref, Message: "it stays paused on the source: its copy on " +
				m.Target.Name + " may be at work", Hint: "roll the operation back once more when " +
				m.Target.Name + " answers"})
	}
	return m.Journal.EmitFindings(ctx, findings)
}

// RepeatRun makes the next run of a move have the number of the last one. Call it before a run
// without the store. The lock on a source Cluster has the number of the run that took it. A host
// that has taken the operation over, while this one cannot ask the store, has the number that the
// next run here would have: a run with it would take the lock of that host for its own.
func RepeatRun(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) error {
	return c.UpdateOperation(ctx, id, func(op *catalog.Operation) { op.Runs = max(op.Runs-1, 0) })
}

// StoreAway is the finding of a rollback that goes by its journal alone.
func StoreAway(why error) object.Finding {
	return object.Finding{Severity: object.Warning, Code: object.CodeStoreAway,
		Message: "the store does not answer (" + strings.TrimSpace(why.Error()) + "): the journal and " +
			"the locks on the source decide that nothing was handed over, and no ownership record is " +
			"written", Hint: "see that nobody has restored these workload clusters elsewhere meanwhile"}
}
