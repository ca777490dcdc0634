package service

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func sendRestorePlan(stream grpc.ServerStreamingServer[mgmtv1.PlanRestoreResponse],
	spec *mgmtv1.RestoreSpec, e store.Signed, plan *restore.Plan) error {
	spec = proto.Clone(spec).(*mgmtv1.RestoreSpec)
	if spec.GetReleaseOf() == "" { // which names the snapshot
		spec.Snapshot, spec.At, spec.Source = plan.Snapshot.ID, nil, plan.Snapshot.Source.UID
	}
	header := &mgmtv1.PlanHeader{Snapshot: snapshotToProto(e), Target: plan.Target.Name,
		TargetUid: plan.Target.UID, Spec: spec}
	if err := stream.Send(&mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Header{
		Header: header}}); err != nil {
		return err
	}
	return sendPlanStream(plan, planStream{
		unit: func(u *mgmtv1.PlanUnit) error {
			return stream.Send(&mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Unit{Unit: u}})
		},
		object: func(o *mgmtv1.PlanObject) error {
			return stream.Send(&mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Object{
				Object: o}})
		},
		finding: func(f *mgmtv1.Finding) error {
			return stream.Send(&mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Finding{
				Finding: f}})
		},
		summary: func(s *mgmtv1.PlanSummary) error {
			return stream.Send(&mgmtv1.PlanRestoreResponse{Item: &mgmtv1.PlanRestoreResponse_Summary{
				Summary: s}})
		},
	})
}

func sendMovePlan(stream grpc.ServerStreamingServer[mgmtv1.PlanMoveResponse],
	spec *mgmtv1.MoveSpec, plan *move.Plan) error {
	header := &mgmtv1.MoveHeader{Source: plan.Source.Name, SourceUid: plan.Source.UID,
		Target: plan.Target.Name, TargetUid: plan.Target.UID, Spec: spec}
	if err := stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Header{
		Header: header}}); err != nil {
		return err
	}
	return sendPlanStream(&plan.Copy, planStream{
		unit: func(u *mgmtv1.PlanUnit) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Unit{Unit: u}})
		},
		object: func(o *mgmtv1.PlanObject) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Object{Object: o}})
		},
		finding: func(f *mgmtv1.Finding) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Finding{Finding: f}})
		},
		summary: func(s *mgmtv1.PlanSummary) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Summary{Summary: s}})
		},
	})
}

// planStream sends the parts that plans of restores and plans of moves have in common.
type planStream struct {
	unit    func(*mgmtv1.PlanUnit) error
	object  func(*mgmtv1.PlanObject) error
	finding func(*mgmtv1.Finding) error
	summary func(*mgmtv1.PlanSummary) error
}

func sendPlanStream(plan *restore.Plan, to planStream) error {
	parts := append([]restore.Unit{plan.Shared}, plan.Units...)
	for _, u := range parts {
		unit := &mgmtv1.PlanUnit{Name: u.Name, Objects: int64(len(u.Objects)),
			Machines: int64(u.Machines), StaysPaused: u.StaysPaused || u.Held, Blocked: u.Blocked}
		if err := to.unit(unit); err != nil {
			return err
		}
	}
	for _, u := range parts {
		for _, o := range u.Objects {
			if err := to.object(planObjectToProto(u.Name, o)); err != nil {
				return err
			}
		}
	}
	for _, f := range plan.Findings {
		if err := to.finding(findingToProto(f)); err != nil {
			return err
		}
	}
	create, adopt, skip, blocked := plan.Counts()
	return to.summary(&mgmtv1.PlanSummary{
		Digest: plan.Digest(), Create: int64(create), Adopt: int64(adopt), Skip: int64(skip),
		BlockedUnits: int64(blocked), Blocked: plan.Blocked,
	})
}
