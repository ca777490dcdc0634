package service

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type storeService struct {
	mgmtv1.UnimplementedStoreServiceServer
	s *Server
}

// storeKinds are the classes of keys in the order in which they are listed.
var storeKinds = []struct {
	class store.Class
	kind  mgmtv1.StoreKind
}{
	{store.ClassPack, mgmtv1.StoreKind_STORE_KIND_PACK},
	{store.ClassShard, mgmtv1.StoreKind_STORE_KIND_SHARD},
	{store.ClassTree, mgmtv1.StoreKind_STORE_KIND_TREE},
	{store.ClassEnvelope, mgmtv1.StoreKind_STORE_KIND_ENVELOPE},
	{store.ClassPin, mgmtv1.StoreKind_STORE_KIND_PIN},
	{store.ClassVerification, mgmtv1.StoreKind_STORE_KIND_VERIFICATION},
	{store.ClassOwner, mgmtv1.StoreKind_STORE_KIND_OWNER},
	{store.ClassOperation, mgmtv1.StoreKind_STORE_KIND_OPERATION},
	{store.ClassPrune, mgmtv1.StoreKind_STORE_KIND_PRUNE},
	{store.ClassCopying, mgmtv1.StoreKind_STORE_KIND_COPYING},
	{store.ClassOther, mgmtv1.StoreKind_STORE_KIND_OTHER},
}

// GetStats implements the API.
func (s *storeService) GetStats(req *mgmtv1.GetStatsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.GetStatsResponse]) error {
	ctx := stream.Context()
	if req.GetDays() < 0 {
		return &Error{Reason: ReasonUsage, Message: "the number of days is negative"}
	}
	st, err := s.s.openStore(ctx, req.GetLocation(), nil)
	if err != nil {
		return err
	}
	usage, err := retention.Measure(ctx, st)
	if err != nil {
		return err
	}
	for _, piece := range usageToProto(st, usage, req) {
		if err := stream.Send(piece); err != nil {
			return err
		}
	}
	return nil
}

// usageToProto returns the pieces of the stream.
func usageToProto(st *store.Store, u *retention.Usage,
	req *mgmtv1.GetStatsRequest) []*mgmtv1.GetStatsResponse {
	pieces := []*mgmtv1.GetStatsResponse{{Item: &mgmtv1.GetStatsResponse_Store{
		Store: &mgmtv1.StoreStats{StoreId: st.ID(), CreateTime: timestamppb.New(st.Created()),
			Encrypted: st.Encrypted(), Snapshots: int64(len(u.Snapshots)),
			Stored: kindAmounts(u.Stored), Unnamed: storeAmount(u.Unnamed),
			SeveralSources: storeAmount(u.SeveralSources)}}}}
	for _, source := range u.Sources {
		pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Source{
			Source: sourceStats(source)}})
	}
	if req.GetSnapshots() {
		for _, s := range u.Snapshots {
			p := &mgmtv1.SnapshotStats{Alone: storeAmount(s.Alone)}
			if s.Envelope != nil {
				p.Snapshot = snapshotToProto(*s.Envelope)
			} else {
				p.Snapshot = damagedToProto(s.Key, s.Err)
			}
			pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Snapshot{
				Snapshot: p}})
		}
	}
	for _, d := range u.Days[:min(len(u.Days), int(req.GetDays()))] {
		pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Day{
			Day: &mgmtv1.DayStats{Day: d.Day, Written: storeAmount(d.Written)}}})
	}
	for _, f := range u.Findings {
		pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Finding{
			Finding: findingToProto(f)}})
	}
	return pieces
}

func sourceStats(u *retention.SourceUsage) *mgmtv1.SourceStats {
	p := &mgmtv1.SourceStats{Uid: u.UID, Name: u.Name, Snapshots: u.Snapshots,
		Unreadable: u.Unreadable, Stored: kindAmounts(u.Stored), Shared: storeAmount(u.Shared)}
	for _, scope := range u.Scopes {
		p.Scopes = append(p.Scopes, &mgmtv1.StoreScope{Scope: scope.ID, Schedule: scope.Schedule,
			Snapshots: scope.Snapshots, Newest: timestamppb.New(scope.Newest)})
	}
	return p
}

func kindAmounts(stored retention.Amounts) []*mgmtv1.StoreKindAmount {
	var list []*mgmtv1.StoreKindAmount
	for _, k := range storeKinds {
		if a, ok := stored[k.class]; ok {
			list = append(list, &mgmtv1.StoreKindAmount{Kind: k.kind, Stored: storeAmount(a)})
		}
	}
	return list
}

func storeAmount(a retention.Amount) *mgmtv1.StoreAmount {
	return &mgmtv1.StoreAmount{Keys: a.Keys, Bytes: a.Bytes}
}
