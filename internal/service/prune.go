package service

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/retention"
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

// PlanPrune implements the API.
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
	return sendPrunePlan(stream, p.options.Policy, plan)
}

func sendPrunePlan(stream grpc.ServerStreamingServer[mgmtv1.PlanPruneResponse],
	policy retention.Policy, plan *retention.Plan) error {
	summary := &mgmtv1.PruneSummary{
		Frees: amountToProto(plan.Frees), Waits: amountToProto(plan.Waits), Blocked: plan.Blocked,
		Time: timestamppb.New(plan.Now), Grace: durationpb.New(plan.Grace),
		Retention: policyToProto(policy),
	}
	for _, v := range plan.Snapshots {
		if v.Goes() {
			summary.Removed++
		} else {
			summary.Kept++
		}
		if err := stream.Send(&mgmtv1.PlanPruneResponse{Item: &mgmtv1.PlanPruneResponse_Snapshot{
			Snapshot: prunedToProto(v)}}); err != nil {
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

func prunedToProto(v retention.Verdict) *mgmtv1.PrunedSnapshot {
	p := &mgmtv1.PrunedSnapshot{}
	for _, r := range v.Reasons {
		p.Keep = append(p.Keep, r.String())
	}
	if v.Envelope != nil {
		p.Snapshot = snapshotToProto(*v.Envelope)
	} else {
		p.Snapshot = damagedToProto(v.Key, v.Err)
	}
	p.Snapshot.Pinned = v.Pinned
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

// ParseAge reads a duration of weeks and days and what Go's durations have: "30d", "2w", "1d12h",
// "90m".
func ParseAge(s string) (time.Duration, error) { return retention.ParseAge(s) }

// MinGrace is the shortest grace that a prune takes.
const MinGrace = retention.MinGrace
