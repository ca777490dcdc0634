package service

import (
	"context"
	"errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// operationToRollBack is currentOperation for a rollback. Without the target, the store may be
// away, too: when the operator overrides that, the operation of the catalog counts, and how says
// why the store is not used.
func (s *Server) operationToRollBack(ctx context.Context, c *catalog.Catalog, ref string,
	how *resumption) (catalog.Operation, error) {
	op, err := s.currentOperation(ctx, c, ref, how.identity)
	if !how.withoutTarget || !isStoreAway(err) {
		return op, err
	}
	op, findErr := findChanging(ctx, c, ref)
	if findErr != nil {
		return op, err // it is in no catalog, and the store does not answer
	}
	return op, how.doWithoutStore(err)
}

// doWithoutStore notes why a rollback does without the store. *move.StoreAwayError when the
// operator does not override that.
func (how *resumption) doWithoutStore(why error) error {
	if !how.goWithoutStore {
		return &move.StoreAwayError{Err: why}
	}
	how.storeAway = why
	return nil
}

// sideError says which side of a move an error is about. Its text is that of the error.
type sideError struct {
	side string
	err  error
}

func (e *sideError) Error() string { return e.err.Error() }
func (e *sideError) Unwrap() error { return e.err }

// wayAround returns the error of a resume or a rollback of a move with a hint that names what does
// without the side, or the store, that does not answer. back: it is rolled back. An error of
// another kind, or of one that does without already, stays as it is.
func (how resumption) wayAround(op catalog.Operation, back bool, err error) error {
	if err == nil || op.Kind != catalog.KindMove || how.withoutSource || how.withoutTarget {
		return err
	}
	e, at := classify(err), ""
	if on, ok := errors.AsType[*sideError](err); ok && e.Reason == ReasonUnreachable {
		at = on.side
	}
	switch {
	case at == targetSide && back:
		e.addHint(move.TargetAwayHint, object.HintWithoutTarget)
	case at == sourceSide && !back:
		e.addHint(move.SourceAwayHint, object.HintWithoutSource)
	case back && isStoreAway(err) && e.HintKey != object.HintGiveUpMirror:
		when := "if it does not come back soon"
		if e.Reason == ReasonStoreMissing { // most often, another one is meant
			when = "if this is where the operation began, so that the store is lost"
		}
		e.addHint(when+", see that nobody goes on with this operation on another host, or restores its "+
			"workload clusters elsewhere, and roll back without the store and without the target, on "+
			"which the paused copies stay", object.HintStoreAway)
	default:
		return err
	}
	return e
}

// isStoreAway reports whether an error says that a store cannot be used: it does not answer, is
// missing, or denies access. A store that is not named, or is another one, is a mistake of the
// operator instead.
func isStoreAway(err error) bool { return err != nil && classify(err).ExitCode() == ExitStore }

// giveMoveBack rolls a move back while its target does not answer.
func (s *Server) giveMoveBack(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	how resumption) (*operationRun, error) {
	stored, err := move.ReadPlan(ctx, c, op.ID)
	if err != nil {
		return nil, planError(op, err)
	}
	location, st, err := s.storeOfMove(ctx, op, stored, &how)
	if err != nil {
		return nil, err
	}
	source, err := s.connect(ctx, sourceSide, op.Source.Name)
	if err != nil {
		return nil, err
	}
	ends, err := move.WithoutTarget(ctx, source, stored.Plan.Target, st, location, s.cfg.Rows)
	if err != nil {
		return nil, err
	}
	if err := stored.CheckEnds(op, ends); err != nil {
		return nil, err
	}
	others := excluded{self: op, on: []string{op.Source.UID}}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	to := mirrorTo{store: st, giveUp: how.giveUp, others: others, back: true}
	return s.startMirrored(ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		if how.storeAway != nil {
			if err := j.EmitFindings(ctx, []object.Finding{move.StoreAway(how.storeAway)}); err != nil {
				return err
			}
		}
		return rollBackMove(ctx, s.moveOptions(c, j, ends), stored)
	})
}

// goForward resumes a move while its source does not answer.
func (s *Server) goForward(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	how resumption) (*operationRun, error) {
	stored, err := move.ReadPlan(ctx, c, op.ID)
	if err != nil {
		return nil, planError(op, err)
	}
	if err := stored.Plan.Copy.CheckModifiers(how.modifiers); err != nil {
		return nil, err
	}
	location, st, err := s.openStoreOf(ctx, op, stored.Location, how.identity)
	if err == nil && st.Encrypted() && len(how.identity) == 0 {
		err = &Error{Reason: ReasonIdentity, Message: "without the source, the objects are " +
			"read from the snapshot in the store, which is encrypted", Hint: "give an identity",
			HintKey: object.HintIdentity}
	}
	if err != nil {
		return nil, err
	}
	target, err := s.connect(ctx, targetSide, op.Target.Name)
	if err != nil {
		return nil, err
	}
	ends, err := move.WithoutSource(ctx, stored.Plan.Source, target, st, location.Name, s.cfg.Rows)
	if err != nil {
		return nil, err
	}
	ends.Modifiers = how.modifiers
	if err := stored.CheckEnds(op, ends); err != nil {
		return nil, err
	}
	others := excluded{self: op, on: []string{op.Target.UID}, forward: true}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	to := mirrorTo{store: st, giveUp: how.giveUp, others: others}
	return s.startMirrored(ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		return move.GoForward(ctx, s.moveOptions(c, j, ends), stored)
	})
}

// storeOfMove opens the store of a move; nil when it is away, for the reason in how.
func (s *Server) storeOfMove(ctx context.Context, op catalog.Operation, stored *move.StoredPlan,
	how *resumption) (location string, st *store.Store, err error) {
	if how.storeAway != nil {
		return "", nil, nil
	}
	l, st, err := s.openStoreOf(ctx, op, stored.Location, nil)
	switch {
	case err == nil:
		return l.Name, st, nil
	case isStoreAway(err):
		return "", nil, how.doWithoutStore(err)
	}
	return "", nil, err
}
