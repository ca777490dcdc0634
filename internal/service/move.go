package service

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type moveService struct {
	mgmtv1.UnimplementedMoveServiceServer
	s *Server
}

// PlanMove implements the API.
func (v *moveService) PlanMove(req *mgmtv1.PlanMoveRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanMoveResponse]) error {
	ctx := stream.Context()
	spec, err := moveSpecFromProto(req.GetSpec())
	if err != nil {
		return err
	}
	modifiers, err := modify.Parse(req.GetResourceModifiers())
	if err != nil {
		return err
	}
	ends, err := v.s.endpoints(ctx, endpointsFromProto(req.GetSpec()), nil, false)
	if err != nil {
		return err
	}
	ends.Modifiers = modifiers
	plan, err := move.NewPlan(ctx, ends, spec)
	if err != nil {
		return err
	}
	return sendMovePlan(stream, req.GetSpec(), plan)
}

// RunMove implements the API.
func (v *moveService) RunMove(ctx context.Context, req *mgmtv1.RunMoveRequest) (
	*mgmtv1.RunMoveResponse, error) {
	spec, err := moveSpecFromProto(req.GetSpec())
	if err != nil {
		return nil, err
	}
	modifiers, err := modify.Parse(req.GetResourceModifiers())
	if err != nil {
		return nil, err
	}
	c, err := v.s.openCatalog(ctx) // before the store is made
	if err != nil {
		return nil, err
	}
	ends, err := v.s.endpoints(ctx, endpointsFromProto(req.GetSpec()), nil, true)
	if err != nil {
		return nil, err
	}
	ends.Modifiers = modifiers
	run, err := v.s.beginMove(ctx, c, ends, move.Request{Spec: spec,
		Tuning: moveTuningFromProto(req.GetTuning()), Digest: req.GetPlanDigest()})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunMoveResponse{Operation: operationToProto(run.begun)}, nil
}

func moveSpecFromProto(p *mgmtv1.MoveSpec) (move.Spec, error) {
	selection, err := selectionFromProto(p.GetSelection())
	if err != nil {
		return move.Spec{}, err
	}
	dropOwners, err := refsFromProto(p.GetDropOwners())
	if err != nil {
		return move.Spec{}, err
	}
	forced, err := forcedFromProto(object.Moves, p.GetForceCodes())
	if err != nil {
		return move.Spec{}, err
	}
	accept, err := acceptedFromProto(p.GetAcceptDifferences())
	return move.Spec{Selection: selection, Force: forced,
		NoFence: p.GetNoFence(), DropOwners: dropOwners,
		ManagedFields: managedFields[p.GetManagedFields()], Accept: accept,
		SuspendGitOps: p.GetSuspendGitops()}, err
}

// moveTuningFromProto is tuningFromProto with what only a move has.
func moveTuningFromProto(t *mgmtv1.RestoreTuning) restore.Tuning {
	tuning := tuningFromProto(t)
	tuning.MaxPause = DefaultMaxPause
	if limit := t.GetMaxPause(); limit != nil {
		tuning.MaxPause = limit.AsDuration()
	}
	return tuning
}

func endpointsFromProto(p *mgmtv1.MoveSpec) endpointNames {
	return endpointNames{source: p.GetSource(), target: p.GetTarget(), location: p.GetLocation()}
}
