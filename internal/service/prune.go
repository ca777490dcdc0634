package service

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// Retention is the rules of prunes whose request has none.
type Retention struct {
	Policy retention.Policy
	// Grace is retention.DefaultGrace when it is zero.
	Grace time.Duration
}

type pruneService struct {
	mgmtv1.UnimplementedPruneServiceServer
	s *Server
}

// pruneRun is a prune with its store opened.
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

// pruneByRules returns the request for a prune of a location by the rules of the configuration: its
// own ones, or those for all locations.
func (s *Server) pruneByRules(location string) pruneRequest {
	o := retention.Options{Policy: s.cfg.Retention.Policy, Grace: s.cfg.Retention.Grace}
	if l, err := s.location(location); err == nil && l.Retention != nil {
		o.Policy = *l.Retention
	}
	return pruneRequest{location: location, options: o}
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
	o.AcceptGaps, o.DropScopes = spec.GetAcceptGaps(), spec.GetDropScopes()
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

// openPrune opens a location, and finds out which of its snapshots are verified or in use.
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
	known, err := readKnown(ctx, c, o.Store, "")
	if err != nil {
		return nil, nil, err
	}
	for _, m := range known.missing {
		o.Missing = append(o.Missing, retention.Missing{Source: m.Source, ID: store.SnapshotID(m.ID),
			Sequence: m.Sequence})
	}
	o.Verified = func(k store.EnvelopeKey) bool { return whole[k] }
	o.InUse = func(ctx context.Context) (map[string]store.SnapshotID, error) {
		return snapshotsInUse(ctx, c, o.Store)
	}
	o.HiddenInUse = func(ctx context.Context) (map[string]store.SnapshotID, error) {
		return mirror.HiddenInUse(ctx, o.Store)
	}
	return c, &pruneRun{location: l, options: o}, nil
}

// PlanPrune decides what a prune would remove now, and counts it.
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
	for _, piece := range planToProto(plan, p.options.Policy) {
		if err := stream.Send(piece); err != nil {
			return err
		}
	}
	return nil
}

// planToProto returns a plan of a prune as the pieces of its stream.
func planToProto(plan *retention.Plan, policy retention.Policy) []*mgmtv1.PlanPruneResponse {
	var pieces []*mgmtv1.PlanPruneResponse
	summary := &mgmtv1.PruneSummary{
		Frees: amountToProto(plan.Frees), Waits: amountToProto(plan.Waits), Blocked: plan.Blocked,
		Time: timestamppb.New(plan.Now), Grace: durationpb.New(plan.Grace),
		Retention: policyToProto(policy), Digest: plan.Digest(),
	}
	for _, v := range plan.Snapshots {
		if v.Goes() {
			summary.Removed++
		} else {
			summary.Kept++
		}
		pieces = append(pieces, &mgmtv1.PlanPruneResponse{
			Item: &mgmtv1.PlanPruneResponse_Snapshot{Snapshot: verdictToProto(v)}})
	}
	for _, f := range plan.Findings {
		pieces = append(pieces, &mgmtv1.PlanPruneResponse{
			Item: &mgmtv1.PlanPruneResponse_Finding{Finding: findingToProto(f)}})
	}
	return append(pieces, &mgmtv1.PlanPruneResponse{
		Item: &mgmtv1.PlanPruneResponse_Summary{Summary: summary}})
}

func verdictToProto(v retention.Verdict) *mgmtv1.PrunedSnapshot {
	p := &mgmtv1.PrunedSnapshot{}
	if v.Envelope != nil {
		p.Snapshot = snapshotToProto(*v.Envelope)
	} else {
		p.Snapshot = damagedToProto(v.Key, v.Err)
	}
	p.Snapshot.Pinned = v.Pinned
	for _, r := range v.Reasons {
		p.Keep = append(p.Keep, r.String())
	}
	return p
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

// RunPrune begins the operation that prunes.
func (s *pruneService) RunPrune(ctx context.Context, req *mgmtv1.RunPruneRequest) (
	*mgmtv1.RunPruneResponse, error) {
	request := s.s.pruneFromProto(req.GetSpec())
	request.options.Approved = req.GetApprovedDigest()
	c, p, err := s.s.preparePrune(ctx, request)
	if err != nil {
		return nil, err
	}
	run, err := s.s.beginPrune(ctx, c, p, "")
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunPruneResponse{Operation: operationToProto(run.begun)}, nil
}

// ParseAge reads a duration of weeks, days and what Go's durations have: "30d", "2w", "1d12h",
// "90m".
func ParseAge(s string) (time.Duration, error) { return retention.ParseAge(s) }

// MinGrace is the shortest grace that a prune accepts.
const MinGrace = retention.MinGrace
