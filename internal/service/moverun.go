package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// storedMove is the stored plan of a move: everything that a resume or a rollback needs.
type storedMove struct {
	Plan     move.Plan      `json:"plan"`
	Tuning   restore.Tuning `json:"tuning"`
	Location string         `json:"location,omitempty"`
}

// moveRun holds both sides and the store of a move.
type moveRun struct {
	move.Ends
	source   *kube.Mgmt
	store    *store.Store
	location string
}

// endpointNames are the names of the management clusters and the storage location of a move. A name
// may be empty where there is only one.
type endpointNames struct{ source, target, location string }

// endpoints connects to both sides and opens the store; create makes the store when there is none.
func (s *Server) endpoints(ctx context.Context, names endpointNames, create bool) (*moveRun,
	error) {
	location, err := s.location(names.location)
	if err != nil {
		return nil, err
	}
	if location.Store.SigningKeyFile == "" && !location.Store.Plain && create {
		return nil, &Error{Reason: ReasonUsage, Message: "no signing key: a move takes snapshots and " +
			"hands over by a record, and both are signed", Hint: "give --signing-key; mgmtctl " +
			"keygen makes one"}
	}
	source, err := s.connect(ctx, sourceSide, names.source)
	if err != nil {
		return nil, err
	}
	target, err := s.connect(ctx, targetSide, names.target)
	if err != nil {
		return nil, err
	}
	// The store is last: it is made only once both sides answer.
	st, err := s.openLocation(ctx, location, nil, create)
	if err != nil {
		return nil, err
	}
	m := &moveRun{source: source, store: st, location: location.Name}
	m.Ownership, m.Rows = st, s.cfg.Rows
	if m.Source, err = s.moveSide(ctx, sourceSide, source); err != nil {
		return nil, err
	}
	if m.Target, err = s.moveSide(ctx, targetSide, target); err != nil {
		return nil, err
	}
	m.CaptureSource = func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error) {
		return snapshot.CaptureInMemory(ctx, s.captureOptions(source))
	}
	m.CaptureTarget = func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error) {
		return snapshot.CaptureInMemory(ctx, s.captureOptions(target))
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
	if s.seams.writer != nil {
		writer = s.seams.writer(side, writer)
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

// beginMove begins the operation that moves workload clusters. digest is that of the plan that the
// operator has seen; empty when there is none.
func (s *Server) beginMove(ctx context.Context, c *catalog.Catalog, m *moveRun, spec move.Spec,
	tuning restore.Tuning, digest string) (*operationRun, error) {
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindMove, Store: m.store.ID(), Location: m.location,
		Source: catalog.Side{Name: m.Source.Name, UID: m.Source.UID},
		Target: catalog.Side{Name: m.Target.Name, UID: m.Target.UID},
	})
	if err != nil {
		return nil, err
	}
	if s.seams.tuning != nil {
		s.seams.tuning(&tuning)
	}
	return s.start(s.ctx, c, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		plan, err := move.NewPlan(ctx, m.Ends, spec)
		if err != nil {
			return err
		}
		stored := storedMove{Plan: *plan, Tuning: tuning, Location: m.location}
		if err := preFlight(ctx, c, j, &plan.Copy, tuning.Canary, digest, stored); err != nil {
			return err
		}
		return s.runMove(ctx, c, j, m, &stored, move.Run)
	})
}

// runMove carries out a move with move.Run, or its rollback with move.Rollback.
func (s *Server) runMove(ctx context.Context, c *catalog.Catalog, j *catalog.Journal, m *moveRun,
	stored *storedMove, way func(context.Context, move.Options) error) error {
	op, err := c.Operation(ctx, j.Operation())
	if err != nil {
		return err
	}
	return way(ctx, move.Options{
		Ends: m.Ends, Plan: &stored.Plan, Batches: c, Journal: j, Operation: string(op.ID),
		Attempt: op.Runs, Units: op.Units, Tuning: stored.Tuning,
		Snapshot: func(ctx context.Context) (*snapshot.Result, error) {
			return s.moveSnapshot(ctx, c, j,
				m)
		},
	})
}

var errNotVerified = errors.New("the snapshot is not as it should be in the store")

// verified takes a snapshot and verifies its structure in the store.
func verified(ctx context.Context, o snapshot.Options) (*snapshot.Result, error) {
	r, err := snapshot.Create(ctx, o)
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
	m *moveRun) (*snapshot.Result, error) {
	o := s.captureOptions(m.source)
	o.Store, o.WithContents, o.Writer, o.Progress = m.store, true, s.program(), j.Progress
	o.State, o.Cache = c.SnapshotState(m.store.ID(), o.SourceUID), s.runCache
	r, err := verified(ctx, o)
	if errors.Is(err, errNotVerified) { // older keys that it reuses may be damaged
		o.Full = true
		r, err = verified(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	err = c.UpdateOperation(ctx, j.Operation(),
		func(op *catalog.Operation) { op.SnapshotID = string(r.ID) })
	if err == nil {
		err = c.PutSnapshot(ctx, catalog.RecordOf(r.Signed))
	}
	return r, err
}

// errRolledBack ends an operation that was rolled back wholly.
var errRolledBack = errors.New("rolled back")

// resumeMove resumes a move, or rolls it back, between the management clusters that it was started
// with.
func (s *Server) resumeMove(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	back bool) (*operationRun, error) {
	var stored storedMove
	if err := readPlan(ctx, c, op, &stored); err != nil {
		return nil, err
	}
	m, err := s.endpoints(ctx, endpointNames{source: op.Source.Name, target: op.Target.Name,
		location: stored.Location}, true)
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
		// The direction is recorded before anything is undone: a resume after a crash must not go
		// forward again.
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
			return errors.Join(err, direct(false)) // the rest can only go forward
		}
		if err == nil {
			err = errRolledBack
		}
		return err
	})
}
