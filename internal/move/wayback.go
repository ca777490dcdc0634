package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
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

// CopiesLeftError means that a rollback did without the target, where paused copies may be left: of
// the units that were given back, and of what they share. A rollback that reaches the target
// removes them.
type CopiesLeftError struct {
	Target string
	Units  []string // none when only copies of shared objects may be left
}

func (e *CopiesLeftError) Error() string {
	if len(e.Units) == 0 {
		return "paused copies of shared objects may be left on " + e.Target
	}
	return fmt.Sprintf("paused copies may be left on %s, of workload clusters that the source has "+
		"back: %d, the first: %s", e.Target, len(e.Units), e.Units[0])
}

// Hint says what the operator can do.
func (e *CopiesLeftError) Hint() string {
	return "unpause none of them there; roll the operation back once more when " + e.Target +
		" answers, which removes them"
}

// HintKey names the command that removes the copies.
func (e *CopiesLeftError) HintKey() object.HintKey { return object.HintRollback }

// DoubtError means that a rollback without the store cannot prove that a unit was not handed over.
// The unit stays paused.
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
// that record, which says that the copy must not be released. Errors: *DoubtError; those of
// ownership.ClaimBack.
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
	case begun || !m.hasTarget() && imported:
		_, err := ownership.ClaimBack(ctx, m.Store, m.request(u))
		return err
	case !m.hasTarget() && m.inBatch(u.Name):
		return m.recordReturn(ctx, u)
	}
	return nil
}

// recordReturn writes the ownership record of a unit that is given back for a copy that may be on
// the target. The journal of this host proves already that the unit was not handed over: a store
// that takes no record is a finding, unless it has one of somebody else.
func (m *run) recordReturn(ctx context.Context, u restore.Unit) error {
	_, err := ownership.ClaimBack(ctx, m.Store, m.request(u))
	if !mirror.IsUnable(err) {
		return err
	}
	return m.Journal.EmitFindings(ctx, []object.Finding{{Severity: object.Warning,
		Code: object.CodeNoFence, Unit: u.Name, Message: "no ownership record says that the source " +
			"has it back: " + err.Error(), Hint: "see that nobody releases its copy on " + m.Target.Name}})
}

// recordLate writes the ownership record of a unit that was given back without the store. It is too
// late to prove anything: what keeps the record from being written is a finding.
func (m *run) recordLate(ctx context.Context, u restore.Unit) {
	if m.Plan.Spec.NoFence {
		return
	}
	_, err := ownership.ClaimBack(ctx, m.Store, m.request(u))
	if err == nil {
		return
	}
	_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(u.Name, object.Finding{
		Severity: object.Warning, Code: object.CodeNoFence, Unit: u.Name, Message: "no ownership " +
			"record says that the source has it back: " + err.Error(), Hint: object.HintOf(err)}))
}

// copies returns all plans by which something was copied to the target.
func (m *run) copies() []*batch { return slices.Concat(m.pre.plans, m.batches) }

// inBatch reports whether a batch or a pre-copy has a unit, so that its copy may be on the target.
func (m *run) inBatch(unit string) bool {
	return slices.ContainsFunc(m.copies(), func(b *batch) bool {
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
	if err == nil && seen > m.request(u).Epoch {
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
// when there may be any: also where every unit of a batch was given back before, its copy removed,
// since what they share is removed last.
func (m *run) reportLeft(ctx context.Context) error {
	units := m.givenBack()
	sharedLeft, err := m.sharedLeft(ctx)
	if err != nil || len(units) == 0 && !sharedLeft {
		return err
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

// sharedLeft reports whether copies of shared objects may be on the target, or objects stay paused
// on the source because of them.
func (m *run) sharedLeft(ctx context.Context) (bool, error) {
	if slices.ContainsFunc(m.copies(), func(b *batch) bool {
		return slices.ContainsFunc(b.Copy.Shared.Objects,
			func(o restore.Object) bool { return o.Action != restore.Skip })
	}) {
		return true, nil
	}
	begun, err := m.sharedPauseBegun(ctx)
	return begun && len(m.pausedShared(m.Plan.Copy)) > 0, err
}

// sharedPauseBegun reports whether pauseShared may have set a switch: a host that went on without
// the mirror may have.
func (m *run) sharedPauseBegun(ctx context.Context) (bool, error) {
	state, err := m.Journal.State(ctx, pauseSharedStep())
	if err != nil || state != "" {
		return isBegun(state), err
	}
	return m.Journal.Imported(ctx)
}

// leaveSharedPaused reports the shared objects that stay paused on the source, because a copy may
// be at work on the target, which cannot be asked: that of another move may be, whatever this one
// has copied. A rollback that reaches the target unpauses them.
func (m *run) leaveSharedPaused(ctx context.Context, objects []restore.Object) error {
	if begun, err := m.sharedPauseBegun(ctx); err != nil || !begun {
		return err
	}
	var findings []object.Finding
	for _, o := range objects {
		findings = append(findings, object.Finding{Severity: object.Warning,
			Code: object.CodeSharedKept, Ref: o.Ref, Message: "it stays paused on the source: its copy on " +
				m.Target.Name + " may be at work", Hint: "roll the operation back once more when " +
				m.Target.Name + " answers"})
	}
	return m.Journal.EmitFindings(ctx, findings)
}

// attempt returns the number of a run, which its locks on the source have. A host that takes the
// operation over reads the newest record in the store, and its run has the next number. Without
// the store, runs of this host that the store never heard of do not count: the lock of that other
// host must not pass for one of theirs.
func (o Options) attempt(ctx context.Context, op catalog.Operation) (int, error) {
	if o.Store != nil {
		return op.Runs, nil
	}
	state, err := o.Catalog.Mirror(ctx, op.ID)
	if err != nil || state.Seq == 0 && state.Next == "" {
		return op.Runs, err // it has no mirror, and no other host can take it over
	}
	return state.Runs, nil
}

// StoreAwayError means that a rollback without the target would have to do without the store, too.
// The journal and the locks on the source do not show what another host did meanwhile, such as a
// restore of the same workload clusters elsewhere.
type StoreAwayError struct{ Err error }

func (e *StoreAwayError) Error() string {
	return "whether another host has gone on with these workload clusters is not known without the " +
		"store: " + e.Err.Error()
}

// Unwrap returns why the store cannot be used.
func (e *StoreAwayError) Unwrap() error { return e.Err }

// Hint says what the operator can do.
func (e *StoreAwayError) Hint() string {
	return "make the store answer; if that cannot be, see that nobody goes on with this operation " +
		"or restores these workload clusters elsewhere, and override it"
}

// HintKey names the option.
func (e *StoreAwayError) HintKey() object.HintKey { return object.HintStoreAway }

// StoreAway is the finding of a rollback without the store.
func StoreAway(why error) object.Finding {
	return object.Finding{Severity: object.Warning, Code: object.CodeStoreAway,
		Message: "the store is not used (" + strings.TrimSpace(why.Error()) + "): the journal and " +
			"the locks on the source decide that nothing was handed over, and no ownership record is " +
			"written", Hint: "see that nobody restores these workload clusters elsewhere; when the store " +
			"answers, roll the operation back once more, which writes the records"}
}
