package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// restoreUndo removes from the target what a restore created, as far as it was not released.
type restoreUndo struct {
	target  *kube.Mgmt
	kinds   []kube.Kind
	rows    *capi.Table
	store   *store.Store
	catalog *catalog.Catalog
	journal *catalog.Journal
	stored  storedRestore
}

// rollBackRestore begins the rollback of a restore, or resumes it. It needs no identity: what was
// created is in the journal.
func (s *Server) rollBackRestore(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	how resumption) (*operationRun, error) {
	u := &restoreUndo{catalog: c, rows: s.cfg.Rows}
	if err := readPlan(ctx, c, op, &u.stored); err != nil {
		return nil, err
	}
	if op.State == catalog.Succeeded && !u.stored.Plan.Spec.NoRelease {
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("operation %s has released "+
			"everything: there is no way back", op.ID), Hint: "controllers of the target are at work on it"}
	}
	target := "" // the flags of mgmtctl name one
	if s.cfg.Daemon || len(s.cfg.Targets) > 1 {
		target = u.stored.Plan.Target.Name
	}
	var err error
	if u.target, err = s.connect(ctx, targetSide, target); err != nil {
		return nil, err
	}
	if u.target.UID() != u.stored.Plan.Target.UID {
		return nil, &Error{Reason: ReasonUsage, Message: "operation " + string(op.ID) +
			" restores into management cluster " + u.stored.Plan.Target.Name + ", this is " +
			u.target.Name(), Hint: "name the target that it was started with"}
	}
	if u.kinds, err = u.target.Reader().Kinds(ctx); err != nil {
		return nil, err
	}
	if storeless := u.stored.Plan.FromMarks && u.stored.Plan.Snapshot.StoreID == ""; !storeless {
		if err := s.openUndo(ctx, u, op); err != nil {
			return nil, err
		}
	}
	others := excluded{self: op, on: []string{u.target.UID()}, byItself: how.byItself}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	to := mirrorTo{store: u.store, giveUp: how.giveUp, others: others, back: true}
	return s.startMirrored(ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		u.journal = j
		return u.run(ctx)
	})
}

// openUndo opens the store in which the restore recorded ownership. What a restore claimed from a
// copy is given back there; one that left everything paused claimed nothing.
func (s *Server) openUndo(ctx context.Context, u *restoreUndo, op catalog.Operation) error {
	_, st, err := s.openStoreOf(ctx, op, u.stored.Location, nil)
	if err != nil {
		return err
	}
	plan := &u.stored.Plan
	if !plan.Spec.NoRelease {
		if err := refuseCopy(ctx, st, plan.Spec.Force); err != nil {
			return err
		}
	}
	u.store = ownershipHome(st, plan.Spec.Force)
	return nil
}

// run undoes the units that were not released, and then what they share when none is left.
func (u *restoreUndo) run(ctx context.Context) error {
	op, err := u.catalog.Operation(ctx, u.journal.Operation())
	if err == nil { // a resume after a crash must not go forward again
		err = u.catalog.UpdateOperation(context.WithoutCancel(ctx), op.ID,
			func(op *catalog.Operation) { op.Back = true })
	}
	if err != nil {
		return err
	}
	names, stay, claimed, err := u.divide(ctx, op)
	if err != nil {
		return err
	}
	stuck, err := u.undoUnits(ctx, names)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for name, by := range claimed {
		stuck[name] = true
		err = errors.Join(err, by)
	}
	for _, unit := range u.stored.Plan.Units {
		if !slices.Contains(names, unit.Name) || stuck[unit.Name] {
			continue
		}
		if backErr := u.giveBack(ctx, unit); backErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", unit.Name, backErr))
			if errors.Is(backErr, store.ErrUnreachable) {
				break // each one would wait as long
			}
		}
	}
	if ctx.Err() != nil { // before the direction changes
		return context.Cause(ctx)
	}
	switch {
	case len(stay) > 0:
		return u.leave(ctx, op.ID, stay, err)
	case err != nil:
		return err
	}
	if err := u.undoShared(ctx); err != nil {
		return fmt.Errorf("remove shared objects: %w", err)
	}
	if blocked := u.blocked(); u.stored.Plan.FromMarks && len(blocked) > 0 {
		return &Error{Reason: ReasonIncomplete, Message: fmt.Sprintf("copies that stay, since findings "+
			"forbid to remove them: %s; all others are removed", strings.Join(blocked, ", ")),
			Hint: "once the causes of the findings are mended, roll back from marks again"}
	}
	return errRolledBack
}

