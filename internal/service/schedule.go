package service

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/schedule"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type scheduleService struct {
	mgmtv1.UnimplementedScheduleServiceServer
	s *Server
}

// scheduler returns the daemon's; a standalone server has none.
func (s *scheduleService) scheduler() (*schedule.Scheduler, error) {
	if s.s.scheduler == nil {
		return nil, &Error{Reason: ReasonUnsupported, Message: "schedules need a daemon",
			Hint:    "start mgmtd, or take snapshots by a timer of your system",
			HintKey: object.HintSnapshotCreate}
	}
	return s.s.scheduler, nil
}

func (s *scheduleService) ListSchedules(context.Context, *mgmtv1.ListSchedulesRequest) (
	*mgmtv1.ListSchedulesResponse, error) {
	r, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.ListSchedulesResponse{}
	for _, status := range r.List() {
		resp.Schedules = append(resp.Schedules, scheduleToProto(status))
	}
	return resp, nil
}

func (s *scheduleService) PauseSchedule(ctx context.Context, req *mgmtv1.PauseScheduleRequest) (
	*mgmtv1.PauseScheduleResponse, error) {
	status, err := s.setPaused(ctx, req.GetName(), true)
	if err != nil {
		return nil, err
	}
	return &mgmtv1.PauseScheduleResponse{Schedule: status}, nil
}

func (s *scheduleService) ResumeSchedule(ctx context.Context, req *mgmtv1.ResumeScheduleRequest) (
	*mgmtv1.ResumeScheduleResponse, error) {
	status, err := s.setPaused(ctx, req.GetName(), false)
	if err != nil {
		return nil, err
	}
	return &mgmtv1.ResumeScheduleResponse{Schedule: status}, nil
}

func (s *scheduleService) setPaused(ctx context.Context, name string, paused bool) (
	*mgmtv1.Schedule, error) {
	r, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	status, err := r.SetPaused(ctx, name, paused)
	if err != nil {
		return nil, err
	}
	return scheduleToProto(status), nil
}

func (s *scheduleService) RunSchedule(ctx context.Context, req *mgmtv1.RunScheduleRequest) (
	*mgmtv1.RunScheduleResponse, error) {
	r, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	op, err := r.RunNow(ctx, req.GetName())
	if running, ok := errors.AsType[*schedule.RunningError](err); ok {
		return nil, &Error{Reason: ReasonLocked, Message: err.Error(),
			Hint: "wait for operation " + string(running.Operation), HintKey: object.HintWatch, err: err}
	}
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunScheduleResponse{Operation: operationToProto(op)}, nil
}

func scheduleToProto(s schedule.Status) *mgmtv1.Schedule {
	p := &mgmtv1.Schedule{
		Name: s.Name, Cron: s.Cron, Source: s.Source, Namespaces: s.Namespaces, Location: s.Location,
		Paused: s.Paused, LastOperation: string(s.LastOperation), LastError: s.LastError,
		Selector: s.Selector,
		Skipped:  s.Skipped, Overdue: s.Overdue, LastTime: timeToProto(s.LastRun),
		LastSuccessTime: timeToProto(s.LastSuccess), NewestTime: timeToProto(s.Newest),
	}
	if !s.Paused {
		p.NextTime = timeToProto(s.Due)
	}
	return p
}

// timeToProto returns nil for the zero time.
func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
