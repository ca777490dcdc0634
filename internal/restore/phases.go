package restore

import (
	"context"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/task"
)

// unitState decides which phases a unit still needs. All of it but paused is known when a run
// begins: from the journal, the plan and the hooks.
type unitState struct {
	released bool // its release is journaled as done
	// onceReleased: a release was begun, by whatever run, and perhaps undone by a repause. Its
	// controllers have been at work, so it is not compared with the snapshot any more.
	onceReleased bool
	// paused: its Cluster on the target carries our pause. The phase "inspect" reads it, once the
	// Cluster is there.
	paused bool
	// repaired: its Cluster was paused by somebody else, and the plan creates objects of it. The
	// phase "inspect" finds that, too. It stays paused.
	repaired     bool
	creates      bool // the plan creates objects of it
	noRelease    bool // it stays paused
	requirePause bool // Hooks.RequirePause
	sourceAtWork bool // Spec.SourceAtWork
	staged       bool // it has a place in a stage, which it leaves once its controllers are at work
	hasHook      bool // Hooks.BeforeRelease is set
	reported     bool // Hooks.OnReleased is set
	renew        bool // Spec.RenewKubeconfigs
}

// adoptedWhole reports whether the unit was there, at work, before this operation: nothing of it is
// changed.
func (s unitState) adoptedWhole() bool { return !s.paused && !s.creates && !s.onceReleased }

// phase is one step of a unit on its way to the target. It may run again after a crash at any
// point: what changes something goes through the journal.
type phase struct {
	name   string
	needed func(s unitState) bool
	run    func(ctx context.Context, r *run, u Unit, s *unitState) error
}

// phaseAcknowledge is the last phase of a pre-copy.
const phaseAcknowledge = "acknowledge"

// phaseBeforeRelease is the first phase that cannot be taken back.
const phaseBeforeRelease = "before-release"

// unitPhases are carried out one after the other, each one when the state at that point needs it.
var unitPhases = []phase{
	{"shared", unitState.copies, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.shared.await(ctx, u.Name)
	}},
	{"create", unitState.copies, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.createWaves(ctx, u, false)
	}},
	{"owners", unitState.copies, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.completeOwners(ctx, u.Name)
	}},
	{"cluster-status", unitState.copies, func(ctx context.Context, r *run, u Unit,
		_ *unitState) error {
		return r.completeCluster(ctx, u)
	}},
	{"inspect", unitState.copies, func(ctx context.Context, r *run, u Unit, s *unitState) error {
		byUs, byHand, err := r.inspect(ctx, u)
		s.paused, s.repaired = byUs, byHand && s.creates
		return err
	}},
	{phaseAcknowledge, unitState.acknowledges, func(ctx context.Context, r *run, u Unit,
		s *unitState) error {
		return r.waitAcknowledged(ctx, u, r.Hooks.PreCopy == nil && s.verifies())
	}},
	{"refuse", unitState.refused, func(_ context.Context, _ *run, u Unit, _ *unitState) error {
		return &unpausedError{u.Name}
	}},
	{"verify", unitState.verifies, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.verify(ctx, u)
	}},
	{"copied", unitState.isCopied, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.Journal.SetUnit(ctx, u.Name, catalog.UnitCopied, "")
	}},
	{"stage", unitState.releases, func(ctx context.Context, r *run, u Unit, s *unitState) error {
		return r.enterStage(ctx, u, s)
	}},
	{"renew-kubeconfig", unitState.renews, func(ctx context.Context, r *run, u Unit,
		_ *unitState) error {
		return r.renewKubeconfig(ctx, u)
	}},
	{"reality", unitState.comparesReality, func(ctx context.Context, r *run, u Unit,
		_ *unitState) error {
		return r.compareReality(ctx, u)
	}},
	{"ready", unitState.releases, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.checkReady(ctx, u) // a hand-over cannot be taken back
	}},
	{"going-on", unitState.mayStillStop, func(_ context.Context, r *run, _ Unit,
		_ *unitState) error {
		return r.goesOn()
	}},
	{phaseBeforeRelease, unitState.callsHook, func(ctx context.Context, r *run, u Unit,
		_ *unitState) error {
		return r.Hooks.BeforeRelease(ctx, u)
	}},
	{"adopt", unitState.adopts, func(ctx context.Context, r *run, u Unit, _ *unitState) error {
		return r.Journal.SetUnit(ctx, u.Name, catalog.UnitReleased, "")
	}},
	{"release", unitState.releases, func(ctx context.Context, r *run, u Unit, s *unitState) error {
		if s.mayStillStop() {
			if err := r.goesOn(); err != nil { // the hook may have waited
				return err
			}
		}
		if !s.onceReleased {
			r.releasedNow.Store(true)
		}
		return r.release(ctx, u)
	}},
	{"released", unitState.reports, func(_ context.Context, r *run, u Unit, _ *unitState) error {
		r.Hooks.OnReleased(u)
		return nil
	}},
	{"create-late", unitState.createsLate, func(ctx context.Context, r *run, u Unit,
		_ *unitState) error {
		return r.createLate(ctx, u)
	}},
}

