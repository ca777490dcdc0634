package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

type moveService struct {
	mgmtv1.UnimplementedMoveServiceServer
	s *Server
}

// storedMove is what the catalog keeps of a move, and all that a resume or a rollback needs.
type storedMove struct {
	Plan     move.Plan      `json:"plan"`
	Tuning   restore.Tuning `json:"tuning"`
	Location string         `json:"location,omitempty"`
}

// moving is what a move works with.
type moving struct {
	move.Ends
	source   *kube.Mgmt
	store    *store.Store
	location string
}

func (v *moveService) PlanMove(req *mgmtv1.PlanMoveRequest,
	stream grpc.ServerStreamingServer[mgmtv1.PlanMoveResponse]) error {
	ctx := stream.Context()
	spec, err := moveSpecFromProto(req.GetSpec())
	if err != nil {
		return err
	}
	m, err := v.s.ends(ctx, req.GetSpec(), false)
	if err != nil {
		return err
	}
	plan, err := move.Make(ctx, m.Ends, spec)
	if err != nil {
		return err
	}
	header := &mgmtv1.MoveHeader{Source: plan.Source.Name, SourceUid: plan.Source.UID,
		Target: plan.Target.Name, TargetUid: plan.Target.UID, Spec: req.GetSpec()}
	if err := stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Header{
		Header: header}}); err != nil {
		return err
	}
	return sendPieces(&plan.Copy, pieces{
		unit: func(u *mgmtv1.PlanUnit) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Unit{Unit: u}})
		},
		object: func(o *mgmtv1.PlanObject) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Object{Object: o}})
		},
		finding: func(f *mgmtv1.Finding) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Finding{Finding: f}})
		},
		summary: func(s *mgmtv1.PlanSummary) error {
			return stream.Send(&mgmtv1.PlanMoveResponse{Item: &mgmtv1.PlanMoveResponse_Summary{Summary: s}})
		},
	})
}

func moveSpecFromProto(p *mgmtv1.MoveSpec) (move.Spec, error) {
	r, err := specFromProto(&mgmtv1.RestoreSpec{Selection: p.GetSelection(), Force: p.GetForce(),
		DropOwners: p.GetDropOwners(), ManagedFields: p.GetManagedFields()})
	return move.Spec{Selection: r.Selection, Force: r.Force, NoFence: p.GetNoFence(),
		DropOwners: r.DropOwners, ManagedFields: r.ManagedFields}, err
}

// ends reaches both sides and the store.
func (s *Server) ends(ctx context.Context, spec *mgmtv1.MoveSpec, create bool) (*moving, error) {
	location, err := s.location(spec.GetLocation())
	if err != nil {
		return nil, err
	}
	if location.Store.SigningKeyFile == "" && !location.Store.Plain && create {
		return nil, &Error{Reason: ReasonUsage, Message: "no signing key: a move takes snapshots and " +
			"hands over by a record, and both are signed", Hint: "give --signing-key; mgmtctl " +
			"keygen makes one"}
	}
	source, err := s.connect(ctx, sourceSide, spec.GetSource())
	if err != nil {
		return nil, err
	}
	target, err := s.connect(ctx, targetSide, spec.GetTarget())
	if err != nil {
		return nil, err
	}
	// last: it makes the store when there is none
	st, err := s.openLocation(ctx, location, nil, create)
	if err != nil {
		return nil, err
	}
	m := &moving{source: source, store: st, location: location.Name}
	m.Ownership, m.Rows = st, s.cfg.Rows
	if m.Source, err = s.moveSide(ctx, sourceSide, source); err != nil {
		return nil, err
	}
	if m.Target, err = s.moveSide(ctx, targetSide, target); err != nil {
		return nil, err
	}
	m.Look = func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error) {
		return snapshot.Look(ctx, s.captureOptions(source))
	}
	m.LookTarget = func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error) {
		return snapshot.Look(ctx, s.captureOptions(target))
	}
	return m, nil
}

func (s *Server) moveSide(ctx context.Context, side string, m *kube.Mgmt) (move.Mgmt, error) {
	kinds, err := m.Reader().Kinds(ctx)
	if err != nil {
		return move.Mgmt{}, err
	}
	providers, err := m.Providers(ctx, kinds)
	if err != nil {
		return move.Mgmt{}, err
	}
	var writer move.Writer = m.Writer()
	if s.writer != nil {
		writer = s.writer(side, writer)
	}
	return move.Mgmt{
		Side: object.Side{Name: m.Name(), UID: m.UID()}, Reader: m.Reader(), Writer: writer,
		Prober: m.Prober(), Kinds: kinds, Providers: providers,
		Kubernetes: m.KubernetesVersion(),
	}, nil
}

func (s *Server) captureOptions(m *kube.Mgmt) snapshot.Options {
	return snapshot.Options{
		Source: m.Reader(), SourceName: m.Name(), SourceUID: m.UID(), Kubernetes: m.KubernetesVersion(),
		Providers: m.Providers, Rows: s.cfg.Rows,
	}
}

