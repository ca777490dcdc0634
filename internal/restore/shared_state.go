package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// sharedError says that a workload cluster is blocked by a shared object that it needs.
type sharedError struct {
	Ref object.Ref
	Err error // why the object is not ready
}

func (e *sharedError) Error() string {
	return fmt.Sprintf("it needs %s, which failed: %v", e.Ref, e.Err)
}

func (e *sharedError) Unwrap() error { return e.Err }

// sharedState is what is known of the shared objects of a run. It may be used concurrently.
type sharedState struct {
	needs map[string][]*Object // by unit, in the order of waves
	// preflight are the units that the stored plan blocks. A dry-run blocks others for one run.
	preflight map[string]bool
	// namesUsers: the plan says which units need which object, unlike plans of version 0.4 and
	// older.
	namesUsers bool

	mu sync.Mutex
	// hasStep: the check of the shared objects was begun as a step of the journal, by whatever
	// run.
	hasStep bool
	// verified are the objects that passed the check, in whatever run; all of them when
	// allVerified.
	verified    map[object.Ref]bool
	allVerified bool
	failed      map[object.Ref]error
	// pending has a channel for each object for which only controllers are missing. It is closed
	// when the object is ready, or failed.
	pending map[object.Ref]chan struct{}
	// err ended the check of all objects.
	err error

	late    sync.Once // creates the owners of the late objects of units
	lateErr error
}

func newSharedState(p *Plan) *sharedState {
	s := &sharedState{preflight: map[string]bool{}, needs: map[string][]*Object{},
		verified: map[object.Ref]bool{},
		failed:   map[object.Ref]error{}, pending: map[object.Ref]chan struct{}{}}
	s.namesUsers = slices.ContainsFunc(p.Shared.Objects,
		func(o Object) bool { return len(o.Users) > 0 })
	var all []string
	for _, u := range p.Units {
		all = append(all, u.Name)
		s.preflight[u.Name] = u.Blocked
	}
	for i := range p.Shared.Objects {
		o := &p.Shared.Objects[i]
		users := o.Users
		if !s.namesUsers { // every unit may need it
			users = all
		}
		for _, unit := range users {
			if o.Action != Skip {
				s.needs[unit] = append(s.needs[unit], o)
			}
		}
	}
	return s
}

func (r *run) verifySharedStep() catalog.Step {
	return catalog.Step{Phase: "verify-shared" + r.Hooks.StepSuffix}
}

// loadShared reads which shared objects earlier runs found ready: a resume days later finds them
// in use on both sides, and those of a move partly retired, so they are not compared again.
func (r *run) loadShared(ctx context.Context) error {
	state, err := r.Journal.State(ctx, r.verifySharedStep())
	if err != nil {
		return err
	}
	values, err := r.Journal.Values(ctx, r.verifySharedStep())
	if err != nil {
		return err
	}
	s := r.shared
	s.hasStep, s.allVerified = state != "", state == catalog.StepDone
	for key := range values {
		ref, err := object.ParseRef(key)
		if err != nil {
			return fmt.Errorf("read journal of %s: %w", r.Operation, err)
		}
		s.verified[ref] = true
	}
	return nil
}

func (s *sharedState) isVerified(o Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !o.Late && (s.allVerified || s.verified[o.Ref])
}

// mayRelease reports whether a shared object is on the target as it should be.
func (s *sharedState) mayRelease(o Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[o.Ref] == nil && (!s.hasStep || s.allVerified || s.verified[o.Ref])
}

func (s *sharedState) failure(ref object.Ref) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[ref]
}

// firstFailure returns the failure of the first of objects that failed, with its ref.
func (s *sharedState) firstFailure(objects []Object) error {
	for _, o := range objects {
		if err := s.failure(o.Ref); err != nil {
			return fmt.Errorf("%s: %w", o.Ref, err)
		}
	}
	return nil
}

// cause returns why a shared object cannot be created: its namespace, or an owner, failed.
func (s *sharedState) cause(o Object) error {
	before := o.Owners
	if o.Namespace != "" {
		before = append([]object.Ref{{Kind: kube.NamespaceKind.Kind, Name: o.Namespace}}, before...)
	}
	for _, ref := range before {
		if err := s.failure(ref); err != nil {
			return &sharedError{ref, err}
		}
	}
	return nil
}

// set records that an object is verified, when err is nil, or failed.
func (s *sharedState) set(ref object.Ref, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.verified[ref] = true
	} else {
		s.failed[ref] = err
	}
	if waiting := s.pending[ref]; waiting != nil {
		close(waiting)
		delete(s.pending, ref)
	}
}

func (s *sharedState) setPending(ref object.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[ref] = make(chan struct{})
}

// end is called when no object is checked any more. err is what prevented the check.
func (s *sharedState) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	for ref, waiting := range s.pending {
		close(waiting)
		delete(s.pending, ref)
	}
}

// readyFirst returns units, first those that do not have to wait for a shared object.
func (s *sharedState) readyFirst(units []Unit) []Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready, waiting []Unit
	for _, u := range units {
		if slices.ContainsFunc(s.needs[u.Name],
			func(o *Object) bool { return s.pending[o.Ref] != nil }) {
			waiting = append(waiting, u)
		} else {
			ready = append(ready, u)
		}
	}
	return append(ready, waiting...)
}

// blocked returns a *sharedError when a shared object that a unit needs failed: the first one, in
// the order of waves.
func (s *sharedState) blocked(unit string, late bool) error {
	for _, o := range s.needs[unit] {
		if err := s.failure(o.Ref); err != nil && o.Late == late {
			return &sharedError{o.Ref, err}
		}
	}
	return nil
}

// isInVain reports whether each unit that needs a shared object is blocked by another one.
func (s *sharedState) isInVain(o Object) bool {
	return len(o.Users) > 0 && !slices.ContainsFunc(o.Users,
		func(unit string) bool { return s.blocked(unit, false) == nil })
}

// await waits until all shared objects that a unit needs are ready. Errors: *sharedError; the
// context's; what prevented the check.
func (s *sharedState) await(ctx context.Context, unit string) error {
	for _, o := range s.needs[unit] {
		if err := s.blocked(unit, false); err != nil {
			return err
		}
		s.mu.Lock()
		waiting := s.pending[o.Ref]
		s.mu.Unlock()
		if waiting == nil {
			continue
		}
		select {
		case <-waiting:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := s.blocked(unit, false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// failShared records that a shared object failed, and reports it.
func (r *run) failShared(ctx context.Context, o Object, err error) {
	r.shared.set(o.Ref, err)
	r.report(ctx, "", object.Finding{Severity: object.Error, Code: object.CodeSharedFailed,
		Ref: o.Ref, Message: err.Error(), Hint: object.HintOf(err)})
}

// recordVerified journals the objects that are verified, so that a resume does not compare them
// again.
func (r *run) recordVerified(ctx context.Context, h *catalog.StepHandle) error {
	r.shared.mu.Lock()
	refs := slices.Collect(maps.Keys(r.shared.verified))
	r.shared.mu.Unlock()
	return recordReady(ctx, h, refs...)
}

func recordReady(ctx context.Context, h *catalog.StepHandle, refs ...object.Ref) error {
	if h == nil {
		return nil // the plan changes no shared object: there is no step
	}
	values := make([]catalog.Value, len(refs))
	for i, ref := range refs {
		values[i] = catalog.Value{Key: ref.String(), Data: json.RawMessage("true")}
	}
	return h.Record(ctx, values...)
}
