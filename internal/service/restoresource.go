package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// sourceEvidence gathers what shows whether the source of a plan is dead, and the same of the
// management clusters that other ownership records name, where the operator overrides these.
func (o *restoreInputs) sourceEvidence(ctx context.Context, spec restore.Spec,
	owners map[string]ownership.Record) (preflight.Source, map[string]preflight.Overridden, error) {
	source := object.Side{Name: o.signed.Source.Name, UID: o.signed.Source.UID}
	seen, _, err := o.seen().of(ctx, source.UID)
	if err != nil {
		return preflight.Source{}, nil, err
	}
	s := preflight.Source{Side: source, Seen: seen, SeenBy: "its newest snapshot",
		Interval: time.Duration(o.signed.Interval) * time.Second}
	wanted := []object.Side{source}
	var others []ownership.Record
	for _, r := range owners {
		switch {
		case r.By.UID == source.UID && r.Trusted && r.Time.After(s.Seen):
			s.Seen, s.SeenBy = r.Time, "the ownership record of operation "+r.Operation
		case r.By.UID != source.UID && spec.Force.HasFor(object.CodeOwnedElsewhere, r.By):
			wanted, others = append(wanted, r.By), append(others, r)
		}
	}
	dials := o.dialer.dial(ctx, wanted...)
	s.Dial = dials[source.UID]
	overridden, err := o.seen().overridden(ctx, dials, others)
	return s, overridden, err
}

func (o *restoreInputs) seen() lastSeen { return lastSeen{store: o.store, known: o.lastSeen} }

// noFence returns the finding about a store or keys that can write no ownership record. A store
// that does not answer is an error, since it says nothing about who owns what.
func noFence(ctx context.Context, st *store.Store) ([]object.Finding, error) {
	err := st.CanFence(ctx)
	if err == nil {
		return nil, nil
	}
	if _, unable := errors.AsType[*store.FenceError](err); !unable {
		return nil, err
	}
	return []object.Finding{{Severity: object.Warning, Code: object.CodeNoFence,
		Message: "no ownership records are written: " + err.Error(),
		Hint: "a source that comes back, and a second restore into another target, do not find out " +
			"about this one; see that there is none"}}, nil
}

// dialAgain is how old the answer of the source may be at a release. A dial of a host that is
// switched off takes dialTimeout; units released meanwhile wait for it.
const dialAgain = 15 * time.Second

// sourceGuard asks for the proof that the source is dead again while a plan is carried out: at the
// begin of a resume, before the first release, and from then on before a release when the last
// answer is older than dialAgain.
type sourceGuard struct {
	o    *restoreInputs
	plan *restore.Plan

	mu    sync.Mutex
	asked time.Time // when the last question was begun
	seen  time.Time // of the newest snapshot that was read
	// owners is when owners that are overridden were last seen, by UID, as read at readAt.
	owners map[string]preflight.Overridden
	readAt map[string]time.Time
	err    error
	// answers: the source answered the last question.
	answers bool
}

// needed reports whether a plan needs the proof at all.
func (g *sourceGuard) needed() bool {
	return !g.plan.Spec.NoRelease && g.plan.Snapshot.Source.UID != g.plan.Target.UID
}

// check returns a *preflight.SourceError when the source, or an owner that the copy of a store does
// not know, may reconcile what is to be released.
func (g *sourceGuard) check(ctx context.Context) error {
	if !g.plan.Spec.NoRelease {
		if err := refuseCopy(ctx, g.o.store, g.plan.Spec.Force); err != nil {
			return err
		}
	}
	if !g.needed() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.asked.IsZero() && time.Since(g.asked) < dialAgain {
		return g.err
	}
	return g.askNow(ctx)
}

// checkAgain is check, for a unit that has just been claimed, of a source that answers: its fence
// may have been lifted before the claim was there, which keeps it from being lifted from then on
// (fence.Lift). One question serves all units that were claimed before it.
func (g *sourceGuard) checkAgain(ctx context.Context) error {
	if !g.needed() {
		return nil
	}
	claimed := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.answers || g.asked.After(claimed) {
		return g.err
	}
	return g.askNow(ctx)
}

