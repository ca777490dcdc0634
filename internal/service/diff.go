package service

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var changes = map[snapshot.ChangeKind]mgmtv1.Difference{
	snapshot.Added:    mgmtv1.Difference_DIFFERENCE_ADDED,
	snapshot.Removed:  mgmtv1.Difference_DIFFERENCE_REMOVED,
	snapshot.Replaced: mgmtv1.Difference_DIFFERENCE_REPLACED,
	snapshot.Changed:  mgmtv1.Difference_DIFFERENCE_CHANGED,
	snapshot.Touched:  mgmtv1.Difference_DIFFERENCE_TOUCHED,
}

// DiffSnapshots implements the API.
func (s *snapshotService) DiffSnapshots(req *mgmtv1.DiffSnapshotsRequest,
	stream grpc.ServerStreamingServer[mgmtv1.DiffSnapshotsResponse]) error {
	if err := checkDiff(req); err != nil {
		return err
	}
	ctx := stream.Context()
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return err
	}
	from, err := openVersion(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetFrom(),
		scope: req.GetScope()}, s.s.cfg.Rows)
	if err != nil {
		return err
	}
	to, err := s.laterVersion(ctx, st, req, from.Snapshot)
	if err != nil {
		return err
	}
	list, err := snapshot.Compare(ctx, from, to)
	if err != nil {
		return err
	}
	for _, d := range list {
		if !inNamespaces(d.Node.Ref, req.GetNamespaces()) {
			continue
		}
		if err := stream.Send(&mgmtv1.DiffSnapshotsResponse{Ref: refToProto(d.Node.Ref),
			Difference: changes[d.Kind], Paths: d.Paths, Unit: d.Node.Unit}); err != nil {
			return err
		}
	}
	return nil
}

// laterVersion opens the later version of a comparison: a snapshot, or the live source.
func (s *snapshotService) laterVersion(ctx context.Context, st *store.Store,
	req *mgmtv1.DiffSnapshotsRequest, from *snapshot.Snapshot) (snapshot.Version, error) {
	if req.GetLive() {
		return s.liveVersion(ctx, req, from)
	}
	return openVersion(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetTo(),
		scope: req.GetScope()}, s.s.cfg.Rows)
}

// checkDiff refuses a comparison with two other sides, or with none.
func checkDiff(req *mgmtv1.DiffSnapshotsRequest) error {
	if req.GetLive() == (req.GetTo() != "") {
		return &Error{Reason: ReasonUsage, Message: "a snapshot is compared either with another one " +
			"or with the live source", Hint: "name two snapshots, or one and the live source",
			HintKey: object.HintLive}
	}
	return nil
}

// namesSnapshot is a request that names one snapshot of a store.
type namesSnapshot interface {
	GetLocation() string
	GetIdentity() []byte
	GetSource() string
	GetId() string
	GetScope() string
}

// openNamed opens the snapshot that a request names to look into it.
func (s *snapshotService) openNamed(ctx context.Context, r namesSnapshot) (snapshot.Version,
	error) {
	st, err := s.s.openStore(ctx, r.GetLocation(), r.GetIdentity())
	if err != nil {
		return snapshot.Version{}, err
	}
	return openVersion(ctx, st, snapshotRef{source: r.GetSource(), ref: r.GetId(),
		scope: r.GetScope()}, s.s.cfg.Rows)
}

// openVersion opens a snapshot to look into it.
func openVersion(ctx context.Context, st *store.Store, r snapshotRef, rows *capi.Table) (
	snapshot.Version, error) {
	e, _, err := findSnapshot(ctx, st, r)
	if err != nil {
		return snapshot.Version{}, err
	}
	if err := mayRead(st, e); err != nil {
		return snapshot.Version{}, err
	}
	opened, err := snapshot.Open(ctx, st, e.Envelope, rows)
	return snapshot.Version{Snapshot: opened}, err
}

// liveVersion captures the source of a snapshot.
func (s *snapshotService) liveVersion(ctx context.Context, req *mgmtv1.DiffSnapshotsRequest,
	from *snapshot.Snapshot) (snapshot.Version, error) {
	e := from.Envelope
	scope, err := liveScope(req, from)
	if err != nil {
		return snapshot.Version{}, err
	}
	source, err := s.s.connect(ctx, sourceSide, req.GetSource())
	if err != nil {
		return snapshot.Version{}, err
	}
	if source.UID() != e.Source.UID {
		return snapshot.Version{}, &Error{Reason: ReasonUsage, Message: "snapshot " + string(e.ID) +
			" is of another management cluster than " + source.Name(),
			Hint: "name the source of the snapshot", HintKey: object.HintLiveSource}
	}
	o := snapshot.OptionsFor(source, s.s.cfg.Rows)
	o.Scope = scope
	live, contents, err := snapshot.CaptureInMemory(ctx, o)
	return snapshot.Version{Snapshot: live, Contents: contents}, err
}

// liveScope returns what of the live source is compared with a snapshot: what that was asked to
// hold, else the namespaces of the request.
func liveScope(req *mgmtv1.DiffSnapshotsRequest, from *snapshot.Snapshot) (capture.Scope, error) {
	if s := from.About.Selection; s != nil {
		return scopeOf(s.Namespaces, s.Selector)
	}
	if from.Envelope.Partial && len(req.GetNamespaces()) == 0 {
		return capture.Scope{}, &Error{Reason: ReasonUsage, Message: "snapshot " +
			string(from.Envelope.ID) + " holds chosen namespaces only",
			Hint:    "name them: what it was not to hold would seem to be new",
			HintKey: object.HintNamespace}
	}
	return capture.Scope{Namespaces: req.GetNamespaces()}, nil
}

// inNamespaces reports whether an object is in one of the namespaces, or is one of them.
func inNamespaces(r object.Ref, namespaces []string) bool {
	if len(namespaces) == 0 {
		return true
	}
	if r.GroupKind() == kube.NamespaceKind.GroupKind {
		return slices.Contains(namespaces, r.Name)
	}
	return slices.Contains(namespaces, r.Namespace)
}
