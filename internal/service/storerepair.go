package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type repairService struct {
	mgmtv1.UnimplementedStoreRepairServiceServer
	s *Server
}

var repairStates = map[store.RepairState]mgmtv1.RepairState{
	store.RepairPossible:  mgmtv1.RepairState_REPAIR_STATE_POSSIBLE,
	store.RepairPruned:    mgmtv1.RepairState_REPAIR_STATE_PRUNED,
	store.RepairLost:      mgmtv1.RepairState_REPAIR_STATE_LOST,
	store.RepairUndeleted: mgmtv1.RepairState_REPAIR_STATE_UNDELETED,
	store.RepairCopied:    mgmtv1.RepairState_REPAIR_STATE_COPIED,
	store.RepairFailed:    mgmtv1.RepairState_REPAIR_STATE_FAILED,
}

// PlanRepair implements the API.
func (s *repairService) PlanRepair(req *mgmtv1.PlanRepairRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanRepairResponse]) error {
	st, err := s.s.openStore(stream.Context(), req.GetLocation(), nil)
	if err != nil {
		return err
	}
	send := func(summary *mgmtv1.RepairSummary) error {
		return stream.Send(&mgmtv1.PlanRepairResponse{
			Item: &mgmtv1.PlanRepairResponse_Summary{Summary: summary}})
	}
	plan, err := planRepair(stream.Context(), st, send)
	if err != nil {
		return err
	}
	for _, r := range plan.Repairs {
		if err := stream.Send(&mgmtv1.PlanRepairResponse{Item: &mgmtv1.PlanRepairResponse_Key{
			Key: repairKey(r)}}); err != nil {
			return err
		}
	}
	return nil
}

// RunRepair implements the API.
func (s *repairService) RunRepair(req *mgmtv1.RunRepairRequest,
	stream grpc.ServerStreamingServer[mgmtv1.RunRepairResponse]) error {
	location, err := s.s.location(req.GetLocation())
	if err != nil {
		return err
	}
	// A prune that listed before removes what the repair brings back.
	if !s.s.claimPrune(location.Name) {
		return &Error{Reason: ReasonLocked, Message: "a prune or a repair of this location is running",
			Hint: "wait for it; a list of the operations shows it", HintKey: object.HintOperations}
	}
	defer s.s.releasePrune(location.Name)
	st, err := s.s.openStore(stream.Context(), req.GetLocation(), nil)
	if err != nil {
		return err
	}
	plan, err := planRepair(stream.Context(), st, func(summary *mgmtv1.RepairSummary) error {
		return stream.Send(&mgmtv1.RunRepairResponse{
			Item: &mgmtv1.RunRepairResponse_Summary{Summary: summary}})
	})
	if err != nil {
		return err
	}
	return st.RunRepair(stream.Context(), plan, func(r store.Repair) error {
		return stream.Send(&mgmtv1.RunRepairResponse{Item: &mgmtv1.RunRepairResponse_Key{
			Key: repairKey(r)}})
	})
}

// progressKeys is how many keys are listed from one summary to the next.
const progressKeys = 1000

// planRepair plans, and sends summaries: as it goes, and a last one of the whole plan.
func planRepair(ctx context.Context, st *store.Store, send func(*mgmtv1.RepairSummary) error) (
	*store.RepairPlan, error) {
	plan, err := st.PlanRepair(ctx, func(examined int) error {
		if examined%progressKeys != 0 {
			return nil
		}
		return send(&mgmtv1.RepairSummary{Versioned: true, Examined: int64(examined)})
	})
	if err != nil {
		return nil, err
	}
	return plan, send(&mgmtv1.RepairSummary{Versioned: plan.Versioned,
		Examined: int64(plan.Examined)})
}

func repairKey(r store.Repair) *mgmtv1.RepairKey {
	k := &mgmtv1.RepairKey{Key: r.Key, Hidden: r.Hidden, State: repairStates[r.State],
		Reason: r.Reason, Versions: int64(r.Versions)}
	for _, kind := range storeKinds {
		if kind.class == r.Class {
			k.Kind = kind.kind
		}
	}
	if !r.Good.Modified.IsZero() {
		k.GoodTime = timestamppb.New(r.Good.Modified)
	}
	return k
}
