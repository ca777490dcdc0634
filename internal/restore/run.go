package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// run is one run of a plan.
type run struct {
	RunOptions
	// stop ends when the run has to stop; then no further object is begun
	stop       context.Context
	kinds      map[object.GroupKind]kube.Kind // at the versions of the plan
	unitOf     map[object.Ref]string          // of planned objects
	workloadID map[string]string              // by unit
	total      int64
	done       atomic.Int64
	slots      chan struct{} // one a request in flight
	polls      chan struct{} // one a request of a wait in flight
	released   atomic.Int64  // units
	// releasedNow: this run has released a unit that was not at work for this operation before.
	releasedNow atomic.Bool
	silent      atomic.Int64 // workload clusters in a row that did not answer
	stages      *stages
	shared      *sharedState
	lastWrites  lastWrites
	current     currentObjects
	accepted    map[string]bool // units whose state the operator accepts
	publishers  publishers
	seldom      *sync.Map // Hooks.Seldom, or that of this run

	mu   sync.Mutex
	uids map[object.Ref]string // on the target: created by us, or adopted
	// lives are the refs whose UID this process has seen on the target; one from the plan or the
	// journal may be old
	lives map[object.Ref]bool
	// labels are the values of the label that names the workload cluster of an object (workloadOf)
	labels  map[object.Ref]string
	labeled kube.Labeled
}

// Run carries out a plan, or resumes it: steps that are journaled as done are skipped. It
// may run again after any crash. Cancelling ctx stops it between two steps. Errors:
// *IncompleteError; *modify.MismatchError; the context's; those of the journal.
func Run(ctx context.Context, o RunOptions) error {
	if err := o.Plan.CheckModifiers(o.Modifiers); err != nil {
		return err
	}
	r := newRun(ctx, o)
	if err := r.prepareRun(ctx); err != nil {
		return err
	}
	limited, cancel := r.limitAll(ctx)
	defer cancel()
	waitShared, err := r.restoreShared(ctx, limited)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return r.failAll(ctx, limited, err)
	}
	if err := r.dryRun(limited); err != nil {
		if ctx.Err() == nil {
			failed := r.failAll(ctx, limited, err)
			if pastLimit(limited) != nil {
				err = failed
			}
		}
		waitShared() // it may take minutes
		return err
	}
	result := r.restoreUnits(ctx)
	waitShared()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if result.first == nil {
		result.first = r.shared.firstFailure(o.Plan.Shared.Objects)
	}
	if !r.Hooks.LeaveSharedPaused {
		if err := r.finishShared(ctx, result.released); err != nil && result.first == nil {
			result.first = err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.observeAll(ctx, result)
}

// observeAll observes what is released, unless something has failed, and returns the error of the
// run. What only earlier runs have released is not observed beside a unit that is blocked for good.
func (r *run) observeAll(ctx context.Context, result *results) error {
	failed := len(result.failed)
	if result.first == nil && (result.blocked == 0 || r.releasedNow.Load()) {
		err := r.observe(ctx)
		incomplete, ok := errors.AsType[*IncompleteError](err)
		if result.blocked == 0 || err != nil && !ok {
			return err
		}
		if ok {
			failed, result.first = incomplete.Failed, incomplete.First
		}
	}
	return &IncompleteError{Failed: failed, Blocked: result.blocked,
		Left: len(r.Plan.Units) - result.blocked - result.begun, First: result.first,
		Stopped: result.stopped}
}

func newRun(ctx context.Context, o RunOptions) *run {
	o.Tuning = o.Tuning.WithDefaults(DefaultConcurrency)
	plan := *o.Plan // a dry-run blocks units of this run
	plan.Units = slices.Clone(plan.Units)
	o.Plan = &plan
	o.Contents = withModifiers(o.Contents, o.Modifiers, o.Kinds, o.Rows)
	if o.Before != nil {
		o.Before = withModifiers(o.Before, o.Modifiers, o.Kinds, o.Rows)
	}
	reads := make(chan struct{}, polls)
	return &run{
		RunOptions: o, stop: ctx, kinds: map[object.GroupKind]kube.Kind{},
		unitOf:     map[object.Ref]string{},
		workloadID: map[string]string{},
		shared:     newSharedState(o.Plan), seldom: cmp.Or(o.Hooks.Seldom, &sync.Map{}),
		lastWrites: lastWrites{byRef: map[object.Ref]lastWrite{}},
		accepted:   map[string]bool{}, publishers: publishers{kinds: map[object.GroupKind]bool{}},
		uids: map[object.Ref]string{}, lives: map[object.Ref]bool{},
		labels: map[object.Ref]string{}, labeled: kube.Labeled{Lists: o.Reader, Slots: reads},
		slots: make(chan struct{}, requests), polls: reads,
		stages: newStages(o.Tuning.Concurrency, o.Hooks.ReleaseTogether),
	}
}

// prepareRun finds the kinds and the UIDs on the target: of adopted objects from the plan, of
// created ones from the journal.
func (r *run) prepareRun(ctx context.Context) error {
	if err := r.loadShared(ctx); err != nil {
		return err
	}
	accepted, err := r.Journal.Accepted(ctx)
	if err != nil {
		return err
	}
	for _, unit := range accepted {
		r.accepted[unit] = true
	}
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
			if o.UID != "" {
				r.setUID(o.Ref, o.UID)
			}
		}
		for _, wave := range Waves(u.Objects) {
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

// Waves divides objects, which must be sorted by wave, into one slice per wave.
func Waves(objects []Object) [][]Object {
	var out [][]Object
	for len(objects) > 0 {
		n := slices.IndexFunc(objects, func(o Object) bool { return o.Wave != objects[0].Wave })
		if n < 0 {
			n = len(objects)
		}
		out, objects = append(out, objects[:n]), objects[n:]
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

func (r *run) stepDone(ctx context.Context, step catalog.Step) (bool, error) {
	state, err := r.Journal.State(ctx, step)
	return state == catalog.StepDone, err
}

// each runs fn for objects concurrently, within the slots for requests that change something, and
// returns the first error. After an error, or when the run has to stop, it begins no further
// object. Those begun end first, so that everything created is journaled.
func (r *run) each(objects []Object, fn func(o Object) error) error {
	return r.eachWithin(r.slots, objects, fn)
}

func (r *run) eachWithin(slots chan struct{}, objects []Object, fn func(o Object) error) error {
	var g task.Group
	var failed atomic.Bool
	for _, o := range objects {
		if o.Action == Skip {
			continue
		}
		slots <- struct{}{}
		if failed.Load() || r.stop.Err() != nil {
			<-slots
			break
		}
		g.Go(func() error {
			defer func() { <-slots }()
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
