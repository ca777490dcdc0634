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
	if !r.Hooks.LeaveSharedPaused {
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
		step.Phase += r.Hooks.StepSuffix
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
	if !creates(r.Plan.Shared) && !r.Hooks.LeaveSharedPaused {
		return check(ctx, nil)
	}
	// Once, and on record: a resume of next week finds them in use, on both sides, and those of a
	// move partly retired.
	return r.Journal.Do(ctx, catalog.Step{Phase: "verify-shared" + r.Hooks.StepSuffix}, check)
}

// FinishShared does for the shared objects of a plan what Run does at its end without
// Hooks.LeaveSharedPaused. The shared objects of a namespace stay paused while a unit there is not
// released, of this plan or of another one of the operation. It may run again.
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

// results is what became of the units of a run. It is used concurrently.
type results struct {
	blocked int

	mu               sync.Mutex
	released, failed map[string]bool
	begun            int
	first            error
}

func (s *results) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
}

func (s *results) add(unit string, err error, released bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released[unit] = s.released[unit] || released
	if err == nil {
		return
	}
	s.failed[unit] = true
	if s.first == nil {
		s.first = fmt.Errorf("%s: %w", unit, err)
	}
}

func (s *results) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed)
}

// restoreUnits restores the canary, then all others concurrently. One that fails leaves the others
// running.
func (r *run) restoreUnits(ctx context.Context) *results {
	result := &results{released: map[string]bool{}, failed: map[string]bool{}}
	// Post-flights wait minutes for controllers. They take no slot, so that the next units begin.
	var finishing sync.WaitGroup
	units := slices.Clone(r.Plan.Units)
	if i := slices.IndexFunc(units, func(u Unit) bool {
		return u.Name == r.Tuning.Canary && !u.Blocked
	}); i >= 0 {
		r.carryOut(ctx, units[i], result, &finishing)
		finishing.Wait()
		units = slices.Delete(units, i, i+1)
	}
	canaryFailed := result.failures() > 0 // no other unit has begun
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
			failed := result.failures()
			if ctx.Err() == nil && (r.Tuning.MaxFailures <= 0 || failed < r.Tuning.MaxFailures) {
				r.carryOut(ctx, u, result, &finishing)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	finishing.Wait()
	return result
}

// carryOut restores one unit, and begins its post-flight in finishing.
func (r *run) carryOut(ctx context.Context, u Unit, result *results, finishing *sync.WaitGroup) {
	result.begin()
	err := r.restoreUnit(ctx, u)
	r.reportFailure(ctx, u, err)
	result.add(u.Name, err, err == nil)
	if err == nil && !r.Plan.Spec.NoRelease {
		finishing.Go(func() {
			err := r.finishUnit(ctx, u)
			r.reportFailure(ctx, u, err)
			result.add(u.Name, err, true)
		})
	}
}

func (r *run) reportFailure(ctx context.Context, u Unit, err error) {
	if err != nil && ctx.Err() == nil {
		r.report(ctx, u.Name, object.Finding{Severity: object.Error, Code: object.CodeUnitFailed,
			Message: err.Error(), Hint: HintOf(err)})
	}
}

// finishUnit waits until a released unit is healthy, and tells the caller's hooks. With
// OnUnhealthy Repause it pauses a unit that is not healthy.
func (r *run) finishUnit(ctx context.Context, u Unit) error {
	err := r.postFlight(ctx, u)
	switch {
	case err == nil && r.Hooks.OnHealthy != nil:
		r.Hooks.OnHealthy(u)
	case r.Hooks.OnUnhealthy == Repause && ctx.Err() == nil && isUnhealthy(err):
		return errors.Join(err, r.repause(ctx, u))
	}
	return err
}

// isUnhealthy reports whether err is what was seen of a unit; an API server that did not answer says
// nothing of it.
func isUnhealthy(err error) bool {
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
