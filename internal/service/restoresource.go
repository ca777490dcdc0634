package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// sourceEvidence gathers what shows whether the source of a plan is dead, and the answers of the
// management clusters that other ownership records name, where the operator overrides these.
func (o *restoreInputs) sourceEvidence(ctx context.Context, spec restore.Spec, newest time.Time,
	owners map[string]ownership.Record) (preflight.Source, map[string]preflight.Dial) {
	source := object.Side{Name: o.signed.Source.Name, UID: o.signed.Source.UID}
	s := preflight.Source{Side: source, Seen: newest, SeenBy: "its newest snapshot",
		Interval: time.Duration(o.signed.Interval) * time.Second}
	wanted := []object.Side{source}
	for _, r := range owners {
		switch {
		case r.By.UID == source.UID && r.Trusted && r.Time.After(s.Seen):
			s.Seen, s.SeenBy = r.Time, "the ownership record of operation "+r.Operation
		case r.By.UID != source.UID && spec.Force.HasFor(object.CodeOwnedElsewhere, r.By):
			wanted = append(wanted, r.By)
		}
	}
	dials := o.dialer.dial(ctx, wanted...)
	s.Dial = dials[source.UID]
	return s, dials
}

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
	asked time.Time
	seen  time.Time // of the newest snapshot; read once
	err   error
}

// needed reports whether a plan needs the proof at all.
func (g *sourceGuard) needed() bool {
	return !g.plan.Spec.NoRelease && g.plan.Snapshot.Source.UID != g.plan.Target.UID
}

// check returns a *preflight.SourceError when the source may reconcile what is to be released.
func (g *sourceGuard) check(ctx context.Context) error {
	if !g.needed() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.asked.IsZero() && time.Since(g.asked) < dialAgain {
		return g.err
	}
	g.err = g.ask(ctx)
	g.asked = time.Now()
	return g.err
}

func (g *sourceGuard) ask(ctx context.Context) error {
	source := g.plan.Snapshot.Source
	if g.seen.IsZero() {
		g.seen = g.plan.SourceSeen
		keys, err := g.o.store.Snapshots(ctx, source.UID)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if k.Time.After(g.seen) {
				g.seen = k.Time
			}
		}
	}
	evidence := preflight.Source{Side: source, Seen: g.seen, SeenBy: "its newest snapshot",
		Interval: time.Duration(g.o.signed.Interval) * time.Second, Planned: g.plan.SourceSeen,
		Dial: g.o.dialer.dial(ctx, source)[source.UID]}
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

// checkOwner returns an error when the owner whose record the operator overrides answers and may
// reconcile a unit.
func (g *sourceGuard) checkOwner(ctx context.Context, u restore.Unit) error {
	if !g.plan.Spec.Force.Has(object.CodeOwnedElsewhere) {
		return nil
	}
	r, err := g.o.store.GetOwner(ctx, u.WorkloadID)
	if errors.Is(err, store.ErrNotFound) || store.IsUnusable(err) {
		return nil // the claim decides about a record that is gone or cannot be read
	}
	if err != nil {
		return err
	}
	by := object.Side{Name: r.Owner.Owner.Name, UID: r.Owner.Owner.UID}
	if by.UID == g.plan.Target.UID || by.UID == g.plan.Snapshot.Source.UID {
		return nil
	}
	if g.o.dialer.dial(ctx, by)[by.UID].Reconciles(u.Name) {
		return &preflight.SourceError{Finding: preflight.OwnerAnswers(by)}
	}
	return nil
}
