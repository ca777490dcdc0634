package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// Writer is what carrying out a plan needs of the target besides reading.
type Writer interface {
	Create(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Update(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// Tuning changes how a run goes about, not what it does. The zero value works.
type Tuning struct {
	// Concurrency is how many units are at work at once; 0 means 8, with which 32 requests in flight are kept busy.
	Concurrency int
	// Canary is the unit that is restored and released before all others.
	Canary string
	// MaxFailures: begin no further unit once so many have failed; 0 means no limit.
	MaxFailures int
	// Observe is how long to watch for Machines that come or go after the last release.
	Observe time.Duration
	// Wait bounds each wait for controllers of the target: for acknowledgements of the pause, and for post-flight. 0 means 5 minutes.
	Wait time.Duration
}

// requests is how many requests to the target are in flight at once: create throughput of an API server levels off at about 32 clients.
const requests = 32

// RunOptions of Run.
type RunOptions struct {
	Plan      *Plan
	Snapshot  *snapshot.Snapshot
	Contents  *snapshot.Contents
	Reader    Reader
	Writer    Writer
	Kinds     []mgmt.Kind // of the target
	Operation string      // its id, for the annotation that marks what it creates
	Journal   *catalog.Journal
	Tuning    Tuning
}

// IncompleteError says that something was changed and work is left: units failed, or a finding of post-flight stands. Resume goes on.
type IncompleteError struct {
	Failed, Blocked int
	Stopped         bool // by MaxFailures
	First           error
}

func (e *IncompleteError) Error() string {
	switch {
	case e.First != nil && e.Blocked > 0:
		return fmt.Sprintf("%d units failed and %d are blocked by pre-flight; the first: %v", e.Failed, e.Blocked, e.First)
	case e.First != nil:
		return fmt.Sprintf("%d units failed; the first: %v", e.Failed, e.First)
	default:
		return fmt.Sprintf("%d units are blocked by pre-flight; all others are restored", e.Blocked)
	}
}

func (e *IncompleteError) Unwrap() error { return e.First }

// run is one run of a plan.
type run struct {
	RunOptions
	kinds  map[mgmt.GroupKind]mgmt.Kind // at the versions of the plan
	unitOf map[mgmt.Ref]string          // of planned objects
	total  int64
	done   atomic.Int64
	slots  chan struct{} // one a request in flight

	mu   sync.Mutex
	uids map[mgmt.Ref]string // live on the target: created by us, or adopted
}

// Run carries out a plan, or goes on with it: steps that the journal knows as done are skipped. It may run again after any crash. Cancelling ctx stops it
// between two steps. Errors: *IncompleteError; the context's; those of the journal.
func Run(ctx context.Context, o RunOptions) error {
	r := &run{RunOptions: o, kinds: map[mgmt.GroupKind]mgmt.Kind{}, unitOf: map[mgmt.Ref]string{}, uids: map[mgmt.Ref]string{}, slots: make(chan struct{}, requests)}
	if r.Tuning.Concurrency <= 0 {
		r.Tuning.Concurrency = 8
	}
	if r.Tuning.Wait <= 0 {
		r.Tuning.Wait = 5 * time.Minute
	}
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
	if err := r.releaseShared(ctx, result.failed); err != nil {
		return &IncompleteError{Failed: len(result.failed), Blocked: result.blocked, First: err}
	}
	if result.first == nil && result.blocked == 0 {
		return r.observe(ctx)
	}
	return &IncompleteError{Failed: len(result.failed), Blocked: result.blocked, First: result.first}
}

// prepareRun finds the kinds and what is known to live on the target: adopted objects from the plan, created ones from the journal.
func (r *run) prepareRun(ctx context.Context) error {
	for _, u := range r.parts() {
		for _, o := range u.Objects {
			if o.Action == Skip || u.Blocked {
				continue
			}
			r.total++
			r.unitOf[o.Ref] = u.Name
			k, ok := mgmt.FindKind(r.Kinds, o.GroupKind())
			if !ok || !slices.Contains(k.Served, o.Version) {
				return fmt.Errorf("prepare restore: the target no longer serves %s at %s", o.GroupKind(), o.Version)
			}
			k.Version = o.Version
			r.kinds[o.GroupKind()] = k
			if o.Action == Adopt {
				r.setUID(o.Ref, o.UID)
			}
		}
		for _, wave := range waves(u.Objects) {
			values, err := r.Journal.Values(ctx, createStep(u.Name, wave[0].Wave))
			if err != nil {
				return err
			}
			for key, value := range values {
				var uid string
				ref, err := mgmt.ParseRef(key)
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

func (r *run) parts() []Unit { return append([]Unit{r.Plan.Shared}, r.Plan.Units...) }

func createStep(unit string, wave int) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "create", Wave: wave}
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

func (r *run) uid(ref mgmt.Ref) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uids[ref]
}

func (r *run) setUID(ref mgmt.Ref, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uids[ref] = uid
}

// restoreShared creates what units share, and waits until classes are reconciled: the Cluster webhook waits seconds for one that is not.
func (r *run) restoreShared(ctx context.Context) error {
	for _, wave := range waves(r.Plan.Shared.Objects) {
		if err := r.createWave(ctx, "", wave); err != nil {
			return fmt.Errorf("create shared objects: %w", err)
		}
	}
	return r.waitClasses(ctx)
}

type unitsResult struct {
	failed  map[string]bool
	blocked int
	first   error
}

// restoreUnits restores the canary, then all others side by side. One that fails leaves the others running.
func (r *run) restoreUnits(ctx context.Context) unitsResult {
	result := unitsResult{failed: map[string]bool{}}
	var mu sync.Mutex
	one := func(u Unit) {
		err := r.restoreUnit(ctx, u)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			r.report(ctx, u.Name, mgmt.Finding{Severity: mgmt.Error, Code: "unit-failed", Message: err.Error(), Hint: hintOf(err)})
		}
		mu.Lock()
		defer mu.Unlock()
		result.failed[u.Name] = true
		if result.first == nil || ctx.Err() == nil && errors.Is(result.first, context.Canceled) {
			result.first = fmt.Errorf("%s: %w", u.Name, err)
		}
	}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ctx.Err() != nil || r.Tuning.MaxFailures > 0 && len(result.failed) >= r.Tuning.MaxFailures
	}
	units := slices.Clone(r.Plan.Units)
	if i := slices.IndexFunc(units, func(u Unit) bool { return u.Name == r.Tuning.Canary && !u.Blocked }); i >= 0 {
		one(units[i])
		units = slices.Delete(units, i, i+1)
		if len(result.failed) > 0 {
			return result // the canary is there to be the only one
		}
	}
	var g errgroup.Group
	g.SetLimit(r.Tuning.Concurrency)
	for _, u := range units {
		if u.Blocked {
			result.blocked++
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
	return result
}

// restoreUnit brings one unit to the target, from its first object to post-flight.
func (r *run) restoreUnit(ctx context.Context, u Unit) error {
	released, err := r.stepDone(ctx, releaseStep(u.Name))
	if err != nil {
		return err
	}
	if !released {
		for _, wave := range waves(u.Objects) {
			if wave[0].Late {
				break
			}
			if err := r.createWave(ctx, u.Name, wave); err != nil {
				return err
			}
		}
		if err := r.completeOwners(ctx, u.Name); err != nil {
			return err
		}
		if err := r.verify(ctx, u); err != nil {
			return err
		}
		if err := r.Journal.SetUnit(ctx, u.Name, catalog.UnitCopied, ""); err != nil {
			return err
		}
		if r.Plan.Spec.NoRelease {
			return nil
		}
		if err := r.waitAcknowledged(ctx, u); err != nil {
			return err
		}
		if err := r.release(ctx, u); err != nil {
			return err
		}
	}
	for _, wave := range waves(u.Objects) {
		if wave[0].Late {
			if err := r.createWave(ctx, u.Name, wave); err != nil {
				return err
			}
		}
	}
	return r.postFlight(ctx, u)
}

func (r *run) stepDone(ctx context.Context, step catalog.Step) (bool, error) {
	_, err := r.Journal.Result(ctx, step)
	if errors.Is(err, catalog.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// each runs fn for objects side by side, as far as there are slots for requests, and returns the first error; the others of the wave end first, so that the
// journal knows what was created.
func (r *run) each(objects []Object, fn func(o Object) error) error {
	var g errgroup.Group
	for _, o := range objects {
		if o.Action == Skip {
			continue
		}
		r.slots <- struct{}{}
		g.Go(func() error {
			defer func() { <-r.slots }()
			if err := fn(o); err != nil {
				return fmt.Errorf("%s: %w", o.Ref, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// hintOf finds what an error tells the operator to do.
func hintOf(err error) string {
	var hinter interface {
		error
		Hint() string
	}
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return "mend the cause, then resume the operation"
}