func (v *moveService) RunMove(ctx context.Context, req *mgmtv1.RunMoveRequest) (
	*mgmtv1.RunMoveResponse, error) {
	spec, err := moveSpecFromProto(req.GetSpec())
	if err != nil {
		return nil, err
	}
	c, err := v.s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	m, err := v.s.ends(ctx, req.GetSpec(), true)
	if err != nil {
		return nil, err
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindMove, Store: m.store.ID(), Location: m.location,
		Source: catalog.Side{Name: m.Source.Name, UID: m.Source.UID},
		Target: catalog.Side{Name: m.Target.Name, UID: m.Target.UID},
	})
	if err != nil {
		return nil, err
	}
	tuning := tuningFromProto(req.GetTuning())
	if v.s.tuning != nil {
		v.s.tuning(&tuning)
	}
	running, err := v.s.start(v.s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		plan, err := move.Make(ctx, m.Ends, spec)
		if err != nil {
			return err
		}
		stored := storedMove{Plan: *plan, Tuning: tuning, Location: m.location}
		if err := preFlight(ctx, c, j, &plan.Copy, tuning.Canary, req.GetPlanDigest(),
			stored); err != nil {
			return err
		}
		return v.s.runMove(ctx, c, j, m, &stored, move.Run)
	})
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RunMoveResponse{Operation: running}, nil
}

// runMove goes forward or back with a move.
func (s *Server) runMove(ctx context.Context, c *catalog.Catalog, j *catalog.Journal, m *moving,
	stored *storedMove, way func(context.Context, move.Options) error) error {
	op, err := c.Operation(ctx, j.Operation())
	if err != nil {
		return err
	}
	return way(ctx, move.Options{
		Ends: m.Ends, Plan: &stored.Plan, Parts: c, Journal: j, Operation: string(op.ID),
		Attempt: op.Runs, Units: op.Units, Tuning: stored.Tuning,
		Snapshot: func(ctx context.Context) (*snapshot.Result, error) {
			return s.moveSnapshot(ctx, c, j,
				m)
		},
	})
}

var errNotVerified = errors.New("the snapshot is not as it should be in the store")

// verified takes a snapshot and verifies its structure.
func verified(ctx context.Context, o snapshot.Options) (*snapshot.Result, error) {
	r, err := snapshot.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	report, err := o.Store.VerifyStructure(ctx, r.Envelope, nil)
	if err == nil && len(report.Findings) > 0 {
		err = fmt.Errorf("verify snapshot %s: %w: %s", r.ID, errNotVerified, report.Findings[0].Message)
	}
	return r, err
}

// moveSnapshot takes the snapshot that a batch of a move is copied from, and verifies its structure
// (invariant I2).
func (s *Server) moveSnapshot(ctx context.Context, c *catalog.Catalog, j *catalog.Journal,
	m *moving) (*snapshot.Result, error) {
	o := s.captureOptions(m.source)
	o.Store, o.Keep, o.Writer, o.Progress = m.store, true, s.program(), j.Progress
	o.State, o.Cache = c.SnapshotState(m.store.ID(), o.SourceUID), s.runCache
	r, err := verified(ctx, o)
	if errors.Is(err, errNotVerified) { // perhaps for keys of snapshots before
		o.Full = true
		r, err = verified(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	err = c.UpdateOperation(ctx, j.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) })
	if err == nil {
		err = c.PutSnapshot(ctx, recordOf(r.Signed))
	}
	return r, err
}

// errRolledBack ends an operation that was taken back whole.
var errRolledBack = errors.New("rolled back")

// goOnMove resumes a move or rolls it back, between the management clusters that it was started
// with.
func (s *Server) goOnMove(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	back bool) (*mgmtv1.Operation, error) {
	var stored storedMove
	if err := readPlan(ctx, c, op, &stored); err != nil {
		return nil, err
	}
	m, err := s.ends(ctx, &mgmtv1.MoveSpec{Source: op.Source.Name, Target: op.Target.Name,
		Location: stored.Location}, true)
	if err != nil {
		return nil, err
	}
	if m.Source.UID != stored.Plan.Source.UID || m.Target.UID != stored.Plan.Target.UID ||
		m.store.ID() != op.Store {
		return nil, &Error{Reason: ReasonUsage, Message: "operation " + string(op.ID) + " moves from " +
			stored.Plan.Source.Name + " to " + stored.Plan.Target.Name + ", these are " + m.Source.Name +
			" and " + m.Target.Name + " (or another store)",
			Hint: "name the management clusters and the store that it was started with"}
	}
	return s.start(ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		// On record before anything is undone: whoever goes on after a crash must not go forward
		// again.
		direct := func(back bool) error {
			return c.UpdateOperation(context.WithoutCancel(ctx), op.ID,
				func(op *catalog.Operation) { op.Back = back })
		}
		if err := direct(back); err != nil {
			return err
		}
		if !back {
			return s.runMove(ctx, c, j, m, &stored, move.Run)
		}
		err := s.runMove(ctx, c, j, m, &stored, move.Rollback)
		if _, forward := errors.AsType[*move.ForwardError](err); forward {
			return errors.Join(err, direct(false)) // what is left can only go forward
		}
		if err == nil {
			err = errRolledBack
		}
		return err
	})
}
