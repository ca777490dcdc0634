package service

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// ListObjects implements the API.
func (s *snapshotService) ListObjects(req *mgmtv1.ListObjectsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ListObjectsResponse]) error {
	ctx := stream.Context()
	filter, err := filterFromProto(req.GetFilter())
	if err != nil {
		return err
	}
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return err
	}
	version, err := openVersion(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetId(),
		scope: req.GetScope()}, s.s.cfg.Rows)
	if err != nil {
		return err
	}
	nodes, omitted, err := selectObjects(version.Snapshot, filter)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := stream.Send(objectToProto(n)); err != nil {
			return err
		}
	}
	for _, o := range omitted {
		if err := stream.Send(&mgmtv1.ListObjectsResponse{Ref: refToProto(o.Ref), Unit: o.Unit,
			Omitted: true}); err != nil {
			return err
		}
	}
	return nil
}

// filterFromProto reads a filter. Errors are usage errors.
func filterFromProto(p *mgmtv1.ObjectFilter) (snapshot.Filter, error) {
	f := snapshot.Filter{Namespaces: p.GetNamespaces()}
	for _, text := range p.GetKinds() {
		kind, err := kindFromProto(text)
		if err != nil {
			return snapshot.Filter{}, err
		}
		f.Kinds = append(f.Kinds, kind)
	}
	for _, text := range p.GetWorkloads() {
		key, err := object.ParseKey(text)
		if err != nil {
			return snapshot.Filter{}, &Error{Reason: ReasonUsage, Message: "workload cluster: " +
				err.Error()}
		}
		f.Workloads = append(f.Workloads, key)
	}
	return f, nil
}

func kindFromProto(text string) (snapshot.KindName, error) {
	kind, err := snapshot.ParseKindName(text)
	if err != nil {
		return snapshot.KindName{}, &Error{Reason: ReasonUsage, Message: err.Error()}
	}
	return kind, nil
}

// selectObjects returns the objects that pass a filter. A *restore.SelectionError names a namespace
// or a workload cluster that the snapshot does not have.
func selectObjects(s *snapshot.Snapshot, f snapshot.Filter) ([]*graph.Node, []graph.Omitted,
	error) {
	if _, err := restore.Nodes(s, restore.Spec{Selection: restore.Selection{
		Namespaces: f.Namespaces, Workloads: f.Workloads}}); err != nil {
		return nil, nil, err
	}
	nodes, omitted := s.Objects(f)
	return nodes, omitted, nil
}

func objectToProto(n *graph.Node) *mgmtv1.ListObjectsResponse {
	k := kube.Kind{GroupKind: n.GroupKind(), Version: n.Version}
	return &mgmtv1.ListObjectsResponse{Ref: refToProto(n.Ref), Unit: n.Unit, Shared: n.Shared,
		Size: int64(n.Size), Paused: n.Paused, Deleting: n.Deleting, ApiVersion: k.APIVersion(),
		Uid: n.UID, ResourceVersion: n.ResourceVersion}
}

// GetObject implements the API.
func (s *snapshotService) GetObject(ctx context.Context, req *mgmtv1.GetObjectRequest) (
	*mgmtv1.GetObjectResponse, error) {
	if req.GetKind() == "" || req.GetName() == "" {
		return nil, &Error{Reason: ReasonUsage, Message: "an object is named by its kind and its name"}
	}
	kind, err := kindFromProto(req.GetKind())
	if err != nil {
		return nil, err
	}
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return nil, err
	}
	version, err := openVersion(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetId(),
		scope: req.GetScope()}, s.s.cfg.Rows)
	if err != nil {
		return nil, err
	}
	node, err := oneObject(version.Snapshot, kind, req)
	if err != nil {
		return nil, err
	}
	contents, err := version.Load(ctx, []*graph.Node{node}, nil)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.GetObjectResponse{Ref: refToProto(node.Ref), Unit: node.Unit}
	if resp.Json, err = contents.Bytes(node.Ref); err != nil {
		return nil, err
	}
	if snapshot.HasValues(node.GroupKind()) && !req.GetWithSecrets() {
		resp.ValuesLeftOut = true
		resp.Json, err = snapshot.WithoutValues(resp.GetJson())
	}
	return resp, err
}

// oneObject returns the one object that a request names.
func oneObject(s *snapshot.Snapshot, kind snapshot.KindName, req *mgmtv1.GetObjectRequest) (
	*graph.Node, error) {
	key := object.Key{Namespace: req.GetNamespace(), Name: req.GetName()}
	nodes := s.Named(kind, key)
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	switch len(nodes) {
	case 1:
		return nodes[0], nil
	case 0:
		message := fmt.Sprintf("snapshot %s holds no %s %s", s.Envelope.ID, req.GetKind(), name)
		for _, o := range s.Omitted {
			if kind.Fits(o.GroupKind()) && o.Namespace == key.Namespace && o.Name == key.Name {
				message = fmt.Sprintf("snapshot %s left %s out: it had too many owners or references",
					s.Envelope.ID, o.Ref)
			}
		}
		return nil, &Error{Reason: ReasonNotFound, Message: message,
			Hint: "list what the snapshot holds", HintKey: object.HintObjects}
	default:
		return nil, &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("%d kinds %s have an object %s",
			len(nodes), req.GetKind(), name), Hint: fmt.Sprintf("name one of %s, %s",
			nodes[0].GroupKind(), nodes[1].GroupKind())}
	}
}
