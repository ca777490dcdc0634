package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
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
	running, err := s.s.beginSnapshot(ctx, wantedSnapshot{source: req.GetSource(),
		location: req.GetLocation(), namespaces: req.GetNamespaces(), full: req.GetFull(), ttl: ttl})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.CreateSnapshotResponse{Operation: running}, nil
}

// wantedSnapshot is what somebody, or a schedule, wants a snapshot of.
type wantedSnapshot struct {
	source, location string // names
	namespaces       []string
	full             bool // write everything
	ttl              time.Duration
	// schedule is the name of the schedule that wants it, interval how often it does; empty when
	// somebody asked.
	schedule string
	interval time.Duration
	// ended is told how it went, once that is on record; nil tells nobody.
	ended func(err error)
}

// beginSnapshot begins the operation that takes a snapshot.
func (s *Server) beginSnapshot(ctx context.Context, w wantedSnapshot) (*mgmtv1.Operation, error) {
	location, err := s.location(w.location)
	if err != nil {
		return nil, err
	}
	source, err := s.connect(ctx, sourceSide, w.source)
	if err != nil {
		return nil, err
	}
	if o := location.Store; o.SigningKeyFile == "" && !o.Plain {
		return nil, &Error{Reason: ReasonUsage, Message: "no signing key: a restore refuses snapshots " +
			"that are not signed", Hint: "give --signing-key; mgmtctl keygen makes one"}
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	// last: it makes the store when there is none
	st, err := s.openLocation(ctx, location, nil, true)
	if err != nil {
		return nil, err
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindSnapshot, Source: catalog.Side{Name: source.Name(), UID: source.UID()},
		Store: st.ID(), Location: location.Name, Schedule: w.schedule,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.snapshots.attempts.WithLabelValues(w.schedule).Inc()
	ended := w.ended
	if ended == nil {
		ended = func(error) {}
	}
	return s.startThen(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		began := time.Now()
		r, err := takeSnapshot(ctx, c, j, snapshot.Options{
			Source: source.Reader(), SourceName: source.Name(), SourceUID: source.UID(),
			Kubernetes: source.KubernetesVersion(),
			Providers:  source.Providers, Rows: s.cfg.Rows, Store: st, Scope: snapshot.Scope{Namespaces: w.namespaces},
			Interval: w.interval,
			Writer:   s.program(), Progress: j.Progress, State: c.SnapshotState(st.ID(), source.UID()),
			Cache: s.runCache,
			Full:  w.full, TTL: w.ttl,
		})
		s.metrics.snapshotEnded(w.schedule, began, time.Since(began), r, err)
		return err
	}, func(err error) {
		if err == nil && s.verifier != nil {
			s.verifier.taken(location.Name, source.UID())
		}
		ended(err)
		if err == nil && w.schedule != "" {
			s.pruneAfter(w.schedule, location.Name)
		}
	})
}

// program is what envelopes say of who wrote them.
func (s *Server) program() string {
	name := "mgmtctl "
	if s.cfg.Daemon {
		name = "mgmtd "
	}
	// Snapshots of other rows may have other edges of the same objects.
	return strings.TrimSpace(name + s.cfg.Version + " " + s.cfg.Rows.Tag())
}

func takeSnapshot(ctx context.Context, c *catalog.Catalog, j *catalog.Journal, o snapshot.Options) (
	*snapshot.Result, error) {
	r, err := snapshot.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.UpdateOperation(ctx, j.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) }); err != nil {
		return r, err
	}
	if err := c.PutSnapshot(ctx, recordOf(r.Signed)); err != nil {
		return r, err
	}
	var events []catalog.Event
	for _, m := range r.Missing {
		events = append(events, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
			Code: object.CodeMissing, Ref: m.Ref,
			Message: fmt.Sprintf("%s needs it (%s) and it is not in the snapshot", m.By, m.Field),
			Hint:    "mgmtctl snapshot coverage shows why"}))
	}
	if r.NotRemembered != nil {
		events = append(events, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
			Code: object.CodeNotRemembered, Message: r.NotRemembered.Error(),
			Hint: "the next snapshot writes everything; look after the catalog's disk"}))
	}
	return r, j.Emit(ctx, events...)
}

