package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// results is what became of the units of a run. It is used concurrently.
type results struct {
	blocked int

	mu               sync.Mutex
	released, failed map[string]bool
	// byShared are the failed units that a shared object blocks.
	byShared map[string]bool
	begun    int
	stopped  bool // Machines came or went
	first    error
}

func (s *results) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
}

// notReleased takes back begin: the run stopped before the unit was released.
func (s *results) notReleased() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun--
}

func (s *results) add(unit string, err error, released bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released[unit] = s.released[unit] || released
	if err == nil {
		return
	}
	s.failed[unit] = true
	s.stopped = s.stopped || isMachines(err)
	if _, shared := errors.AsType[*sharedError](err); shared {
		s.byShared[unit] = true
	}
	if s.first == nil {
		s.first = fmt.Errorf("%s: %w", unit, err)
	}
}

func (s *results) hasFailed(unit string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[unit]
}

func (s *results) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed)
}

// ownFailures counts the units that failed for a reason of their own. One that a shared object
// blocks says nothing of the next unit.
func (s *results) ownFailures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed) - len(s.byShared)
}

// restoreUnits restores the canary, then all others concurrently, and releases them in stages. One
// that fails leaves the others running, until Tuning.MaxFailures have failed, or Machines of one
// come or go after its release. Units that a shared object blocks do not count.
func (r *run) restoreUnits(ctx context.Context) *results {
	result := &results{released: map[string]bool{}, failed: map[string]bool{},
		byShared: map[string]bool{}}
	// Post-flights wait minutes for controllers. They take no slot, so that the next units begin.
	finishing, _ := task.WithContext(ctx)
	units := r.shared.readyFirst(r.Plan.Units)
	canaryFailed := false
	if i := slices.IndexFunc(units, func(u Unit) bool {
		return u.Name == r.Tuning.Canary
	}); i >= 0 {
		if units[i].Blocked { // the target refused it since the plan
			canaryFailed = true
		} else {
			r.carryOut(ctx, units[i], result, finishing)
			finishing.Finish()
			units = slices.Delete(units, i, i+1)
			canaryFailed = result.failures() > 0 // no other unit has begun
		}
	}
	r.compareReleased(ctx, units, result)
	var g task.Group
	g.SetLimit(r.Tuning.Concurrency)
	for _, u := range units {
		if u.Blocked {
			result.blocked++
			g.Go(func() error { r.failed(ctx, u); return nil })
			continue
		}
		if canaryFailed {
			continue
		}
		g.Go(func() error {
			if ctx.Err() == nil && !r.stages.isStopped() && !result.hasFailed(u.Name) {
				r.carryOut(ctx, u, result, finishing)
			}
			return nil
		})
	}
	g.Finish()
	finishing.Finish()
	return result
}

// compareReleased compares the Machines of the units that earlier runs released and whose
// post-flight has not passed: what stopped such a run stops this one before its first release.
func (r *run) compareReleased(ctx context.Context, units []Unit, result *results) {
	for _, u := range units {
		released, err := r.stepDone(ctx, releaseStep(u.Name))
		if err != nil || !released || u.Blocked || r.accepted[u.Name] {
			continue // its own phases return the error
		}
		passed, err := r.stepDone(ctx, postFlightStep(u.Name))
		if err != nil || passed {
			continue
		}
		if err := r.compareMachines(ctx, u); isMachines(err) {
			result.begin()
			r.unitEnded(ctx, u, result, r.unhealthy(ctx, u, fmt.Errorf("post-flight: %w", err)), true)
		}
	}
}

// failed calls the hook for a unit that is not released, unless the run ends.
func (r *run) failed(ctx context.Context, u Unit) {
	if ctx.Err() == nil && r.Hooks.OnFailed != nil {
		r.Hooks.OnFailed(ctx, u)
	}
}

// carryOut restores one unit, and begins its post-flight in finishing. The unit leaves its stage
// once its controllers are at work, before they have made every condition good again.
func (r *run) carryOut(ctx context.Context, u Unit, result *results, finishing *task.Group) {
	result.begin()
	staged, err := r.restoreUnit(ctx, u)
	if errors.Is(err, errNotReleased) {
		result.notReleased()
		r.failed(ctx, u)
		return
	}
	r.unitEnded(ctx, u, result, err, err == nil)
	if err != nil {
		r.failed(ctx, u)
	}
	leave := func(bool) {}
	if staged {
		var once sync.Once
		leave = func(atWork bool) { once.Do(func() { r.stages.leave(atWork) }) }
	}
	if err == nil && r.Hooks.PreCopy != nil {
		r.Hooks.PreCopy(u, r.createdUIDs(u))
		return
	}
	if err != nil || r.Plan.Spec.NoRelease || u.Held {
		leave(false)
		if err == nil {
			r.drop(u)
		}
		return
	}
	r.released.Add(1)
	finishing.Go(func() error {
		err := task.Call(func() error {
			return r.finishUnit(ctx, u, func() {
				leave(true)
				if r.Hooks.OnAtWork != nil {
					r.Hooks.OnAtWork(u)
				}
			})
		})
		r.unitEnded(ctx, u, result, err, true)
		leave(err == nil)
		if err == nil {
			r.drop(u)
		}
		return nil
	})
}

// drop frees the contents of a unit that is done, so that memory follows the units in work and not
// the fleet. Those of the owners of Machines stay: observing reads their replicas.
func (r *run) drop(u Unit) {
	owners := map[object.Ref]bool{}
	for _, o := range u.Objects {
		if o.GroupKind() == capi.Machine {
			for _, owner := range o.Owners {
				owners[owner] = true
			}
		}
	}
	for _, o := range u.Objects {
		if !owners[o.Ref] {
			r.Contents.Drop(o.Ref)
		}
	}
}

// unitEnded records how a unit ended, and stops the run when nothing further may be released.
func (r *run) unitEnded(ctx context.Context, u Unit, result *results, err error, released bool) {
	if _, shared := errors.AsType[*sharedError](err); shared && r.Hooks.OnBlocked != nil {
		r.Hooks.OnBlocked(u)
	}
	if err != nil && ctx.Err() == nil && r.Hooks.OnError != nil {
		r.Hooks.OnError(u, isMachines(err))
	}
	r.reportFailure(ctx, u, err)
	result.add(u.Name, err, released)
	if isMachines(err) ||
		r.Tuning.MaxFailures > 0 && result.ownFailures() >= r.Tuning.MaxFailures {
		r.stages.stop()
	}
}

func (r *run) reportFailure(ctx context.Context, u Unit, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	code := object.CodeOf(err, object.CodeUnitFailed)
	if isMachines(err) {
		code = object.CodeObserve
	}
	f := object.Finding{Severity: object.Error, Code: code, Message: err.Error(),
		Hint: object.HintOf(err)}
	if r.Hooks.PreCopy != nil {
		f.Severity, f.Code, f.Hint = object.Warning, object.CodePreCopy, ""
		f.Message = "it is copied in its pause, since it could not be before: " + f.Message
	}
	r.report(ctx, u.Name, f)
}

func creates(u Unit) bool {
	return slices.ContainsFunc(u.Objects, func(o Object) bool { return o.Action == Create })
}

// report adds a finding to the history of the operation. An error is ignored: a history that
// cannot be written must not stop the operation.
func (r *run) report(ctx context.Context, unit string, f object.Finding) {
	_ = r.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit, f))
}
