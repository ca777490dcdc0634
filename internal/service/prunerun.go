package service

import (
	"context"
	"errors"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
)

// beginPrune begins the operation that prunes. There is one at a time for each location: a second
// one would find the same snapshots.
func (s *Server) beginPrune(ctx context.Context, c *catalog.Catalog, p *pruneRun, schedule string) (
	*operationRun, error) {
	if err := p.options.Store.MayRemove(); err != nil {
		return nil, err
	}
	if !s.claimPrune(p.location.Name) {
		return nil, &Error{Reason: ReasonLocked, Message: "a prune or a repair of this location is " +
			"running",
			Hint: "wait for it; a list of the operations shows it", HintKey: object.HintOperations}
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindPrune, Source: catalog.Side{Name: p.source, UID: p.options.Source},
		Store: p.options.Store.ID(), Location: p.location.Name, Schedule: schedule,
	})
	var run *operationRun
	if err == nil {
		run, err = s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
			defer s.changed(p.location.Name, 0)
			defer s.releasePrune(p.location.Name)
			_, err := s.prune(ctx, c, j, p.options)
			return err
		})
	}
	if err != nil {
		s.releasePrune(p.location.Name)
	}
	return run, err
}

func (s *Server) claimPrune(location string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prunes[location].going {
		return false
	}
	s.prunes[location] = pruneState{going: true, began: time.Now()}
	return true
}

func (s *Server) releasePrune(location string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prunes[location] = pruneState{began: s.prunes[location].began}
}

// pruneState is where prunes of a location stand.
type pruneState struct {
	going bool
	began time.Time // the last one
}

// prune plans and executes a prune, and reports what it did.
func (s *Server) prune(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	o retention.Options) (*retention.Result, error) {
	o.Progress = j.Progress
	o.Step = func(name string, fn func() error) error {
		return j.Do(ctx, catalog.Step{Phase: "remove-" + name},
			func(context.Context, *catalog.StepHandle) error { return fn() })
	}
	// Before the plan: a snapshot that is taken from now on may be missing in it.
	indexed, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: o.Store.ID()})
	var plan *retention.Plan
	if err == nil {
		plan, err = retention.NewPlan(ctx, o)
	}
	var r *retention.Result
	if err == nil {
		r, err = retention.Execute(ctx, o, plan)
	}
	if r == nil {
		s.metrics.pruned(nil, err)
		return nil, err
	}
	if as[*retention.RefusedError](err) && len(r.Removed) == 0 {
		// A step was begun, and then the storage, or a new pin, retained all that was named.
		err = &untouchedError{err}
	}
	if err == nil && o.Delete == nil {
		_, err = mirror.Prune(ctx, o.Store, time.Now())
	}
	s.metrics.pruned(r, err)
	return r, errors.Join(err, recordPrune(context.WithoutCancel(ctx), c, j, o.Store.ID(), indexed, r))
}

// recordPrune removes from the index what a prune removed from the store, and reports what it did.
// It is done however the prune ended: what is gone is gone. Snapshots that an earlier prune removed
// go from the index, too: that prune may have died before it reached the index, or run elsewhere. A
// missing snapshot that no record explains stays in the index, by which a verification notices that
// newer snapshots were hidden.
func recordPrune(ctx context.Context, c *catalog.Catalog, j *catalog.Journal, storeID string,
	indexed []catalog.SnapshotRecord, r *retention.Result) error {
	var gone []string
	for _, k := range r.Removed {
		gone = append(gone, k.String())
	}
	listed := map[string]bool{}
	for _, v := range r.Snapshots {
		listed[v.Key.String()] = true
	}
	for _, s := range indexed {
		if r.RemovedOnRecord(s.Source, s.Sequence) && !listed[s.Key] {
			gone = append(gone, s.Key)
		}
	}
	events := []catalog.Event{{Type: catalog.EventMessage, Message: r.String()}}
	for _, f := range r.Findings {
		events = append(events, catalog.FindingEvent("", f))
	}
	return errors.Join(c.ForgetSnapshots(ctx, storeID, gone), j.Emit(ctx, events...))
}