func recordOf(e store.Signed) catalog.SnapshotRecord {
	return catalog.SnapshotRecord{
		StoreID: e.StoreID, Source: e.Source.UID, SourceName: e.Source.Name, ID: string(e.ID),
		Key: e.Key().String(), Time: e.Time,
		ResourceVersion: e.ResourceVersion, Sequence: e.Sequence, Objects: int(e.Counts.Objects),
		Units: int(e.Counts.Units), Missing: int(e.Counts.Missing),
		Bytes: e.Bytes, Tree: string(e.Tree), Partial: e.Partial,
	}
}

func (s *snapshotService) ListSnapshots(ctx context.Context, req *mgmtv1.ListSnapshotsRequest) (
	*mgmtv1.ListSnapshotsResponse, error) {
	st, err := s.s.openStore(ctx, req.GetLocation(), nil)
	if err != nil {
		return nil, err
	}
	keys, err := st.Snapshots(ctx, "")
	if err != nil {
		return nil, err
	}
	checks, err := st.CheckKeys(ctx, "")
	if err != nil {
		return nil, err
	}
	pins, err := st.Pins(ctx, "")
	if err != nil {
		return nil, err
	}
	list := make([]*mgmtv1.Snapshot, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, key := range keys {
		g.Go(func() error {
			e, err := st.GetEnvelope(gctx, key)
			switch {
			case err == nil:
				list[i] = snapshotToProto(e)
				if list[i].Verified, err = s.s.verified(gctx, st, e, checks[key.String()]); err != nil {
					return err
				}
			case gctx.Err() != nil:
				return err
			default:
				list[i] = damagedToProto(key, err)
			}
			list[i].Pinned = pins[key]
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if source := req.GetSource(); source != "" {
		list = slices.DeleteFunc(list, func(p *mgmtv1.Snapshot) bool {
			return p.GetSource() != source &&
				p.GetSourceUid() != source
		})
		if len(list) == 0 && len(keys) > 0 {
			_, err := findSource(ctx, st, source) // says which there are
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(a, b *mgmtv1.Snapshot) int {
		return b.GetTime().AsTime().Compare(
			a.GetTime().AsTime())
	})
	return &mgmtv1.ListSnapshotsResponse{Snapshots: list}, nil
}

// findSource returns the UID of the source that a request names, by name or UID; the only one when
// it names none.
func findSource(ctx context.Context, st *store.Store, name string) (string, error) {
	uids, err := st.Sources(ctx)
	if err != nil {
		return "", err
	}
	if len(uids) == 0 {
		return "", &Error{Reason: ReasonNotFound, Message: "the store holds no snapshots",
			Hint: "take one with mgmtctl snapshot create, or look whether --store names the right place"}
	}
	if slices.Contains(uids, name) {
		return name, nil
	}
	var labels, matches []string
	for _, uid := range uids {
		label := "" // of a source none of whose envelopes can be read
		if key, err := st.Find(ctx, uid, latest); err == nil {
			if e, err := st.GetEnvelope(ctx, key); err == nil {
				label = e.Source.Name
			}
		}
		labels = append(labels, strings.TrimSpace(label+" ("+uid+")"))
		if name == "" || label == name {
			matches = append(matches, uid)
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) == 0:
		return "", &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("the store holds no snapshot "+
			"of source %q", name), Hint: "it holds " + strings.Join(labels, ", ")}
	default:
		return "", &Error{Reason: ReasonAmbiguous, Message: fmt.Sprintf("the store holds snapshots "+
			"of %d sources", len(matches)), Hint: "name one with --source: " + strings.Join(labels, ", ")}
	}
}

// findSnapshot returns the envelope that a request names.
func findSnapshot(ctx context.Context, st *store.Store, source, ref string) (store.Signed, error) {
	uid, err := findSource(ctx, st, source)
	if err != nil {
		return store.Signed{}, err
	}
	if ref == "" {
		ref = latest
	}
	key, err := st.Find(ctx, uid, ref)
	if err != nil {
		return store.Signed{}, err
	}
	return st.GetEnvelope(ctx, key)
}

func (s *snapshotService) GetSnapshot(ctx context.Context, req *mgmtv1.GetSnapshotRequest) (
	*mgmtv1.GetSnapshotResponse, error) {
	st, err := s.s.openStore(ctx, req.GetLocation(), req.GetIdentity())
	if err != nil {
		return nil, err
	}
	e, err := findSnapshot(ctx, st, req.GetSource(), req.GetId())
	if err != nil {
		return nil, err
	}
	checks, err := st.CheckKeys(ctx, e.Source.UID)
	if err != nil {
		return nil, err
	}
	resp := &mgmtv1.GetSnapshotResponse{Snapshot: snapshotToProto(e)}
	if resp.Snapshot.Pinned, err = st.Pinned(ctx, e.Key()); err != nil {
		return nil, err
	}
	if resp.Snapshot.Verified, err = s.s.verified(ctx, st, e, checks[e.Key().String()]); err != nil {
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

func (s *snapshotService) ExplainCoverage(req *mgmtv1.ExplainCoverageRequest,
	stream grpc.ServerStreamingServer[mgmtv1.ExplainCoverageResponse]) error {
	ctx := stream.Context()
	source, err := s.s.connect(ctx, sourceSide, req.GetSource())
	if err != nil {
		return err
	}
	cut, err := snapshot.Capture(ctx, source.Reader(), snapshot.Scope{Namespaces: req.GetNamespaces()},
		s.s.cfg.Rows, func(*graph.Node, []byte) error { return nil })
	if err != nil {
		return err
	}
	for _, n := range cut.Graph.Nodes {
		why := n.Why
		if n.Unit == "" && !n.Shared {
			why += "; no-unit: no workload cluster needs it"
		}
		if err := stream.Send(&mgmtv1.ExplainCoverageResponse{Ref: refToProto(n.Ref),
			Coverage: mgmtv1.Coverage_COVERAGE_INCLUDED, Reason: why, Unit: n.Unit}); err != nil {
			return err
		}
	}
	for _, r := range cut.LeftOut {
		if err := stream.Send(&mgmtv1.ExplainCoverageResponse{Ref: refToProto(r),
			Coverage: mgmtv1.Coverage_COVERAGE_LEFT_OUT, Reason: "nothing captured owns it, names it or " +
				"is named by its labels"}); err != nil {
			return err
		}
	}
	for _, m := range cut.Graph.Missing {
		err := stream.Send(&mgmtv1.ExplainCoverageResponse{
			Ref: refToProto(m.Ref), Coverage: mgmtv1.Coverage_COVERAGE_MISSING,
			Reason: fmt.Sprintf("%s needs it (%s)", m.By, m.Field), Unit: cut.Graph.Node(m.By).Unit,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *snapshotService) VerifySnapshot(ctx context.Context, req *mgmtv1.VerifySnapshotRequest) (
	*mgmtv1.VerifySnapshotResponse, error) {
	level, ok := checkLevels[req.GetLevel()]
	if !ok {
		return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("level %s of verify is not known",
			req.GetLevel()), Hint: "it is structure, sample or full"}
	}
	running, err := s.s.beginVerify(ctx, wantedVerify{
		location: req.GetLocation(), source: req.GetSource(), id: req.GetId(), level: level,
		percent: int(req.GetPercent()), identity: req.GetIdentity(), noRecord: req.GetNoRecord(),
	})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.VerifySnapshotResponse{Operation: running}, nil
}
