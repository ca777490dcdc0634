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
	version, err := s.openNamed(ctx, req)
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
	for _, o := range p.GetObjects() {
		name, err := objectNameFromProto(o)
		if err != nil {
			return snapshot.Filter{}, err
		}
		f.Objects = append(f.Objects, name)
	}
	return f, nil
}

// namedObject is how requests name an object.
type namedObject interface {
	GetKind() string
	GetNamespace() string
	GetName() string
}

// objectNameFromProto reads the name of an object. Errors are usage errors.
func objectNameFromProto(o namedObject) (snapshot.ObjectName, error) {
	if o.GetKind() == "" || o.GetName() == "" {
		return snapshot.ObjectName{}, &Error{Reason: ReasonUsage, Message: "an object is named by its " +
			"kind and its name"}
	}
	kind, err := kindFromProto(o.GetKind())
	return snapshot.ObjectName{Kind: kind, Key: object.Key{Namespace: o.GetNamespace(),
		Name: o.GetName()}}, err
}

func kindFromProto(text string) (snapshot.KindName, error) {
	kind, err := snapshot.ParseKindName(text)
	if err != nil {
		return snapshot.KindName{}, &Error{Reason: ReasonUsage, Message: err.Error()}
	}
	return kind, nil
}

// selectObjects returns the objects that pass a filter. A *restore.SelectionError names a namespace
// or a workload cluster that the snapshot does not have; an object that it does not have is an
// *Error.
func selectObjects(s *snapshot.Snapshot, f snapshot.Filter) ([]*graph.Node, []graph.Omitted,
	error) {
	if _, err := restore.Nodes(s, restore.Spec{Selection: restore.Selection{
		Namespaces: f.Namespaces, Workloads: f.Workloads}}); err != nil {
		return nil, nil, err
	}
	for _, name := range f.Objects {
		if nodes, omitted := s.Named(name); len(nodes)+len(omitted) == 0 {
			return nil, nil, notHeld(s, name)
		}
	}
	nodes, omitted := s.Objects(f)
	return nodes, omitted, nil
}

// notHeld is the error about an object that a snapshot does not hold.
func notHeld(s *snapshot.Snapshot, name snapshot.ObjectName) *Error {
	return &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("snapshot %s holds no %s",
		s.Envelope.ID, name), Hint: "list what the snapshot holds", HintKey: object.HintObjects}
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
	name, err := objectNameFromProto(req)
	if err != nil {
		return nil, err
	}
	version, err := s.openNamed(ctx, req)
	if err != nil {
		return nil, err
	}
	node, err := oneObject(version.Snapshot, name)
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

// oneObject returns the one object that a name fits.
func oneObject(s *snapshot.Snapshot, name snapshot.ObjectName) (*graph.Node, error) {
	nodes, omitted := s.Named(name)
	switch {
	case len(nodes) == 1:
		return nodes[0], nil
	case len(nodes) > 1:
		return nil, &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("%d kinds have an object %s",
			len(nodes), name), Hint: fmt.Sprintf("name one of %s, %s", nodes[0].GroupKind(),
			nodes[1].GroupKind())}
	case len(omitted) > 0:
		err := notHeld(s, name)
		err.Message = fmt.Sprintf("snapshot %s left %s out: it had too many owners or references",
			s.Envelope.ID, omitted[0].Ref)
		return nil, err
	default:
		return nil, notHeld(s, name)
	}
}
