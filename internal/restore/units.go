package restore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

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
	if err == nil || ctx.Err() != nil {
		return
	}
	code := object.CodeUnitFailed
	if isMachines(err) {
		code = object.CodeObserve
	}
	r.report(ctx, u.Name, object.Finding{Severity: object.Error, Code: code,
		Message: err.Error(), Hint: object.HintOf(err)})
}

func creates(u Unit) bool {
	return slices.ContainsFunc(u.Objects, func(o Object) bool { return o.Action == Create })
}

// report adds a finding to the history of the operation. An error is ignored: a history that cannot
// be written must not stop the operation.
func (r *run) report(ctx context.Context, unit string, f object.Finding) {
	_ = r.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit, f))
}
