package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// This file has the fake's part of moves, schedules, management clusters and the catalog.

func (f *fake) PlanMove(req *mgmtv1.PlanMoveRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanMoveResponse]) error {
	f.saw(req)
	return sendAll(stream, f.movePlan)
}

func (f *fake) RunMove(ctx context.Context, req *mgmtv1.RunMoveRequest) (*mgmtv1.RunMoveResponse,
	error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.RunMoveResponse{Operation: op}, err
}

func (f *fake) StopOperation(_ context.Context, req *mgmtv1.StopOperationRequest) (
	*mgmtv1.StopOperationResponse, error) {
	f.saw(req)
	return &mgmtv1.StopOperationResponse{Operation: f.operation}, nil
}

func (f *fake) AcceptUnit(_ context.Context, req *mgmtv1.AcceptUnitRequest) (
	*mgmtv1.AcceptUnitResponse, error) {
	f.saw(req)
	return &mgmtv1.AcceptUnitResponse{Operation: f.operation}, nil
}

func (f *fake) RollbackOperation(ctx context.Context, req *mgmtv1.RollbackOperationRequest) (
	*mgmtv1.RollbackOperationResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.RollbackOperationResponse{Operation: op}, err
}

func (f *fake) PlanRollbackFromMarks(_ context.Context,
	req *mgmtv1.PlanRollbackFromMarksRequest) (*mgmtv1.PlanRollbackFromMarksResponse, error) {
	f.saw(req)
	return f.marksPlan, nil
}

func (f *fake) RollbackFromMarks(ctx context.Context, req *mgmtv1.RollbackFromMarksRequest) (
	*mgmtv1.RollbackFromMarksResponse, error) {
	op, err := f.start(ctx, req)
	return &mgmtv1.RollbackFromMarksResponse{Operation: op}, err
}

func (f *fake) ListSchedules(_ context.Context, req *mgmtv1.ListSchedulesRequest) (
	*mgmtv1.ListSchedulesResponse, error) {
	f.saw(req)
	return &mgmtv1.ListSchedulesResponse{Schedules: f.schedules}, nil
}

func (f *fake) schedule(name string) (*mgmtv1.Schedule, error) {
	for _, s := range f.schedules {
		if s.GetName() == name {
			return s, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "no schedule is named %q", name)
}

func (f *fake) PauseSchedule(_ context.Context, req *mgmtv1.PauseScheduleRequest) (
	*mgmtv1.PauseScheduleResponse, error) {
	f.saw(req)
	s, err := f.schedule(req.GetName())
	return &mgmtv1.PauseScheduleResponse{Schedule: s}, err
}

func (f *fake) ResumeSchedule(_ context.Context, req *mgmtv1.ResumeScheduleRequest) (
	*mgmtv1.ResumeScheduleResponse, error) {
	f.saw(req)
	s, err := f.schedule(req.GetName())
	return &mgmtv1.ResumeScheduleResponse{Schedule: s}, err
}

func (f *fake) RunSchedule(ctx context.Context, req *mgmtv1.RunScheduleRequest) (
	*mgmtv1.RunScheduleResponse, error) {
	if _, err := f.schedule(req.GetName()); err != nil {
		return nil, err
	}
	op, err := f.start(ctx, req)
	return &mgmtv1.RunScheduleResponse{Operation: op}, err
}

func (f *fake) ListMgmts(_ context.Context, req *mgmtv1.ListMgmtsRequest) (
	*mgmtv1.ListMgmtsResponse, error) {
	f.saw(req)
	return &mgmtv1.ListMgmtsResponse{Mgmts: f.mgmts}, nil
}

func (f *fake) CheckMgmt(_ context.Context, req *mgmtv1.CheckMgmtRequest) (
	*mgmtv1.CheckMgmtResponse, error) {
	f.saw(req)
	return &mgmtv1.CheckMgmtResponse{Mgmt: f.mgmts[0], Findings: f.findings}, nil
}

func (f *fake) FenceMgmt(_ context.Context, req *mgmtv1.FenceMgmtRequest) (
	*mgmtv1.FenceMgmtResponse, error) {
	f.saw(req)
	resp := &mgmtv1.FenceMgmtResponse{Mgmt: &mgmtv1.Mgmt{Name: "prod"}, Paused: f.fenced,
		Already: f.already}
	if !req.GetDryRun() {
		resp.Findings = f.findings
	}
	return resp, nil
}

func (f *fake) RebuildCatalog(_ context.Context, req *mgmtv1.RebuildCatalogRequest) (
	*mgmtv1.RebuildCatalogResponse, error) {
	f.saw(req)
	return &mgmtv1.RebuildCatalogResponse{Locations: f.rebuilt}, nil
}