func (g *sourceGuard) askNow(ctx context.Context) error {
	g.asked = time.Now()
	g.err = g.ask(ctx)
	return g.err
}

func (g *sourceGuard) ask(ctx context.Context) error {
	source := g.plan.Snapshot.Source
	// Each time: a source that nobody can reach from here shows by its snapshots that it is back.
	seen, _, err := g.o.seen().of(ctx, source.UID)
	if err != nil {
		return err
	}
	for _, at := range []time.Time{g.plan.SourceSeen, seen} {
		if at.After(g.seen) {
			g.seen = at
		}
	}
	evidence := preflight.Source{Side: source, Seen: g.seen, SeenBy: "its newest snapshot",
		Interval: time.Duration(g.o.signed.Interval) * time.Second, Planned: g.plan.SourceSeen,
		Dial: g.o.dialer.dial(ctx, source)[source.UID]}
	g.answers = evidence.Dial.Answers
	claim := preflight.SourceClaim{Gone: g.plan.Spec.SourceIsGone, Force: g.plan.Spec.Force}
	for _, u := range g.plan.Units {
		if !u.Blocked {
			claim.Units = append(claim.Units, u.Name)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return preflight.Refuses(evidence.Check(claim, time.Now()))
}

// overridden returns the owner of a unit whose record the operator overrides; none when there is no
// such record. Once this operation has claimed the unit, its journal knows who that was.
func (g *sourceGuard) overridden(ctx context.Context, j *catalog.Journal, u restore.Unit) (
	by object.Side, err error) {
	if !g.plan.Spec.Force.Has(object.CodeOwnedElsewhere) {
		return by, nil
	}
	r, err := g.o.store.GetOwner(ctx, u.WorkloadID)
	switch {
	case errors.Is(err, store.ErrNotFound) || store.IsUnusable(err):
		return by, nil // the claim decides about a record that is gone or cannot be read
	case err != nil:
		return by, err
	case r.Owner.Operation == string(j.Operation()):
		by, err = claimedFrom(ctx, j, u)
	default:
		by = object.Side{Name: r.Owner.Owner.Name, UID: r.Owner.Owner.UID}
	}
	if by.UID == g.plan.Target.UID || by.UID == g.plan.Snapshot.Source.UID {
		by = object.Side{}
	}
	return by, err
}

// checkOwner returns an error when the owner whose record the operator overrides may reconcile a
// unit. The zero owner is none. It has to be asked before the unit is claimed and again after that,
// as checkAgain does with the source.
func (g *sourceGuard) checkOwner(ctx context.Context, u restore.Unit, by object.Side) error {
	if by.UID == "" {
		return nil
	}
	is, err := g.owner(ctx, by)
	if err != nil {
		return err
	}
	is.Dial = g.o.dialer.dial(ctx, by)[by.UID]
	for _, f := range is.AtWork(u.Name, time.Now()) {
		if f = g.plan.Spec.Force.Override(f); f.Severity >= object.Error {
			return &preflight.SourceError{Finding: f}
		}
	}
	return nil
}

// owner returns when an owner was last seen, as it was dialAgain ago or less.
func (g *sourceGuard) owner(ctx context.Context, by object.Side) (preflight.Overridden, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.readAt[by.UID]) < dialAgain {
		return g.owners[by.UID], nil
	}
	began := time.Now()
	is, err := g.o.seen().owner(ctx, by)
	if err != nil {
		return is, err
	}
	if planned, ok := g.plan.OwnersSeen[by.UID]; ok { // by a record as well
		is.Planned = &planned
		if planned.After(is.Seen) {
			is.Seen = planned
		}
	}
	if g.owners == nil {
		g.owners, g.readAt = map[string]preflight.Overridden{}, map[string]time.Time{}
	}
	g.owners[by.UID], g.readAt[by.UID] = is, began
	return is, nil
}
