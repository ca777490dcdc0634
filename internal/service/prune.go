package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// Retention says which snapshots a prune keeps, when a request does not say it.
type Retention struct {
	Policy retention.Policy
	// Grace is retention.DefaultGrace when it is zero.
	Grace time.Duration
}

type pruneService struct {
	mgmtv1.UnimplementedPruneServiceServer
	s *Server
}

// pruneRun is a prune that is asked for, with its store opened.
type pruneRun struct {
	location *Location
	source   string // its name
	options  retention.Options
}

// pruneRequest is a prune that an operator, or the daemon by itself, asks for.
type pruneRequest struct {
	location, source string // names; all sources when it is empty
	options          retention.Options
}

// pruneByRules returns the request for a prune of a location by the rules of the configuration.
func (s *Server) pruneByRules(location string) pruneRequest {
	return pruneRequest{location: location, options: retention.Options{
		Policy: s.cfg.Retention.Policy, Grace: s.cfg.Retention.Grace}}
}

// pruneFromProto reads what a spec says; the configuration says the rest.
func (s *Server) pruneFromProto(spec *mgmtv1.PruneSpec) pruneRequest {
	request := s.pruneByRules(spec.GetLocation())
	request.source = spec.GetSource()
	o := &request.options
	if r := spec.GetRetention(); r != nil {
		o.Policy = retention.Policy{
			Last: int(r.GetKeepLast()), Hourly: int(r.GetKeepHourly()), Daily: int(r.GetKeepDaily()),
			Weekly: int(r.GetKeepWeekly()), Monthly: int(r.GetKeepMonthly()),
			Within: r.GetKeepWithin().AsDuration(),
		}
	}
	if g := spec.GetGrace(); g != nil {
		o.Grace = g.AsDuration()
	}
	o.AcceptGaps = spec.GetAcceptGaps()
	return request
}

// preparePrune checks a request and opens what it names.
func (s *Server) preparePrune(ctx context.Context, r pruneRequest) (*catalog.Catalog, *pruneRun,
	error) {
	if err := r.options.Check(); err != nil {
		return nil, nil, err
	}
	c, p, err := s.openPrune(ctx, r.location, r.options)
	if err == nil && r.source != "" {
		p.source = r.source
		p.options.Source, err = findSource(ctx, p.options.Store, p.source)
	}
	return c, p, err
}

// openPrune opens a location, and asks the catalog what it knows of its snapshots.
func (s *Server) openPrune(ctx context.Context, location string, o retention.Options) (
	*catalog.Catalog, *pruneRun, error) {
	l, err := s.location(location)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, nil, err
	}
	if o.Store, err = s.openLocation(ctx, l, nil, false); err != nil {
		return nil, nil, err
	}
	whole, err := verify.Whole(ctx, c, o.Store)
	if err != nil {
		return nil, nil, err
	}
	o.Verified = func(k store.EnvelopeKey) bool { return whole[k] }
	o.InUse = func(ctx context.Context) (map[store.SnapshotID]string, error) {
		return c.SnapshotsInUse(ctx, o.Store.ID())
	}
	return c, &pruneRun{location: l, options: o}, nil
}

func (s *pruneService) PlanPrune(req *mgmtv1.PlanPruneRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanPruneResponse]) error {
	ctx := stream.Context()
	_, p, err := s.s.preparePrune(ctx, s.s.pruneFromProto(req.GetSpec()))
	if err != nil {
		return err
	}
	plan, err := retention.NewPlan(ctx, p.options)
	if err == nil {
		err = retention.CountContent(ctx, p.options, plan)
	}
	if err != nil {
		return err
	}
	summary := &mgmtv1.PruneSummary{
		Frees: amountToProto(plan.Frees), Waits: amountToProto(plan.Waits), Blocked: plan.Blocked,
		Time: timestamppb.New(plan.Now), Grace: durationpb.New(plan.Grace),
		Retention: policyToProto(p.options.Policy),
	}
	for _, v := range plan.Snapshots {
		if v.Goes() {
			summary.Removed++
		} else {
			summary.Kept++
		}
		item := &mgmtv1.PrunedSnapshot{}
		for _, r := range v.Reasons {
			item.Keep = append(item.Keep, r.String())
		}
		if v.Envelope != nil {
			item.Snapshot = snapshotToProto(*v.Envelope)
		} else {
			item.Snapshot = damagedToProto(v.Key, v.Err)
		}
		item.Snapshot.Pinned = v.Pinned
		if err := stream.Send(&mgmtv1.PlanPruneResponse{Item: &mgmtv1.PlanPruneResponse_Snapshot{
			Snapshot: item}}); err != nil {
			return err
		}
	}
	for _, f := range plan.Findings {
		if err := stream.Send(&mgmtv1.PlanPruneResponse{Item: &mgmtv1.PlanPruneResponse_Finding{
			Finding: findingToProto(f)}}); err != nil {
			return err
		}
	}
	return stream.Send(&mgmtv1.PlanPruneResponse{Item: &mgmtv1.PlanPruneResponse_Summary{
		Summary: summary}})
}

