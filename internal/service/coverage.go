package service

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// ExplainCoverage implements the API.
func (s *snapshotService) ExplainCoverage(req *mgmtv1.ExplainCoverageRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ExplainCoverageResponse]) error {
	ctx := stream.Context()
	scope, err := scopeOf(req.GetNamespaces(), req.GetSelector())
	if err != nil {
		return err
	}
	source, err := s.s.connect(ctx, sourceSide, req.GetSource())
	if err != nil {
		return err
	}
	cut, err := capture.Exact(ctx, source.Reader(), scope, s.s.cfg.Rows,
		func(*graph.Node, []byte) error { return nil })
	if err != nil {
		return err
	}
	for _, o := range coverageToProto(cut) {
		if err := stream.Send(o); err != nil {
			return err
		}
	}
	return nil
}

// coverageToProto lists what a snapshot would hold, what it would leave out, and what is missing.
func coverageToProto(cut *capture.Cut) []*mgmtv1.ExplainCoverageResponse {
	var list []*mgmtv1.ExplainCoverageResponse
	for _, n := range cut.Graph.Nodes {
		why := n.Why
		if n.Unit == "" && !n.Shared {
			why += "; no-unit: no workload cluster needs it"
		}
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(n.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_INCLUDED, Reason: why, Unit: n.Unit})
	}
	for _, r := range cut.LeftOut {
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(r),
			Coverage: mgmtv1.Coverage_COVERAGE_LEFT_OUT,
			Reason:   "nothing captured owns it, names it or is named by its labels"})
	}
	for _, n := range cut.NotSelected {
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(n.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_LEFT_OUT,
			Reason:   "no workload cluster that the selector selects needs it"})
	}
	for _, o := range cut.Omitted {
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(o.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_LEFT_OUT, Unit: o.Unit,
			Reason: fmt.Sprintf("it has more than %d owners or references", capture.MaxReferences)})
	}
	for _, m := range cut.Graph.Missing {
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(m.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_MISSING,
			Reason:   fmt.Sprintf("%s needs it (%s)", m.By, m.Field), Unit: cut.Graph.Node(m.By).Unit})
	}
	return list
}
