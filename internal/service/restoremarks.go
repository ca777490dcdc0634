package service

import (
	"context"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// marksRequest names what a rollback from marks removes.
type marksRequest struct {
	target, location string
	selection        restore.Selection
	force            object.Forced
}

// marksFromProto reads a request. Errors are usage errors.
func marksFromProto(p *mgmtv1.MarksSpec) (r marksRequest, err error) {
	r = marksRequest{target: p.GetTarget(), location: p.GetLocation()}
	if r.selection, err = selectionFromProto(p.GetSelection()); err != nil {
		return r, err
	}
	r.force, err = forcedFromProto(object.Marks, p.GetForceCodes())
	return r, err
}

// PlanRollbackFromMarks implements the API.
func (r *restoreService) PlanRollbackFromMarks(ctx context.Context,
	req *mgmtv1.PlanRollbackFromMarksRequest) (*mgmtv1.PlanRollbackFromMarksResponse, error) {
	request, err := marksFromProto(req.GetSpec())
	if err != nil {
		return nil, err
	}
	m, err := r.s.openMarks(ctx, request)
	if err != nil {
		return nil, err
	}
	plan, err := m.plan(ctx)
	if err != nil {
		return nil, err
	}
	return marksPlanToProto(plan), nil
}

// RollbackFromMarks implements the API.
func (r *restoreService) RollbackFromMarks(ctx context.Context,
	req *mgmtv1.RollbackFromMarksRequest) (*mgmtv1.RollbackFromMarksResponse, error) {
	request, err := marksFromProto(req.GetSpec())
	if err != nil {
		return nil, err
	}
	m, err := r.s.openMarks(ctx, request)
	if err != nil {
		return nil, err
	}
	run, err := m.begin(ctx, req.GetPlanDigest())
	if err != nil {
		return nil, err
	}
	return &mgmtv1.RollbackFromMarksResponse{Operation: operationToProto(run.begun)}, nil
}

func marksPlanToProto(plan *restore.Plan) *mgmtv1.PlanRollbackFromMarksResponse {
	p := &mgmtv1.PlanRollbackFromMarksResponse{Target: plan.Target.Name, TargetUid: plan.Target.UID,
		Blocked: plan.Blocked, Digest: plan.Digest()}
	for _, u := range plan.Units {
		p.Units = append(p.Units, &mgmtv1.MarkedUnit{Name: u.Name, Objects: int64(len(u.Objects)),
			Machines: int64(u.Machines), Blocked: u.Blocked, Operations: u.Lost})
	}
	shared := 0
	for _, o := range plan.Shared.Objects {
		if o.Action == restore.Create {
			shared++
		}
	}
	if shared > 0 {
		p.Units = append(p.Units, &mgmtv1.MarkedUnit{Objects: int64(shared)})
	}
	for _, f := range plan.Findings {
		p.Findings = append(p.Findings, findingToProto(f))
	}
	return p
}

// marksInputs are a target, and what is known of those who made the copies on it.
type marksInputs struct {
	s        *Server
	request  marksRequest
	target   *kube.Mgmt
	catalog  *catalog.Catalog
	store    *store.Store // nil when there is none, or it does not answer
	unread   string       // why there is none; "" when there is one
	location string
}

// openMarks connects to the target and opens the store. A store that is missing or does not answer
// is a finding of the plan: both may be lost in an outage.
func (s *Server) openMarks(ctx context.Context, r marksRequest) (*marksInputs, error) {
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	m := &marksInputs{s: s, request: r, catalog: c}
	if m.target, err = s.connect(ctx, targetSide, r.target); err != nil {
		return nil, err
	}
	l, err := s.location(r.location)
	switch {
	case r.location == "" && (err != nil || l.Store.URL == "" && l.Store.S3 == nil):
		m.unread = "no store is named"
		return m, nil
	case err != nil:
		return nil, err
	}
	m.location = l.Name
	m.store, err = s.openLocation(ctx, l, nil, false)
	return m, m.lacksStore(err)
}

// lacksStore returns an error that is not about the storage itself. One that is has the records
// count as unread.
func (m *marksInputs) lacksStore(err error) error {
	if err == nil {
		return nil
	}
	e := classify(err)
	switch e.Reason {
	case ReasonStoreMissing, ReasonStoreDenied, ReasonStoreUnreachable, ReasonDamaged:
		m.store, m.unread = nil, e.Message
		return nil
	default:
		return err
	}
}

// plan makes the plan from the target as it is now.
func (m *marksInputs) plan(ctx context.Context) (*restore.Plan, error) {
	in := restore.Marks{Target: object.Side{Name: m.target.Name(), UID: m.target.UID()},
		Lister: m.target.Reader(), Rows: m.s.cfg.Rows, Selection: m.request.selection,
		Force: m.request.force}
	var err error
	if in.Known, in.Lost, err = knownOperations(ctx, m.catalog, m.target.UID()); err != nil {
		return nil, err
	}
	if m.store != nil {
		mirrored, err := m.mirrored(ctx)
		if err == nil {
			in.Known = append(in.Known, mirrored...)
			in.Owners, err = ownership.Owners(ctx, m.store)
		}
		if err := m.lacksStore(err); err != nil {
			return nil, err
		}
	}
	if in.Unread = m.unread; m.store != nil {
		in.StoreID = m.store.ID()
		copied, err := ofCopy(ctx, m.store)
		if err != nil {
			return nil, err
		}
		for _, f := range copied { // it has only what was restored from it
			in.Unread = f.Message
		}
	}
	// The ownership records come before the target: a release writes them first.
	options := snapshot.OptionsFor(m.target, m.s.cfg.Rows)
	options.WithoutRelated = true // no copy is of a kind of which nothing is known
	s, contents, err := snapshot.CaptureInMemory(ctx, options)
	if err != nil {
		return nil, err
	}
	in.Graph, in.Contents = s.Graph, contents
	return in.Plan(ctx)
}

// knownOperations returns the restores and moves of a catalog that may have left copies on a
// management cluster, and what its unfinished rollbacks from marks have found.
func knownOperations(ctx context.Context, c *catalog.Catalog, target string) (
	known []restore.KnownOperation, lost []string, err error) {
	ops, err := c.Operations(ctx, catalog.OperationFilter{Kinds: []catalog.Kind{catalog.KindMove,
		catalog.KindRestore}})
	if err != nil {
		return nil, nil, err
	}
	for _, op := range ops {
		switch {
		case op.Target.UID != target || op.State == catalog.RolledBack:
		case op.Kind == catalog.KindRestore && op.SnapshotID == "": // from marks
			var stored storedRestore
			if readPlan(ctx, c, op, &stored) == nil { // without a plan it has removed nothing
				lost = append(lost, stored.Plan.Lost...)
			}
		default:
			k := restore.KnownOperation{ID: string(op.ID), Where: "this catalog",
				Units: map[string]bool{}, Updated: op.Updated}
			for unit := range op.Units {
				k.Units[unit] = true
			}
			known = append(known, k)
		}
	}
	return known, lost, nil
}

// mirrored returns the operations that have a mirror in the store and not in this catalog, but
// those that an operator has forgotten: nobody goes on with these. Which units they have is
// encrypted.
func (m *marksInputs) mirrored(ctx context.Context) (known []restore.KnownOperation, err error) {
	list, err := mirror.List(ctx, m.store)
	if err != nil {
		return nil, err
	}
	for _, found := range list {
		if _, err := m.catalog.Operation(ctx, found.ID); err == nil {
			continue
		}
		k := restore.KnownOperation{ID: string(found.ID), Updated: found.Head.Time,
			Where: "the mirror that host " + found.Head.Host + " wrote into the store"}
		switch {
		case found.Problem != nil:
			k.Updated, k.Where = time.Now(), "a mirror in the store that cannot be read: "+
				found.Problem.Error()
		case found.Head.State == string(catalog.RolledBack), isGivenUp(found):
			continue
		}
		known = append(known, k)
	}
	return known, nil
}

// begin begins the operation. digest is that of the plan that the operator has seen; empty when
// there is none.
func (m *marksInputs) begin(ctx context.Context, digest string) (*operationRun, error) {
	others := excluded{on: []string{m.target.UID()}}
	if err := others.check(ctx, m.catalog); err != nil {
		return nil, err
	}
	o := catalog.Operation{Kind: catalog.KindRestore, Location: m.location,
		Target: catalog.Side{Name: m.target.Name(), UID: m.target.UID()}}
	if m.store != nil {
		o.Store = m.store.ID()
	}
	op, err := m.catalog.CreateOperation(ctx, o)
	if err == nil { // it never goes forward
		err = m.catalog.UpdateOperation(ctx, op.ID, func(op *catalog.Operation) { op.Back = true })
	}
	if err != nil {
		return nil, err
	}
	to := mirrorTo{store: m.store, others: others}
	return m.s.startMirrored(m.s.ctx, m.catalog, op.ID, to, func(ctx context.Context,
		j *catalog.Journal) error {
		plan, err := m.plan(ctx)
		if err != nil {
			return err
		}
		u := &restoreUndo{target: m.target, rows: m.s.cfg.Rows, store: m.store, catalog: m.catalog,
			journal: j, stored: storedRestore{Plan: *plan, Location: m.location}}
		if err := plan.Admit(ctx, m.catalog, j, "", digest, u.stored); err != nil {
			return err
		}
		if u.kinds, err = m.target.Reader().Kinds(ctx); err != nil {
			return err
		}
		return u.run(ctx)
	})
}
