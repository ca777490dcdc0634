package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// run is one run of a plan.
type run struct {
	RunOptions
	// ends when the run has to stop; waves begin no further object then
	stop       context.Context
	kinds      map[object.GroupKind]kube.Kind // at the versions of the plan
	unitOf     map[object.Ref]string          // of planned objects
	workloadID map[string]string              // by unit
	total      int64
	done       atomic.Int64
	slots      chan struct{} // one a request in flight

	mu   sync.Mutex
	uids map[object.Ref]string // on the target: created by us, or adopted
	// whose UID this process has seen alive; one from the plan or the journal may be of yesterday
	lives map[object.Ref]bool
}

// Run carries out a plan, or goes on with it: steps that the journal knows as done are skipped. It
// may run again after any crash. Cancelling ctx stops it between two steps. Errors:
// *IncompleteError; the context's; those of the journal.
func Run(ctx context.Context, o RunOptions) error {
	r := newRun(ctx, o)
	if err := r.prepareRun(ctx); err != nil {
		return err
	}
	if err := r.restoreShared(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &IncompleteError{Failed: len(o.Plan.Units), First: err}
	}
	result := r.restoreUnits(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !r.KeepShared {
		if err := r.finishShared(ctx, result.released); err != nil && result.first == nil {
			result.first = err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if result.first == nil && result.blocked == 0 {
		return r.observe(ctx)
	}
	return &IncompleteError{Failed: len(result.failed), Blocked: result.blocked,
		Left: len(o.Plan.Units) - result.blocked - result.begun, First: result.first}
}

func newRun(ctx context.Context, o RunOptions) *run {
	o.Tuning = o.Tuning.WithDefaults(DefaultConcurrency)
	return &run{
		RunOptions: o, stop: ctx, kinds: map[object.GroupKind]kube.Kind{},
		unitOf:     map[object.Ref]string{},
		workloadID: map[string]string{},
		uids:       map[object.Ref]string{}, lives: map[object.Ref]bool{}, slots: make(chan struct{},
			requests),
	}
}

// prepareRun finds the kinds and what is known to live on the target: adopted objects from the
// plan, created ones from the journal.
func (r *run) prepareRun(ctx context.Context) error {
	for _, u := range r.Plan.parts() {
		r.workloadID[u.Name] = u.WorkloadID
		for _, o := range u.Objects {
			if o.Action == Skip || u.Blocked {
				continue
			}
			r.total++
			r.unitOf[o.Ref] = u.Name
			k, ok := kube.FindKind(r.Kinds, o.GroupKind())
			if !ok || !slices.Contains(k.Served, o.Version) {
				return fmt.Errorf("prepare restore: the target no longer serves %s at %s", o.GroupKind(),
					o.Version)
			}
			k.Version = o.Version
			r.kinds[o.GroupKind()] = k
			if o.Action == Adopt {
				r.setUID(o.Ref, o.UID)
			}
		}
		for _, wave := range waves(u.Objects) {
			values, err := r.Journal.Values(ctx, r.createStep(u.Name, wave[0].Wave))
			if err != nil {
				return err
			}
			for key, value := range values {
				var uid string
				ref, err := object.ParseRef(key)
				if err == nil {
					err = json.Unmarshal(value, &uid)
				}
				if err != nil {
					return fmt.Errorf("read journal of %s: %w", r.Operation, err)
				}
				r.setUID(ref, uid)
			}
		}
	}
	return nil
}

func (r *run) createStep(unit string, wave int) catalog.Step {
	step := catalog.Step{Unit: unit, Phase: "create", Wave: wave}
	if unit == "" {
		step.Phase += r.Part
	}
	return step
}

// waves divides objects, which are in order, by their wave.
func waves(objects []Object) [][]Object {
	var out [][]Object
	for i, o := range objects {
		if i == 0 || o.Wave != objects[i-1].Wave {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], o)
	}
	return out
}

func (r *run) uid(ref object.Ref) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uids[ref]
}

func (r *run) seenAlive(ref object.Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives[ref]
}

func (r *run) setAlive(ref object.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives[ref] = true
}

func (r *run) setUID(ref object.Ref, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uids[ref] = uid
}

// restoreShared creates what units share, and waits until classes are reconciled: the Cluster
// webhook waits seconds for one that is not.
func (r *run) restoreShared(ctx context.Context) error {
	if err := r.createWaves(ctx, r.Plan.Shared, false); err != nil {
		return fmt.Errorf("create shared objects: %w", err)
	}
	check := func(ctx context.Context, _ *catalog.StepHandle) error {
		if err := r.verify(ctx, r.Plan.Shared); err != nil {
			return fmt.Errorf("shared objects: %w", err)
		}
		return r.waitClasses(ctx)
	}
	if !creates(r.Plan.Shared) && !r.KeepShared {
		return check(ctx, nil)
	}
	// Once, and on record: a resume of next week finds them in use, on both sides, and those of a
	// move partly retired.
	return r.Journal.Do(ctx, catalog.Step{Phase: "verify-shared" + r.Part}, check)
}

// FinishShared does for the shared objects of a plan what Run does at its end, unless KeepShared
// keeps it from that. Units that are not released, of this plan or of another one of the operation,
// keep those of their namespaces paused. It may run again.
func FinishShared(ctx context.Context, o RunOptions, released map[string]bool) error {
	r := newRun(ctx, o)
	if err := r.prepareRun(ctx); err != nil {
		return err
	}
	return r.finishShared(ctx, released)
}

// finishShared releases what is shared and, when no unit is waited for any more, creates what comes
// to life at once.
func (r *run) finishShared(ctx context.Context, released map[string]bool) error {
	if r.Plan.Spec.NoRelease {
		return nil
	}
	waiting := r.waiting(released)
	if err := r.releaseShared(ctx, waiting); err != nil || len(waiting) > 0 {
		return err
	}
	return r.createWaves(ctx, r.Plan.Shared, true)
}

// waiting are the namespaces with units that are not released; "" is among them when there are any,
// for what is there for all.
func (r *run) waiting(released map[string]bool) map[string]bool {
	waiting := map[string]bool{}
	note := func(unit string, yes bool) {
		if ns, _, _ := strings.Cut(unit, "/"); !yes {
			waiting[ns], waiting[""] = true, true
		}
	}
	for _, u := range r.Plan.Units {
		note(u.Name, u.Blocked || released[u.Name])
	}
	for unit, yes := range released {
		note(unit, yes)
	}
	return waiting
}

// createWaves creates the waves of one part that come before its release, or those after it.
func (r *run) createWaves(ctx context.Context, u Unit, late bool) error {
	for _, wave := range waves(u.Objects) {
		if wave[0].Late != late {
			continue
		}
		if err := r.createWave(ctx, u.Name, wave); err != nil {
			return err
		}
	}
	return nil
}

type unitsResult struct {
	released, failed map[string]bool
	blocked, begun   int
	first            error
}

// restoreUnits restores the canary, then all others side by side. One that fails leaves the others
// running.
func (r *run) restoreUnits(ctx context.Context) unitsResult {
	result := unitsResult{released: map[string]bool{}, failed: map[string]bool{}}
	var mu sync.Mutex
	// post-flights: they wait for controllers for minutes and keep no other unit from being
	// restored
	var flights sync.WaitGroup
	note := func(u Unit, err error, released bool) {
		if err != nil && ctx.Err() == nil {
			r.report(ctx, u.Name, object.Finding{Severity: object.Error, Code: object.CodeUnitFailed,
				Message: err.Error(), Hint: HintOf(err)})
		}
		mu.Lock()
		defer mu.Unlock()
		result.released[u.Name] = result.released[u.Name] || released
		if err == nil {
			return
		}
		result.failed[u.Name] = true
		if result.first == nil {
			result.first = fmt.Errorf("%s: %w", u.Name, err)
		}
	}
	one := func(u Unit) {
		mu.Lock()
		result.begun++
		mu.Unlock()
		err := r.restoreUnit(ctx, u)
		note(u, err, err == nil)
		if err == nil && !r.Plan.Spec.NoRelease {
			flights.Go(func() { note(u, r.land(ctx, u), true) })
		}
	}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ctx.Err() != nil || r.Tuning.MaxFailures > 0 && len(result.failed) >= r.Tuning.MaxFailures
	}
	units := slices.Clone(r.Plan.Units)
	if i := slices.IndexFunc(units, func(u Unit) bool {
		return u.Name == r.Tuning.Canary &&
			!u.Blocked
	}); i >= 0 {
		one(units[i])
		flights.Wait()
		units = slices.Delete(units, i, i+1)
	}
	canaryFailed := len(result.failed) > 0 // it is there to be the only one
	var g errgroup.Group
	g.SetLimit(r.Tuning.Concurrency)
	for _, u := range units {
		if u.Blocked {
			result.blocked++
			continue
		}
		if canaryFailed {
			continue
		}
		g.Go(func() error {
			if !enough() {
				one(u)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	flights.Wait()
	return result
}

// restoreUnit brings one unit to the target, from its first object to its release and what comes
// after that.
func (r *run) restoreUnit(ctx context.Context, u Unit) error {
	released, err := r.stepDone(ctx, releaseStep(u.Name))
	if err != nil {
		return err
	}
	if !released {
		if err := r.createWaves(ctx, u, false); err != nil {
			return err
		}
		if err := r.completeOwners(ctx, u.Name); err != nil {
			return err
		}
		if err := r.completeCluster(ctx, u); err != nil {
			return err
		}
		standing, err := r.standsStill(ctx, u)
		if err != nil {
			return err
		}
		if standing && !r.Plan.Spec.NoRelease {
			if err := r.waitAcknowledged(ctx, u); err != nil {
				return err
			}
		}
		// A Cluster that does not stand still was adopted at work, or released by a process that
		// died before it could say so: then its controllers have rewritten what would be compared
		// here, and post-flight looks at it. One that was released and stopped again by the brake
		// has been at work, too.
		once, err := r.Journal.State(ctx, releaseStep(u.Name))
		if err != nil {
			return err
		}
		if !standing && once == "" && r.Well != nil {
			// somebody released the copy of a move before the hand-over
			return &UnpausedError{u.Name}
		}
		if standing && once == "" {
			if err := r.verify(ctx, u); err != nil {
				return err
			}
		}
		if r.HandOver == nil || r.Plan.Spec.NoRelease {
			if err := r.Journal.SetUnit(ctx, u.Name, catalog.UnitCopied, ""); err != nil {
				return err
			}
		}
		if r.Plan.Spec.NoRelease {
			return nil
		}
		if r.HandOver != nil {
			if err := r.HandOver(ctx, u); err != nil {
				return err
			}
		}
		if !standing && !creates(u) {
			// adopted whole: there is nothing to change
			return r.Journal.SetUnit(ctx, u.Name, catalog.UnitReleased, "")
		}
		if err := r.release(ctx, u); err != nil {
			return err
		}
	}
	return r.createWaves(ctx, u, true)
}

// land waits until a released unit is well. A move pulls the brake on one that is not: there is no
// way back, and its source copy is kept.
func (r *run) land(ctx context.Context, u Unit) error {
	err := r.postFlight(ctx, u)
	switch {
	case err == nil && r.Well != nil:
		r.Well(u)
	case r.Well != nil && ctx.Err() == nil && unwell(err):
		return errors.Join(err, r.brake(ctx, u))
	}
	return err
}

// unwell tells what was seen on the target from an API server that could not be asked.
func unwell(err error) bool {
	_, seen := errors.AsType[*WaitError](err)
	return seen
}

func creates(u Unit) bool {
	return slices.ContainsFunc(u.Objects, func(o Object) bool { return o.Action == Create })
}

func (r *run) stepDone(ctx context.Context, step catalog.Step) (bool, error) {
	state, err := r.Journal.State(ctx, step)
	return state == catalog.StepDone, err
}

// each runs fn for objects side by side, as far as there are slots for requests, and returns the
// first error. After an error, or when the run has to stop, it begins no further object; those
// begun end first, so that the journal knows what was created.
func (r *run) each(objects []Object, fn func(o Object) error) error {
	var g errgroup.Group
	var failed atomic.Bool
	for _, o := range objects {
		if o.Action == Skip {
			continue
		}
		r.slots <- struct{}{}
		if failed.Load() || r.stop.Err() != nil {
			<-r.slots
			break
		}
		g.Go(func() error {
			defer func() { <-r.slots }()
			if err := fn(o); err != nil {
				failed.Store(true)
				return fmt.Errorf("%s: %w", o.Ref, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(r.stop)
}
