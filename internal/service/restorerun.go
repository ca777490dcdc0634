package service

import (
	"context"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// storedRestore is the stored plan of a restore: everything that a resume needs except the
// identity.
type storedRestore struct {
	Plan   restore.Plan   `json:"plan"`
	Tuning restore.Tuning `json:"tuning"`
	// Location is the name of the storage location.
	Location string `json:"location,omitempty"`
}

// restoreInputs is a snapshot and the management cluster that it is restored into.
type restoreInputs struct {
	location *Location
	snapshot *snapshot.Snapshot
	signed   store.Signed
	store    *store.Store
	target   *kube.Mgmt
	kinds    []kube.Kind
	rows     *capi.Table // what is known of the kinds of the snapshot
	dialer   *dialer
	epochs   store.EpochMemory
	// modifiers change objects for the target; nil changes none.
	modifiers *modify.Document
	about     []object.Finding // of the search for the snapshot
	// lastSeen returns the time of the newest snapshot of a source that this host knows of, in
	// whichever store; nil where it has no catalog.
	lastSeen func(ctx context.Context, source string) (time.Time, error)
}

// openRestore finds and opens the snapshot, checks its signature before it reads anything else of
// it, and connects to the target.
func (s *Server) openRestore(ctx context.Context, r *restoreRequest, identity []byte) (
	*restoreInputs, error) {
	if r.releaseOf != "" {
		return s.openRelease(ctx, r, identity)
	}
	location, err := s.location(r.location)
	if err != nil {
		return nil, err
	}
	st, err := s.openLocation(ctx, location, identity, false)
	if err != nil {
		return nil, err
	}
	e, passed, err := findSnapshot(ctx, st, r.snapshot)
	if err != nil {
		return nil, err
	}
	inputs, err := s.openSigned(ctx, location, ownershipHome(st, r.spec.Force), e, r.target)
	if err != nil {
		return nil, err
	}
	missing, err := s.missingOf(ctx, st, e.Source.UID)
	inputs.modifiers = r.modifiers
	inputs.about = slices.Concat(overwritten(st), passedOver(passed, object.Warning),
		sequenceLow(e, r.atLeast), missing)
	return inputs, err
}

func (s *Server) openSigned(ctx context.Context, location *Location, st *store.Store,
	e store.Signed, targetName string) (*restoreInputs, error) {
	// An operator who opens a plain store with --plain and without trusted keys accepts its
	// content as it is.
	if vouched := location.Store.Plain && !st.Encrypted() &&
		len(location.Store.TrustedKeyFiles) == 0; !vouched {
		if err := e.RequireTrusted(); err != nil {
			return nil, err
		}
	}
	target, err := s.connect(ctx, targetSide, targetName)
	if err != nil {
		return nil, err
	}
	snap, err := snapshot.Open(ctx, st, e.Envelope, s.cfg.Rows)
	if err != nil {
		return nil, err
	}
	kinds, err := target.Reader().Kinds(ctx)
	if err != nil {
		return nil, err
	}
	return &restoreInputs{location: location, snapshot: snap, signed: e, store: st, target: target,
		kinds: kinds, rows: snap.Graph.Rows, dialer: s.dialer(), epochs: epochMemory{s},
		lastSeen: epochMemory{s}.lastSeen}, nil
}

// plan makes the plan and returns it with the contents that it was made from.
func (o *restoreInputs) plan(ctx context.Context, spec restore.Spec,
	progress func(done, total int64)) (
	*restore.Plan, *snapshot.Contents, error) {
	nodes, err := restore.Nodes(o.snapshot, spec)
	if err != nil {
		return nil, nil, err
	}
	contents, err := o.snapshot.Load(ctx, nodes, progress)
	if err != nil {
		return nil, nil, err
	}
	providers, err := o.target.Providers(ctx, o.kinds)
	if err != nil {
		return nil, nil, err
	}
	owners, err := ownership.Owners(ctx, o.store)
	if err != nil {
		return nil, nil, err
	}
	originEpochs, err := o.originEpochs(ctx)
	if err != nil {
		return nil, nil, err
	}
	chain, err := o.chain(ctx)
	if err != nil {
		return nil, nil, err
	}
	denied, err := o.checkPolicy(ctx, nodes, spec)
	if err != nil {
		return nil, nil, err
	}
	ofStore, err := findingsOfStore(ctx, o.store, spec)
	if err != nil {
		return nil, nil, err
	}
	findings := slices.Concat(ofStore, denied, o.about)
	evidence, overridden, err := o.sourceEvidence(ctx, spec, owners)
	if err != nil {
		return nil, nil, err
	}
	plan, err := restore.NewPlan(ctx, restore.Input{
		Snapshot: o.snapshot, Contents: contents, Findings: findings,
		Source: restore.Snapshot{
			StoreID: o.signed.StoreID, ID: string(o.signed.ID), Key: o.signed.Key().String(),
			Time:   o.signed.Time,
			Source: object.Side{Name: o.signed.Source.Name, UID: o.signed.Source.UID},
		},
		Target: object.Side{Name: o.target.Name(), UID: o.target.UID()},
		Reader: o.target.Reader(), Prober: o.target.Prober(), Kinds: o.kinds, Providers: providers,
		Spec: spec, Modifiers: o.modifiers, Newer: chain.newer, Gaps: chain.gaps,
		Owners: owners, OriginEpochs: originEpochs,
		NewerWith: o.newerWith(ctx), Evidence: evidence, Overridden: overridden,
	})
	return plan, contents, err
}

// findingsOfStore returns what a restore finds out about the store that it reads and that records
// ownership.
func findingsOfStore(ctx context.Context, st *store.Store, spec restore.Spec) ([]object.Finding,
	error) {
	findings, err := mirror.Findings(ctx, st)
	if err != nil || spec.NoRelease {
		return findings, err
	}
	unfenced, err := noFence(ctx, st)
	if err != nil {
		return nil, err
	}
	copied, err := ofCopy(ctx, st)
	return slices.Concat(findings, unfenced, copied), err
}

// chainOf is what the store shows of the snapshots of a source besides the chosen one.
type chainOf struct {
	// newer is when a newer snapshot of the same scope, or of everything, was taken; zero when the
	// chosen one is the newest.
	newer time.Time
	// gaps are what is missing between the chosen snapshot and the newest one.
	gaps []string
}

// chain searches for newer snapshots of the source, and for gaps between the chosen one and the
// newest. Gaps before the chosen one are left by retention. The newest one is that with the highest
// number: times in names decide nothing, since everybody who can write to the bucket can write a
// name, and the clock of a writer may have been wrong.
func (o *restoreInputs) chain(ctx context.Context) (c chainOf, err error) {
	scope := o.signed.ScopeID()
	newest, _, err := o.store.Newest(ctx, o.signed.Source.UID, store.Which{
		Accept: func(e *store.Signed) bool { return !e.Partial || e.InScope(scope) }})
	switch {
	case store.OfStore(ctx, err) != nil:
		return c, err
	case err != nil:
		c.gaps = append(c.gaps, "the newest snapshot cannot be read: "+err.Error())
	case newest != nil && newest.Sequence > o.signed.Sequence:
		c.newer = newest.Time
	}
	later, err := o.later(ctx, &c)
	if err != nil {
		return c, err
	}
	pruned, err := o.store.Pruned(ctx)
	if err != nil {
		return c, err
	}
	for _, f := range store.CheckChain(later, pruned.Removed[o.signed.Source.UID]) {
		if f.Key.ID != o.signed.ID {
			c.gaps = append(c.gaps, f.Message)
		}
	}
	return c, nil
}

// later returns the chosen snapshot and those after it: by the times in their names, or by the
// clock of the storage, as the clock of the writer may have been ahead when the chosen one was
// taken. What nobody trusts proves nothing about the numbers; that it was passed over is reported.
func (o *restoreInputs) later(ctx context.Context, c *chainOf) ([]store.Signed, error) {
	list, err := o.store.ListedSnapshots(ctx, o.signed.Source.UID)
	if err != nil {
		return nil, err
	}
	received := o.signed.Received
	for _, s := range list {
		if s.Key == o.signed.Key() {
			received = s.Modified
		}
	}
	var later []store.Signed
	for _, s := range list {
		if s.Key.Time.Before(o.signed.Time) && !s.Modified.After(received) {
			continue
		}
		e, err := o.store.GetEnvelope(ctx, s.Key)
		switch {
		case err != nil:
			c.gaps = append(c.gaps, "a later snapshot cannot be read: "+err.Error())
		case o.store.CanBeParent(&e) && e.Sequence >= o.signed.Sequence:
			later = append(later, e)
		}
	}
	return later, nil
}

// beginRestore begins the operation that restores a snapshot. digest is that of the plan that the
// operator has seen; empty when there is none.
func (s *Server) beginRestore(ctx context.Context, o *restoreInputs, spec restore.Spec,
	tuning restore.Tuning, digest string) (*operationRun, error) {
	if _, err := restore.Nodes(o.snapshot, spec); err != nil {
		return nil, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return nil, err
	}
	others := excluded{self: catalog.Operation{Kind: catalog.KindRestore},
		on: []string{o.target.UID()}, forward: true}
	if err := others.check(ctx, c); err != nil {
		return nil, err
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{
		Kind: catalog.KindRestore, Store: o.store.ID(), Location: o.location.Name,
		SnapshotID: string(o.signed.ID),
		Source:     catalog.Side{Name: o.signed.Source.Name, UID: o.signed.Source.UID},
		Target:     catalog.Side{Name: o.target.Name(), UID: o.target.UID()},
	})
	if err != nil {
		return nil, err
	}
	to := mirrorTo{store: o.store, others: others}
	return s.startMirrored(s.ctx, c, op.ID, to, func(ctx context.Context, j *catalog.Journal) error {
		plan, contents, err := o.plan(ctx, spec, objectsRead(j))
		if err != nil {
			return err
		}
		stored := storedRestore{Plan: *plan, Tuning: tuning, Location: o.location.Name}
		if err := c.UpdateOperation(ctx, op.ID, func(op *catalog.Operation) {
			op.Unreleased = spec.NoRelease && len(plan.Units) > 0
		}); err != nil {
			return err
		}
		if err := plan.Admit(ctx, c, j, tuning.Canary, digest, stored); err != nil {
			return err
		}
		return o.run(ctx, j, plan, contents, tuning)
	})
}

// objectsRead reports how many objects of the snapshot were read.
func objectsRead(j *catalog.Journal) func(done, total int64) {
	return func(done, total int64) { j.Progress("objects read", done, total) }
}

// lastChecks returns beforeRelease, after which the admission policy of the target is lifted and
// the ownership record is read once more: the questions and the policy may have taken seconds.
// records says whether the store and the keys can write one.
func (o *restoreInputs) lastChecks(ctx context.Context, j *catalog.Journal, plan *restore.Plan,
	records bool) (func(ctx context.Context, u restore.Unit) error, error) {
	claimed, err := o.beforeRelease(ctx, j, plan)
	return func(ctx context.Context, u restore.Unit) error {
		if err := claimed(ctx, u); err != nil {
			return err
		}
		if err := o.allow(ctx, j, u); err != nil {
			return err
		}
		if !records {
			return o.unclaimed(ctx, j, plan, u)
		}
		return ownership.Check(ctx, o.store, claim(j, plan, u))
	}, err
}

func (o *restoreInputs) run(ctx context.Context, j *catalog.Journal, plan *restore.Plan,
	contents *snapshot.Contents, tuning restore.Tuning) error {
	o.snapshot = nil // the plan has what is needed of its graph, which is as large as the fleet
	run := restore.RunOptions{
		Plan: plan, Contents: contents, Modifiers: o.modifiers, Reader: o.target.Reader(),
		Writer: o.target.Writer(), Prober: o.target.Prober(), Kinds: o.kinds, Rows: o.rows,
		Operation: string(j.Operation()), Journal: j, Tuning: tuning,
	}
	records := o.store.CanFence(ctx) == nil
	var err error
	if run.Hooks.BeforeRelease, err = o.lastChecks(ctx, j, plan, records); err != nil {
		return err
	}
	run.Hooks.EpochMark = func(u restore.Unit) string {
		q := claim(j, plan, u)
		if !records { // an older record that names another one must not fence the Cluster
			return ownership.EpochMark(o.store.OriginID(), q.Known())
		}
		return ownership.EpochMark(o.store.OriginID(), q.Next())
	}
	return restore.Run(ctx, run)
}
