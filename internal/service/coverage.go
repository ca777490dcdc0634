package service

import (
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
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
		only := cut.Graph.CapturedOnly(n)
		if only {
			why += "; it is not restored: nothing is known of its kind"
		}
		if n.Unit == "" && !n.Shared {
			why += "; no-unit: no workload cluster needs it"
		}
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(n.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_INCLUDED, Reason: why, Unit: n.Unit, CapturedOnly: only})
	}
	leave := func(r object.Ref, unit, reason string) {
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(r), Unit: unit,
			Coverage: mgmtv1.Coverage_COVERAGE_LEFT_OUT, Reason: reason})
	}
	for _, r := range cut.LeftOut {
		leave(r, "", "nothing captured owns it, names it or is named by its labels")
	}
	for _, n := range cut.NotSelected {
		leave(n.Ref, "", "no workload cluster that the selector selects needs it")
	}
	for _, o := range cut.Omitted {
		leave(o.Ref, o.Unit, fmt.Sprintf("it has more than %d owners or references",
			capture.MaxReferences))
	}
	for _, k := range cut.Unread {
		leave(object.Ref{Group: k.Group, Kind: k.Kind}, "", "whether objects of the kind belong to "+
			"workload clusters is not known: "+k.Reason)
	}
	missing := slices.SortedStableFunc(slices.Values(cut.Graph.Missing),
		func(a, b graph.Missing) int { return object.CompareRefs(a.By, b.By) })
	for _, m := range missing {
		list = append(list, &mgmtv1.ExplainCoverageResponse{Ref: refToProto(m.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_MISSING, NeededBy: refToProto(m.By), Field: m.Field,
			Reason: fmt.Sprintf("%s needs it (%s)", m.By, m.Field), Unit: cut.Graph.Node(m.By).Unit})
	}
	return list
}