func amountToProto(a retention.Amount) *mgmtv1.PruneAmount {
	return &mgmtv1.PruneAmount{Keys: a.Keys, Bytes: a.Bytes}
}

func policyToProto(p retention.Policy) *mgmtv1.Retention {
	r := &mgmtv1.Retention{KeepLast: int32(p.Last), KeepHourly: int32(p.Hourly),
		KeepDaily: int32(p.Daily), KeepWeekly: int32(p.Weekly), KeepMonthly: int32(p.Monthly)}
	if p.Within > 0 {
		r.KeepWithin = durationpb.New(p.Within)
	}
	return r
}

func (s *pruneService) RunPrune(ctx context.Context, req *mgmtv1.RunPruneRequest) (
	*mgmtv1.RunPruneResponse, error) {
	c, p, err := s.s.preparePrune(ctx, s.s.pruneFromProto(req.GetSpec()))
	if err != nil {
		return nil, err
	}
	run, err := s.s.beginPrune(ctx, c, p, "")
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunPruneResponse{Operation: operationToProto(run.begun)}, nil
}

// beginPrune begins the operation that prunes. There is one at a time for each location: two would
// do each other's work.
func (s *Server) beginPrune(ctx context.Context, c *catalog.Catalog, p *pruneRun, schedule string) (
	*operationRun, error) {
	if err := p.options.Store.MayRemove(); err != nil {
		return nil, err
	}
	if !s.claimPrune(p.location.Name) {
		return nil, &Error{Reason: ReasonLocked, Message: "a prune of this location is going",
			Hint: "wait for it: mgmtctl operation list tells which it is"}
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindPrune, Source: catalog.Side{Name: p.source, UID: p.options.Source},
		Store: p.options.Store.ID(), Location: p.location.Name, Schedule: schedule,
	})
	var run *operationRun
	if err == nil {
		run, err = s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
			_, err := s.prune(ctx, c, j, p.options)
			s.releasePrune(p.location.Name)
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

// prune carries a prune out and tells what came of it.
func (s *Server) prune(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	o retention.Options) (*retention.Result, error) {
	o.Progress = j.Progress
	o.Step = func(name string, fn func() error) error {
		return j.Do(ctx, catalog.Step{Phase: "remove-" + name},
			func(context.Context, *catalog.StepHandle) error { return fn() })
	}
	// before the look: what is taken from now on may not be in it
	known, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: o.Store.ID()})
	if err != nil {
		return nil, err
	}
	plan, err := retention.NewPlan(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := retention.Execute(ctx, o, plan)
	if r == nil {
		return nil, err
	}
	if as[*retention.RefusedError](err) && len(r.Removed) == 0 {
		// a step was begun, and then the storage, or a pin that came just now, kept all that was
		// named
		err = &untouchedError{err}
	}
	s.metrics.pruned(r, err)
	removed := goneOnRecord(known, r)
	for _, k := range r.Removed {
		removed = append(removed, k.String())
	}
	// What is gone is gone, and is to be known however the rest went.
	ctx = context.WithoutCancel(ctx)
	forgot := c.ForgetSnapshots(ctx, o.Store.ID(), removed)
	events := []catalog.Event{{Type: catalog.EventMessage, Message: prunedText(r)}}
	for _, f := range r.Findings {
		events = append(events, catalog.FindingEvent("", f))
	}
	return r, errors.Join(err, forgot, j.Emit(ctx, events...))
}

// goneOnRecord are the keys of snapshots in the index that an earlier prune removed, which died
// before the index heard of it, or ran elsewhere. What no record explains stays in the index: a
// verify tells by that of newer snapshots that somebody hides.
func goneOnRecord(known []catalog.SnapshotRecord, r *retention.Result) (gone []string) {
	there := map[string]bool{}
	for _, v := range r.Snapshots {
		there[v.Key.String()] = true
	}
	for _, k := range known {
		recorded := slices.ContainsFunc(r.Recorded[k.Source],
			func(n store.Range) bool { return n.From <= k.Sequence && k.Sequence <= n.To })
		if recorded && !there[k.Key] {
			gone = append(gone, k.Key)
		}
	}
	return gone
}

// prunedText says in a sentence what a prune did.
func prunedText(r *retention.Result) string {
	text := fmt.Sprintf("removed %d of %d snapshots; freed %d keys with %d bytes", len(r.Removed),
		len(r.Snapshots), r.Freed.Keys, r.Freed.Bytes)
	if r.Retained.Keys > 0 {
		text += fmt.Sprintf("; the storage retains %d keys with %d bytes", r.Retained.Keys,
			r.Retained.Bytes)
	}
	if r.Waits.Keys > 0 {
		text += fmt.Sprintf("; %d keys with %d bytes that no snapshot names are younger than %s and wait",
			r.Waits.Keys, r.Waits.Bytes, retention.AgeText(r.Grace))
	}
	return text
}

// ParseAge reads a duration of weeks and days and what Go's durations have: "30d", "2w", "1d12h",
// "90m".
func ParseAge(s string) (time.Duration, error) { return retention.ParseAge(s) }

// MinGrace is the shortest grace that a prune takes.
const MinGrace = retention.MinGrace
