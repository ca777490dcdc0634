package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type snapshotService struct {
	mgmtv1.UnimplementedSnapshotServiceServer
	s *Server
}

func (s *snapshotService) CreateSnapshot(ctx context.Context, req *mgmtv1.CreateSnapshotRequest) (
	*mgmtv1.CreateSnapshotResponse, error) {
	ttl := req.GetTtl().AsDuration()
	if ttl < 0 {
		return nil, &Error{Reason: ReasonUsage, Message: "the ttl of the snapshot is negative"}
	}
	run, err := s.s.beginSnapshot(ctx, snapshotRequest{source: req.GetSource(),
		location: req.GetLocation(), namespaces: req.GetNamespaces(), selector: req.GetSelector(),
		full: req.GetFull(), ttl: ttl})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.CreateSnapshotResponse{Operation: operationToProto(run.begun)}, nil
}

// ListSnapshots implements the API.
func (s *snapshotService) ListSnapshots(ctx context.Context, req *mgmtv1.ListSnapshotsRequest) (
	*mgmtv1.ListSnapshotsResponse, error) {
	l, err := snapshotListFromProto(req)
	if err != nil {
		return nil, err
	}
	st, err := s.s.openStore(ctx, req.GetLocation(), nil)
	if err != nil {
		return nil, err
	}
	return s.s.listSnapshots(ctx, st, l)
}

func (s *snapshotService) GetSnapshot(ctx context.Context, req *mgmtv1.GetSnapshotRequest) (
	*mgmtv1.GetSnapshotResponse, error) {
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return nil, err
	}
	e, _, err := findSnapshot(ctx, st, snapshotRef{source: req.GetSource(), ref: req.GetId(),
		scope: req.GetScope()})
	if err != nil {
		return nil, err
	}
	checks, err := st.VerificationKeys(ctx, e.Source.UID)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.GetSnapshotResponse{Snapshot: snapshotToProto(e)}
	if resp.Snapshot.Pinned, err = st.Pinned(ctx, e.Key()); err != nil {
		return nil, err
	}
	if resp.Snapshot.Verified, err = s.s.verification(ctx, st, e,
		checks[e.Key().String()]); err != nil {
		return nil, err
	}
	if st.Encrypted() && len(req.GetIdentity()) == 0 {
		return resp, nil
	}
	if err := mayRead(st, e); err != nil {
		return nil, err
	}
	opened, err := snapshot.Open(ctx, st, e.Envelope, s.s.cfg.Rows)
	if err != nil {
		return nil, err
	}
	resp.Units = summarize(opened.Graph)
	if s := opened.About.Selection; s != nil {
		resp.Selection = &mgmtv1.Selection{Namespaces: s.Namespaces, Selector: s.Selector}
	}
	return resp, nil
}

// summarize counts what is in each unit and, outside of units, in each namespace.
func summarize(g *graph.Graph) []*mgmtv1.UnitSummary {
	byName := map[string]*mgmtv1.UnitSummary{}
	var list []*mgmtv1.UnitSummary
	for _, n := range g.Nodes {
		key := "unit " + n.Unit
		if n.Unit == "" {
			key = n.Namespace
		}
		u := byName[key]
		if u == nil {
			u = &mgmtv1.UnitSummary{Name: n.Unit}
			if n.Unit == "" {
				u.SharedNamespace = n.Namespace
			}
			byName[key] = u
			list = append(list, u)
		}
		u.Objects++
		if n.GroupKind() == capi.Machine {
			u.Machines++
		}
		if n.GroupKind() == capi.Cluster {
			u.WorkloadId, u.Paused = n.WorkloadID, n.Paused
		}
	}
	for _, m := range g.Missing {
		if by := g.Node(m.By); by.Unit != "" {
			u := byName["unit "+by.Unit]
			u.Missing = append(u.Missing, refToProto(m.Ref))
		}
	}
	slices.SortFunc(list, func(a, b *mgmtv1.UnitSummary) int {
		return strings.Compare(a.GetName()+"\x00"+a.GetSharedNamespace(), b.GetName()+"\x00"+
			b.GetSharedNamespace())
	})
	return list
}

func (s *snapshotService) VerifySnapshot(ctx context.Context, req *mgmtv1.VerifySnapshotRequest) (
	*mgmtv1.VerifySnapshotResponse, error) {
	level, ok := verifyLevels[req.GetLevel()]
	if !ok {
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("level %s of verify is not known",
			req.GetLevel()), Hint: "it is structure, sample or full"}
	}
	run, err := s.s.beginVerify(ctx, verifyRequest{
		location: req.GetLocation(), level: level,
		of:      snapshotRef{source: req.GetSource(), ref: req.GetId(), scope: req.GetScope()},
		percent: int(req.GetPercent()), identity: req.GetIdentity(), noRecord: req.GetNoRecord(),
		subset: store.Subset{Part: int(req.GetSubset()), Of: int(req.GetSubsets())},
	})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.VerifySnapshotResponse{Operation: operationToProto(run.begun)}, nil
}