// leave ends a rollback that leaves units whose release was begun: they can only go forward. failed
// says why others are not removed; nil when they are.
func (u *restoreUndo) leave(ctx context.Context, id catalog.OperationID, stay []string,
	failed error) error {
	if err := u.catalog.UpdateOperation(context.WithoutCancel(ctx), id,
		func(op *catalog.Operation) { op.Back = false }); err != nil {
		return errors.Join(failed, err)
	}
	others := "all others are removed"
	hint := "a resume of the operation finishes them, and what they share"
	if failed != nil {
		others = "the rollback of others failed: " + failed.Error()
		hint += "; it restores the others as well: to have these removed, mend what failed and roll " +
			"the operation back again first"
	}
	return &Error{Reason: ReasonIncomplete, Message: fmt.Sprintf("workload clusters whose release "+
		"was begun stay on the target, with what they share: %s; %s", strings.Join(stay, ", "),
		others), Hint: "controllers of the target are at work on them: nothing takes them back; " + hint}
}

// blocked returns the units that the plan leaves.
func (u *restoreUndo) blocked() (names []string) {
	for _, unit := range u.stored.Plan.Units {
		if unit.Blocked {
			names = append(names, unit.Name)
		}
	}
	return names
}

// divide returns the units to undo, those whose release was begun and which stay, and those that
// another operation has claimed for this target since planning. That one adopts what this one
// created, and may be about to release it; it may run on another host.
func (u *restoreUndo) divide(ctx context.Context, op catalog.Operation) (names, stay []string,
	claimed map[string]error, err error) {
	claimed = map[string]error{}
	for _, unit := range u.stored.Plan.Units {
		if unit.Blocked {
			continue
		}
		begun, err := restore.MayBeAccepted(ctx, u.journal, unit.Name)
		if err != nil {
			return nil, nil, nil, err
		}
		if begun || op.Units[unit.Name] == catalog.UnitReleased {
			stay = append(stay, unit.Name)
			continue
		}
		if u.store == nil { // the operator has answered for that (owners-unread)
			names = append(names, unit.Name)
			continue
		}
		by, err := ownership.Claimed(ctx, u.store, claim(u.journal, &u.stored.Plan, unit))
		if store.IsUnusable(err) || as[*ownership.WentBackError](err) {
			by, err = "", nil // the record does not count, and a copy at work is recognised as such
		}
		switch {
		case err != nil:
			return nil, nil, nil, err
		case by != "" && by != string(op.ID):
			claimed[unit.Name] = &Error{Reason: ReasonOwned, Message: fmt.Sprintf("%s: operation %s has "+
				"claimed it for the same target", unit.Name, by), Hint: "it stays: that operation goes on " +
				"with what this one created", HintKey: object.HintOperation}
		default:
			names = append(names, unit.Name)
		}
	}
	return names, stay, claimed, nil
}

