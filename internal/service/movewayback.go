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
// away, too: then the operation of the catalog counts, and how says why the store is not used.
func (s *Server) operationToRollBack(ctx context.Context, c *catalog.Catalog, ref string,
	how *resumption) (catalog.Operation, error) {
	op, err := s.currentOperation(ctx, c, ref, how.identity)
	if !how.withoutTarget || !isStoreAway(err) {
		return op, err
	}
	op, findErr := findOperation(ctx, c, ref)
	if findErr != nil {
		return op, err // it is in no catalog, and the store does not answer
	}
	how.storeAway = err
	return op, nil
}

// errNoStoreNamed is why the store is not used when none is named.
var errNoStoreNamed = errors.New("none is named")

// isStoreAway reports whether an error says that a store does not answer, or that none is named.
func isStoreAway(err error) bool {
	if err == nil {
		return false
	}
	e := classify(err)
	return e.ExitCode() == ExitStore || e.HintKey == object.HintStoreURL
}

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
	if err := refuseOthers(ctx, c, op, op.Source.UID, false); err != nil {
		return nil, err
	}
	if st == nil {
		if err := move.RepeatRun(ctx, c, op.ID); err != nil {
			return nil, err
		}
	}
	return s.startMirrored(ctx, c, op.ID, mirrorTo{st, how.giveUp}, func(ctx context.Context,
		j *catalog.Journal) error {
		if how.storeAway != nil {
			if err := j.EmitFindings(ctx, []object.Finding{move.StoreAway(how.storeAway)}); err != nil {
				return err
			}
		}
		return rollBackMove(ctx, s.moveOptions(c, j, ends), stored)
	})
}

// storeOfMove opens the store of a move; nil when it is away, for the reason in how.
func (s *Server) storeOfMove(ctx context.Context, op catalog.Operation, stored *move.StoredPlan,
	how *resumption) (location string, st *store.Store, err error) {
	if how.storeAway == nil {
		l, st, err := s.openStoreOf(ctx, op, stored.Location, nil)
		if err == nil {
			return l.Name, st, nil
		}
		if !isStoreAway(err) {
			return "", nil, err
		}
		how.storeAway = err
	}
	if e := classify(how.storeAway); e.HintKey == object.HintStoreURL {
		how.storeAway = errNoStoreNamed
	}
	return "", nil, nil
}
