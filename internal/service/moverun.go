package service

import (
	"context"
	"errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
)

// endpointNames are the names of the management clusters and the storage location of a move. A name
// may be empty where there is only one.
type endpointNames struct{ source, target, location string }

// endpoints connects to both sides and opens the store; create makes the store when there is none.
func (s *Server) endpoints(ctx context.Context, names endpointNames, identity []byte, create bool) (
	move.Ends, error) {
	location, err := s.location(names.location)
	if err != nil {
		return move.Ends{}, err
	}
	if location.Store.SigningKeyFile == "" && !location.Store.Plain && create {
		return move.Ends{}, &Error{Reason: ReasonUsage, Message: "no signing key: a move takes " +
			"snapshots and hands over by a record, and both are signed", Hint: "give one, or make one first",
			HintKey: object.HintNewSigningKey}
	}
	source, err := s.connect(ctx, sourceSide, names.source)
	if err != nil {
		return move.Ends{}, &sideError{sourceSide, err}
	}
	target, err := s.connect(ctx, targetSide, names.target)
	if err != nil {
		return move.Ends{}, &sideError{targetSide, err}
	}
	// The store is last: it is made only once both sides answer.
	st, err := s.openLocation(ctx, location, identity, create)
	if err == nil {
		err = st.AcceptsSnapshots() // before anything is paused
	}
	if err != nil {
		return move.Ends{}, err
	}
	ends, err := move.NewEnds(ctx, source, target, st, location.Name, s.cfg.Rows)
	ends.Overridden = func(ctx context.Context, records ...ownership.Record) (
		map[string]preflight.Overridden, error) {
		var owners []object.Side
		for _, r := range records {
			owners = append(owners, r.By)
		}
		seen := lastSeen{store: st, known: epochMemory{s}.lastSeen}
		return seen.overridden(ctx, s.dialer().dial(ctx, owners...), records)
	}
	return ends, err
}

func (s *Server) moveOptions(c *catalog.Catalog, j *catalog.Journal, ends move.Ends) move.Options {
	return move.Options{Ends: ends, Catalog: c, Journal: j, Program: s.program()}
}

// beginMove begins the operation that moves workload clusters.
func (s *Server) beginMove(ctx context.Context, c *catalog.Catalog, ends move.Ends,
	request move.Request) (*operationRun, error) {
	others := excluded{self: catalog.Operation{Kind: catalog.KindMove}, forward: true,
		on: []string{ends.Source.UID, ends.Target.UID}}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	op, err := ends.Create(ctx, c)
	if err != nil {
		return nil, err
	}
	to := mirrorTo{store: ends.Store, others: others}
	return s.startMirrored(s.ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		return move.Run(ctx, s.moveOptions(c, j, ends), request)
	})
}

// errRolledBack ends an operation that was rolled back wholly.
var errRolledBack = errors.New("rolled back")

// resumeMove resumes a move, or rolls it back, between the management clusters that it was started
// with.
func (s *Server) resumeMove(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	back bool, how resumption) (*operationRun, error) {
	stored, err := move.ReadPlan(ctx, c, op.ID)
	if err != nil {
		return nil, planError(op, err)
	}
	if !back { // a rollback removes copies, whatever is in them
		if err := stored.Plan.Copy.CheckModifiers(how.modifiers); err != nil {
			return nil, err
		}
	}
	location, _, err := s.openStoreOf(ctx, op, stored.Location, how.identity)
	if err != nil {
		return nil, err
	}
	ends, err := s.endpoints(ctx, endpointNames{source: op.Source.Name, target: op.Target.Name,
		location: location.Name}, how.identity, true)
	if err != nil {
		return nil, err
	}
	ends.Modifiers = how.modifiers
	if err := stored.CheckEnds(op, ends); err != nil {
		return nil, err
	}
	others := excluded{self: op, on: []string{op.Source.UID, op.Target.UID}, forward: !back,
		byItself: how.byItself}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	to := mirrorTo{store: ends.Store, giveUp: how.giveUp, others: others, back: back}
	return s.startMirrored(ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		if !back {
			return move.Resume(ctx, s.moveOptions(c, j, ends), stored)
		}
		return rollBackMove(ctx, s.moveOptions(c, j, ends), stored)
	})
}

func rollBackMove(ctx context.Context, o move.Options, stored *move.StoredPlan) error {
	err := move.Rollback(ctx, o, stored)
	if err == nil {
		err = errRolledBack
	}
	return err
}
