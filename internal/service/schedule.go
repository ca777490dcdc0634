package service

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type scheduleService struct {
	mgmtv1.UnimplementedScheduleServiceServer
	s *Server
}

// scheduler returns the daemon's; without one there are no schedules.
func (s *scheduleService) scheduler() (*scheduler, error) {
	if s.s.scheduler == nil {
		return nil, &Error{Reason: ReasonUnsupported, Message: "schedules need a daemon",
			Hint: "start mgmtd, or run mgmtctl snapshot create by a timer of your system"}
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
	for _, d := range r.list {
		resp.Schedules = append(resp.Schedules, r.toProto(d))
	}
	return resp, nil
}

func (s *scheduleService) PauseSchedule(ctx context.Context, req *mgmtv1.PauseScheduleRequest) (
	*mgmtv1.PauseScheduleResponse, error) {
	r, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	d, err := r.setPaused(ctx, req.GetName(), true)
	if err != nil {
		return nil, err
	}
	return &mgmtv1.PauseScheduleResponse{Schedule: r.toProto(d)}, nil
}

func (s *scheduleService) ResumeSchedule(ctx context.Context, req *mgmtv1.ResumeScheduleRequest) (
	*mgmtv1.ResumeScheduleResponse, error) {
	r, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	d, err := r.setPaused(ctx, req.GetName(), false)
	if err != nil {
		return nil, err
	}
	return &mgmtv1.ResumeScheduleResponse{Schedule: r.toProto(d)}, nil
}

func (s *scheduleService) RunSchedule(ctx context.Context, req *mgmtv1.RunScheduleRequest) (
	*mgmtv1.RunScheduleResponse, error) {
	r, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	op, err := r.runNow(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunScheduleResponse{Operation: op}, nil
}

func (r *scheduler) toProto(d *scheduled) *mgmtv1.Schedule {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	p := &mgmtv1.Schedule{
		Name: d.Name, Cron: d.Cron, Source: d.Source, Namespaces: d.Namespaces, Location: d.Location,
		Paused:        d.paused(),
		LastOperation: string(d.state.LastOperation), LastError: d.state.LastError, Skipped: d.skipped,
		Overdue:  !d.overdueSince(now).IsZero(),
		LastTime: timeToProto(d.state.LastRun), LastSuccessTime: timeToProto(d.state.LastSuccess),
	}
	if !p.GetPaused() {
		p.NextTime = timeToProto(d.due)
	}
	return p
}

// timeToProto leaves out a time that never was.
func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
