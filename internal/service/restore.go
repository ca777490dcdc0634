package service

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/restore"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type restoreService struct {
	mgmtv1.UnimplementedRestoreServiceServer
	s *Server
}

// PlanRestore implements the API.
func (r *restoreService) PlanRestore(req *mgmtv1.PlanRestoreRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanRestoreResponse]) error {
	ctx := stream.Context()
	request, err := restoreRequestFromProto(req)
	if err != nil {
		return err
	}
	o, err := r.s.openRestore(ctx, &request, req.GetIdentity())
	if err != nil {
		return err
	}
	plan, _, err := o.plan(ctx, request.spec, nil)
	if err != nil {
		return err
	}
	return sendRestorePlan(stream, req.GetSpec(), o.signed, plan)
}

// RunRestore implements the API.
func (r *restoreService) RunRestore(ctx context.Context, req *mgmtv1.RunRestoreRequest) (
	*mgmtv1.RunRestoreResponse, error) {
	request, err := restoreRequestFromProto(req)
	if err != nil {
		return nil, err
	}
	o, err := r.s.openRestore(ctx, &request, req.GetIdentity())
	if err != nil {
		return nil, err
	}
	run, err := r.s.beginRestore(ctx, o, request.spec, tuningFromProto(req.GetTuning()),
		req.GetPlanDigest())
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunRestoreResponse{Operation: operationToProto(run.begun)}, nil
}

// restoreRequest names what to restore. All but the spec are names, which may be empty where there
// is only one.
type restoreRequest struct {
	location, target string
	snapshot         snapshotRef
	atLeast          int64 // sequence number that the snapshot must have; 0 for any
	// releaseOf names a finished restore that left everything paused, and is to be released. It
	// decides all but what the operator vouches for and accepts.
	releaseOf string
	spec      restore.Spec
	modifiers *modify.Document
}

// restoreRequestFromProto reads a request. Errors are usage errors.
func restoreRequestFromProto(req interface {
	GetSpec() *mgmtv1.RestoreSpec
	GetResourceModifiers() []byte
}) (restoreRequest, error) {
	request, err := restoreFromProto(req.GetSpec())
	if err == nil {
		request.modifiers, err = modify.Parse(req.GetResourceModifiers())
	}
	return request, err
}

// restoreFromProto reads what is to be restored. Errors are usage errors.
func restoreFromProto(p *mgmtv1.RestoreSpec) (restoreRequest, error) {
	spec, err := specFromProto(p)
	if err != nil {
		return restoreRequest{}, err
	}
	request := restoreRequest{location: p.GetLocation(), target: p.GetTarget(),
		snapshot: snapshotRef{source: p.GetSource(), ref: p.GetSnapshot(), scope: p.GetScope()},
		atLeast:  p.GetAtLeastSequence(), spec: spec, releaseOf: p.GetReleaseOf()}
	if request.releaseOf != "" && !proto.Equal(p, &mgmtv1.RestoreSpec{ReleaseOf: p.GetReleaseOf(),
		SourceIsGone: p.GetSourceIsGone(), ForceCodes: p.GetForceCodes(),
		AcceptDifferences: p.GetAcceptDifferences(), RenewKubeconfigs: p.GetRenewKubeconfigs()}) {
		return restoreRequest{}, &Error{Reason: ReasonUsage,
			Message: "the restore that is released says already what to restore"}
	}
	if at := p.GetAt(); at != nil {
		if request.snapshot.ref != "" {
			return restoreRequest{}, &Error{Reason: ReasonUsage,
				Message: "a snapshot and a time exclude each other"}
		}
		request.snapshot.ref = at.AsTime().Format(time.RFC3339)
	}
	return request, nil
}

// The defaults of RestoreTuning, for help texts. DefaultPostFlight comes with a second for each
// unit released.
const (
	DefaultRestoreConcurrency = restore.DefaultConcurrency
	DefaultMoveConcurrency    = move.DefaultConcurrency
	DefaultMaxPause           = move.DefaultMaxPause
	DefaultMaxFailures        = restore.DefaultMaxFailures
	DefaultPostFlight         = restore.DefaultWait
)

func tuningFromProto(t *mgmtv1.RestoreTuning) restore.Tuning {
	tuning := restore.Tuning{Concurrency: int(t.GetConcurrency()), Canary: t.GetCanary(),
		MaxFailures: DefaultMaxFailures, Observe: t.GetObserve().AsDuration(),
		PostFlight: t.GetPostFlightTimeout().AsDuration()}
	if t != nil && t.MaxFailures != nil {
		tuning.MaxFailures = int(t.GetMaxFailures())
	}
	return tuning
}
