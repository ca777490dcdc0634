package service

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// pieceBytes is how much of an object one message has. Clients of gRPC take messages of up to
	// 4 MiB, and a store holds objects of up to 16 MiB.
	pieceBytes = 1 << 20
	// progressObjects is how many objects are read from one message about that to the next.
	progressObjects = 1000
)

// ExtractObjects implements the API.
func (s *snapshotService) ExtractObjects(req *mgmtv1.ExtractObjectsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ExtractObjectsResponse]) error {
	ctx := stream.Context()
	filter, err := filterFromProto(req.GetFilter())
	if err != nil {
		return err
	}
	version, err := s.openNamed(ctx, req)
	if err != nil {
		return err
	}
	nodes, omitted, err := selectObjects(version.Snapshot, filter)
	if err != nil {
		return err
	}
	x := &extraction{req: req, stream: stream}
	if err := x.load(ctx, version.Snapshot, nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := x.send(n); err != nil {
			return err
		}
	}
	for _, o := range omitted {
		if err := x.sendObject(&mgmtv1.ExtractedObject{Ref: refToProto(o.Ref), Unit: o.Unit,
			Omitted: true}); err != nil {
			return err
		}
	}
	return nil
}

// extraction is one answer to ExtractObjects.
type extraction struct {
	req      *mgmtv1.ExtractObjectsRequest
	stream   grpc.ServerStreamingServer[mgmtv1.ExtractObjectsResponse]
	contents *snapshot.Contents
}

// load reads the objects, which are sent by ref, while packs hold them in no order. They are in
// Contents until they are sent.
func (x *extraction) load(ctx context.Context, s *snapshot.Snapshot, nodes []*graph.Node) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // packs are read side by side, a stream takes one message at a time
	var err error
	x.contents, err = s.Load(ctx, nodes, func(done, total int64) {
		if done%progressObjects != 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if err := x.stream.Send(&mgmtv1.ExtractObjectsResponse{
			Item: &mgmtv1.ExtractObjectsResponse_Progress{Progress: &mgmtv1.ExtractProgress{Done: done,
				Total: total}}}); err != nil {
			cancel(err)
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// send sends an object in pieces, and drops it.
func (x *extraction) send(n *graph.Node) error {
	body, err := x.contents.Bytes(n.Ref)
	if err != nil {
		return err
	}
	x.contents.Drop(n.Ref)
	gk := n.GroupKind()
	leftOut := snapshot.HasValues(gk) && !x.req.GetWithSecrets()
	if leftOut {
		if body, err = snapshot.WithoutValues(body); err != nil {
			return err
		}
	}
	if x.req.GetForKubectl() {
		if body, err = snapshot.ForKubectl(gk, body); err != nil {
			return err
		}
	}
	for {
		piece := body[:min(len(body), pieceBytes)]
		body = body[len(piece):]
		if err := x.sendObject(&mgmtv1.ExtractedObject{Ref: refToProto(n.Ref), Unit: n.Unit,
			Json: piece, Continued: len(body) > 0, ValuesLeftOut: leftOut}); err != nil {
			return err
		}
		if len(body) == 0 {
			return nil
		}
	}
}

func (x *extraction) sendObject(o *mgmtv1.ExtractedObject) error {
	return x.stream.Send(&mgmtv1.ExtractObjectsResponse{
		Item: &mgmtv1.ExtractObjectsResponse_Object{Object: o}})
}