// undoUnits removes units: all at once, and one by one when that fails, so that one which cannot be
// removed does not hold up the others. It returns those that are left, and the first error.
func (u *restoreUndo) undoUnits(ctx context.Context, names []string) (stuck map[string]bool,
	first error) {
	stuck = map[string]bool{}
	if len(names) == 0 || u.undo(ctx, &u.stored.Plan, names, false, nil) == nil {
		return stuck, nil
	}
	for _, unit := range u.stored.Plan.Units {
		if ctx.Err() != nil {
			return stuck, context.Cause(ctx)
		}
		for _, name := range names {
			if name != unit.Name {
				continue
			}
			alone := u.stored.Plan
			alone.Units = []restore.Unit{unit}
			if err := u.undo(ctx, &alone, []string{name}, false, nil); err != nil {
				stuck[name] = true
				if first == nil {
					first = fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	if first != nil {
		first = fmt.Errorf("workload clusters that stay on the target: %d, the first: %w", len(stuck),
			first)
	}
	return stuck, first
}

func (u *restoreUndo) undo(ctx context.Context, plan *restore.Plan, units []string, shared bool,
	needed map[object.Ref]bool) error {
	return restore.Undo(ctx, restore.UndoOptions{
		RunOptions: restore.RunOptions{Plan: plan, Reader: u.target.Reader(), Writer: u.target.Writer(),
			Kinds: u.kinds, Rows: u.rows, Operation: string(u.journal.Operation()), Journal: u.journal,
			Tuning: u.stored.Tuning},
		Remover: u.target.Writer(), Lister: u.target.Reader(), Units: units, Shared: shared,
		Needed: needed,
	})
}

// undoShared removes what the units shared, but for what other objects of the target need by now.
func (u *restoreUndo) undoShared(ctx context.Context) error {
	ours := map[object.Ref]bool{}
	for _, o := range u.stored.Plan.Shared.Objects {
		ours[o.Ref] = true
	}
	options := snapshot.OptionsFor(u.target, u.rows)
	options.WithoutRelated = true
	s, contents, err := snapshot.CaptureInMemory(ctx, options)
	if err != nil {
		return err
	}
	needed, err := restore.Needed(s.Graph, contents, u.rows, ours)
	if err != nil {
		return err
	}
	return u.undo(ctx, &u.stored.Plan, nil, true, needed)
}

// adopted returns the Cluster of a unit that this operation has adopted, as it is now; nil when it
// has not, or when it is another one or gone.
func (u *restoreUndo) adopted(ctx context.Context, unit restore.Unit) (*unstructured.Unstructured,
	error) {
	i := slices.IndexFunc(unit.Objects, func(o restore.Object) bool {
		return o.GroupKind() == capi.Cluster && o.Action == restore.Adopt
	})
	k, ok := kube.FindKind(u.kinds, capi.Cluster)
	if i < 0 || !ok {
		return nil, nil
	}
	live, err := u.target.Reader().Get(ctx, k, unit.Objects[i].Namespace, unit.Objects[i].Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the Cluster of %s: %w", unit.Name, err)
	case string(live.GetUID()) != unit.Objects[i].UID:
		return nil, nil
	}
	return live, nil
}

func isPausedNow(cluster *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return paused
}

// giveBack returns the ownership of a unit, whose copy is removed, to its owner at planning. One
// that was at work on the target belongs to the target, also when no record has said so.
func (u *restoreUndo) giveBack(ctx context.Context, unit restore.Unit) error {
	if u.stored.Plan.FromMarks { // it never belonged to the target
		return u.journal.SetUnit(ctx, unit.Name, catalog.UnitRolledBack, "")
	}
	if err := u.deny(ctx, unit); err != nil {
		return err
	}
	err := u.journal.Undo(ctx, ownStep(unit.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		q := claim(u.journal, &u.stored.Plan, unit)
		previous, err := claimedFrom(ctx, u.journal, unit)
		if err != nil {
			return err
		}
		if previous == (object.Side{}) {
			if previous, err = u.neverClaimed(ctx, h, q); err != nil {
				return err
			}
		}
		if previous != (object.Side{}) {
			q.From = previous
		}
		live, err := u.adopted(ctx, unit)
		if err != nil {
			return err
		}
		// What was at work on the target belongs to it, and so does what somebody has paused there by
		// hand, unless a record says otherwise.
		if live != nil && q.From.UID == u.stored.Plan.Snapshot.Source.UID &&
			!capi.PausedByUs(live.Object) && (previous == object.Side{} || !isPausedNow(live)) {
			q.From = q.To
		}
		return ownership.GiveBack(ctx, u.store, q)
	})
	if err != nil {
		return err
	}
	return u.journal.SetUnit(ctx, unit.Name, catalog.UnitRolledBack, "")
}

// deny lists a Cluster again in the admission policy of the target that the restore has taken off
// the list for its release: a GitOps tool must not create it there.
func (u *restoreUndo) deny(ctx context.Context, unit restore.Unit) error {
	values, err := u.journal.Values(ctx, allowStep(unit.Name))
	if err != nil || values[deniedID] == nil {
		return err
	}
	cluster := fence.Cluster{}
	if cluster.Ref, err = clusterOf(unit); err != nil {
		return err
	}
	if err := json.Unmarshal(values[deniedID], &cluster.ID); err != nil {
		return fmt.Errorf("decode id: %w", err)
	}
	return u.journal.Undo(ctx, allowStep(unit.Name), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		policy := policyOf(u.target, u.kinds)
		policy.Alive = u.journal.Alive
		err := policy.Arm(ctx, []fence.Cluster{cluster})
		if alive := u.journal.Alive(ctx); err == nil || alive != nil {
			return alive
		}
		return u.journal.Emit(ctx, catalog.FindingEvent(unit.Name,
			fence.PolicyNotArmed("target", err))) // the unit is given back all the same
	})
}

// neverClaimed returns the owner of a unit whose record is not of this operation: the claim of this
// one, which may be forced, has not come to the store. It journals that owner, whom the record of
// this rollback names. It is the zero side when there is no record, or one that does not count.
func (u *restoreUndo) neverClaimed(ctx context.Context, h *catalog.StepHandle,
	q ownership.Request) (by object.Side, err error) {
	have, err := ownership.Current(ctx, u.store, q)
	switch {
	case store.IsUnusable(err) || as[*ownership.WentBackError](err):
		return by, nil // to give it back says what is wrong with the record
	case err != nil || !have.Trusted || have.Operation == q.Operation:
		return by, err
	}
	return have.By, recordPrevious(ctx, h, have.By)
}
