package service

import (
	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/restore"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// GraphSnapshot implements the API.
func (s *snapshotService) GraphSnapshot(req *mgmtv1.GraphSnapshotRequest,
	stream grpc.ServerStreamingServer[mgmtv1.GraphSnapshotResponse]) error {
	ctx := stream.Context()
	selection, err := selectionFromProto(req.GetSelection())
	if err != nil {
		return err
	}
	version, err := s.openNamed(ctx, req)
	if err != nil {
		return err
	}
	nodes, err := restore.Nodes(version.Snapshot, restore.Spec{Selection: selection})
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := stream.Send(&mgmtv1.GraphSnapshotResponse{Ref: refToProto(n.Ref), Unit: n.Unit,
			Shared: n.Shared, Edges: edgesOf(version.Snapshot.Graph, n)}); err != nil {
			return err
		}
	}
	return nil
}

// edgesOf returns the edges from a node, without those to what a selection left out. Graph.Missing
// lists the same edges as missing.
func edgesOf(g *graph.Graph, n *graph.Node) []*mgmtv1.GraphEdge {
	var edges []*mgmtv1.GraphEdge
	for _, o := range n.Owners {
		if o.LeftOut {
			continue
		}
		edges = append(edges, &mgmtv1.GraphEdge{To: refToProto(o.Ref), Owner: true,
			Field: "metadata.ownerReferences", Missing: g.Owner(o) == nil && !g.CapturedOnly(n)})
	}
	for _, need := range n.Needs {
		missing := g.Node(need.Ref) == nil
		if missing && (need.Optional || need.Back) {
			continue
		}
		edges = append(edges, &mgmtv1.GraphEdge{To: refToProto(need.Ref), Field: need.Field,
			Missing: missing})
	}
	return edges
}