// copies: a released unit is complete but for what comes late.
func (s unitState) copies() bool { return !s.released }

func (s unitState) acknowledges() bool {
	return !s.released && (s.paused || s.repaired) && !s.noRelease
}

// refused: somebody else released a copy that has to stay paused.
func (s unitState) refused() bool {
	return !s.released && !s.paused && !s.onceReleased && s.requirePause
}

// verifies: a Cluster that is not paused was adopted at work, or released by a run that died before
// it was journaled. Then its controllers have rewritten what would be compared here, and
// post-flight checks it.
func (s unitState) verifies() bool {
	return !s.released && (s.paused || s.repaired) && !s.onceReleased
}

// isCopied: the hook sets the state of its units itself.
func (s unitState) isCopied() bool { return !s.released && (!s.hasHook || s.noRelease) }

// comparesReality: the Machines of a Cluster that is not paused are its controllers'. In a move the
// source is at work until the unit is paused.
func (s unitState) comparesReality() bool {
	return s.releases() && s.paused && !s.sourceAtWork
}

// renews: what is not paused is renewed by its controllers.
func (s unitState) renews() bool { return s.releases() && s.paused && s.renew }

func (s unitState) callsHook() bool { return !s.released && s.hasHook && !s.noRelease }

func (s unitState) adopts() bool { return !s.released && !s.noRelease && s.adoptedWhole() }

func (s unitState) releases() bool { return !s.released && !s.noRelease && !s.adoptedWhole() }

// mayStillStop: its controllers have never been at work for this operation. In a move the hook
// decides: a unit that is handed over, perhaps by an earlier run, is released.
func (s unitState) mayStillStop() bool {
	return s.releases() && !s.onceReleased && !s.sourceAtWork
}

func (s unitState) reports() bool { return s.reported && !s.noRelease }

func (s unitState) createsLate() bool { return s.released || s.releases() }

// phases returns the phases of a run.
func (r *run) phases() []phase {
	if r.Hooks.PreCopy == nil {
		return unitPhases
	}
	last := slices.IndexFunc(unitPhases, func(p phase) bool { return p.name == phaseAcknowledge })
	return unitPhases[:last+1]
}

// enterStage waits for a place in a stage. A unit that stays paused needs none: it shows nothing of
// the controllers, and would be a canary for nobody.
func (r *run) enterStage(ctx context.Context, u Unit, s *unitState) error {
	if u.StaysPaused {
		return r.goesOn()
	}
	err := r.stages.enter(ctx)
	s.staged = err == nil
	return err
}

// goesOn returns errNotReleased once the run releases nothing more.
func (r *run) goesOn() error {
	if r.stages.isStopped() {
		return errNotReleased
	}
	return nil
}

// restoreUnit brings one unit to the target, from its first object to its release and what comes
// after that. staged reports whether it has a place in a stage.
func (r *run) restoreUnit(ctx context.Context, u Unit) (staged bool, err error) {
	s, err := r.unitState(ctx, u)
	if err != nil {
		return false, err
	}
	limited, cancel := r.limit(ctx, u)
	defer cancel()
	for _, p := range r.phases() {
		if p.name == phaseBeforeRelease {
			limited = ctx
		}
		if !p.needed(s) {
			continue
		}
		err := task.Call(func() error { return p.run(limited, r, u, &s) })
		if err == nil && limited.Err() == nil {
			continue
		}
		if limited.Err() != nil && ctx.Err() == nil {
			err = context.Cause(limited)
		}
		if err != nil {
			return s.staged, err
		}
	}
	return s.staged, nil
}

func (r *run) unitState(ctx context.Context, u Unit) (unitState, error) {
	release, err := r.Journal.State(ctx, releaseStep(u.Name))
	return unitState{
		released: release == catalog.StepDone, onceReleased: release != "", creates: creates(u),
		noRelease: r.Plan.Spec.NoRelease || u.Held, requirePause: r.Hooks.RequirePause,
		sourceAtWork: r.Plan.Spec.SourceAtWork, hasHook: r.Hooks.BeforeRelease != nil,
		reported: r.Hooks.OnReleased != nil, renew: r.Plan.Spec.RenewKubeconfigs,
	}, err
}
