package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// restoreShared creates what units share, and checks it. An object that fails blocks the units
// that need it, and no others. It returns when only controllers of the target are missing, for
// which each unit waits itself, and wait when they are there, too. An error means that nothing can
// be restored. What has to be there before the first unit has the limit of limited.
func (r *run) restoreShared(ctx, limited context.Context) (wait func(), err error) {
	if err := r.createShared(limited, sharedWaves(r.Plan, false)); err != nil {
		return nil, fmt.Errorf("create shared objects: %w", err)
	}
	mayBegin := make(chan struct{})
	var once sync.Once
	begin := func() { once.Do(func() { close(mayBegin) }) }
	var g task.Group
	g.Go(func() error {
		r.shared.end(task.Call(func() error { return r.checkShared(ctx, begin) }))
		begin()
		return nil
	})
	<-mayBegin
	return g.Finish, nil
}

// sharedWaves returns the waves of shared objects that come before the release of units, or those
// after it.
func sharedWaves(p *Plan, late bool) [][]Object {
	return slices.DeleteFunc(Waves(p.Shared.Objects),
		func(wave []Object) bool { return wave[0].Late != late })
}

// createShared creates waves of shared objects. One that fails does not stop the others, but for
// those that it owns. An error means that the target does not answer, or that nothing can be
// journaled.
func (r *run) createShared(ctx context.Context, waves [][]Object) error {
	for _, wave := range waves {
		if err := r.createSharedWave(ctx, wave); err != nil {
			return err
		}
		if err := r.waitDiscovered(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) createSharedWave(ctx context.Context, wave []Object) error {
	var objects []Object
	for _, o := range wave {
		if o.Action == Skip || r.shared.isVerified(o) || r.shared.failure(o.Ref) != nil {
			continue
		}
		if err := r.shared.cause(o); err != nil {
			r.failShared(ctx, o, err)
			continue
		}
		objects = append(objects, o)
	}
	if !slices.ContainsFunc(wave, func(o Object) bool { return o.Action == Create }) {
		return r.eachShared(ctx, objects, func(o Object) error { return r.checkAdopted(ctx, o) })
	}
	objects, err := r.acceptedShared(ctx, objects)
	if err != nil {
		return err
	}
	err = r.Journal.Do(ctx, r.createStep("", wave[0].Wave), func(ctx context.Context,
		h *catalog.StepHandle) error {
		for objects := range slices.Chunk(r.withLiveOwners(ctx, objects), journaledAtOnce) {
			err := r.createObjects(ctx, h, "", objects, func(objects []Object,
				fn func(o Object) error) error {
				return r.eachShared(ctx, objects, fn)
			})
			if err != nil {
				return err
			}
		}
		return r.shared.firstFailure(wave)
	})
	if ctx.Err() == nil && !kube.Unanswered(err) && r.shared.firstFailure(wave) != nil {
		return nil // it blocks units; a resume runs the step again
	}
	return err
}

// acceptedShared asks the target about the objects that the plan could not ask about, and returns
// those that it would create as they are. The others failed. None of them is created: a copy that
// a policy of the target has changed would stay when the policy is gone.
func (r *run) acceptedShared(ctx context.Context, objects []Object) ([]Object, error) {
	if r.Prober == nil {
		return objects, nil
	}
	s := r.standard()
	todo := slices.DeleteFunc(slices.Clone(objects), func(o Object) bool {
		return o.Action != Create || o.Checked || r.uid(o.Ref) != ""
	})
	if err := r.each(todo, func(o Object) error {
		body, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		a, err := s.ask(ctx, r.Rows, r.kinds[o.GroupKind()], body)
		if err != nil || a.exists { // created by a run that died before it was journaled
			return err
		}
		// What is not known of a copy is a refusal of it, which blocks its unit.
		if _, err := s.rotate(ctx, r.Rows, &a, body, o.Ref,
			func() []copyOf { return r.copies(o) }); err != nil {
			return err
		}
		if err := a.refused(o.Ref); err != nil {
			r.failShared(ctx, o, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(objects, func(o Object) bool {
		return r.shared.failure(o.Ref) != nil
	}), nil
}

// copies returns the objects of the users of a shared object that may have been made from it.
func (r *run) copies(o Object) []copyOf {
	var copies []copyOf
	for _, u := range r.Plan.Units {
		if !slices.Contains(o.Users, u.Name) {
			continue
		}
		for _, of := range u.Objects {
			if gk := of.GroupKind(); gk == o.GroupKind() || len(r.Rows.Row(gk).Compared) > 0 {
				copies = append(copies, copyOf{r.kinds[gk], func() (*unstructured.Unstructured, error) {
					return decodeObject(r.Rows, r.Contents, of.Ref)
				}})
			}
		}
	}
	return copies
}

// eachShared runs fn for objects concurrently. One that fails does not stop the others, unless the
// target does not answer, or the limit of ctx has passed.
func (r *run) eachShared(ctx context.Context, objects []Object, fn func(o Object) error) error {
	return r.each(objects, func(o Object) error {
		err := fn(o)
		if err == nil || kube.Unanswered(err) || pastLimit(ctx) != nil {
			return err
		}
		r.failShared(ctx, o, err)
		return nil
	})
}

// withLiveOwners returns the objects whose owners live. The others failed.
func (r *run) withLiveOwners(ctx context.Context, objects []Object) []Object {
	return slices.DeleteFunc(objects, func(o Object) bool {
		err := r.checkOwners(ctx, []Object{o})
		if err != nil {
			r.failShared(ctx, o, err)
		}
		return err != nil
	})
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

// finishShared releases shared objects. When all units are released, it creates those that no
// pause stops.
func (r *run) finishShared(ctx context.Context, released map[string]bool) error {
	if r.Plan.Spec.NoRelease {
		return nil
	}
	waiting := r.unreleased(released)
	if err := r.releaseShared(ctx, waiting, r.ownUnits(released)); err != nil {
		return err
	}
	if len(waiting) > 0 {
		return r.shared.firstFailure(r.Plan.Shared.Objects)
	}
	if err := r.createShared(ctx, sharedWaves(r.Plan, true)); err != nil {
		return err
	}
	return r.shared.firstFailure(r.Plan.Shared.Objects)
}

// unreleased returns the units that are not released, of this plan or of another one of the
// operation. Units that pre-flight blocked are not among them. Those that a dry-run blocks are: a
// resume may restore them.
func (r *run) unreleased(released map[string]bool) map[string]bool {
	units := map[string]bool{}
	for _, u := range r.Plan.Units {
		if !r.shared.preflight[u.Name] && !released[u.Name] {
			units[u.Name] = true
		}
	}
	for unit, yes := range released {
		if !yes {
			units[unit] = true
		}
	}
	return units
}

// waitsFor reports whether a shared object stays paused for one of units. One in a namespace waits
// for all units there: without its Binding a ClusterResourceSet applies everything to a Cluster
// again. A cluster-scoped one waits for the units that need it: a pool of addresses must know
// theirs. When nobody names it, it waits for none, except in a move, where it is at work on the
// source still. A pool also waits for units outside of the plan.
func (r *run) waitsFor(o Object, units map[string]bool) bool {
	switch {
	case len(o.Awaits) > 0:
		return true
	case o.Namespace != "":
		for unit := range units {
			if ns, _, _ := strings.Cut(unit, "/"); ns == o.Namespace {
				return true
			}
		}
		return false
	case !r.shared.namesUsers || len(o.Users) == 0 && r.Plan.Spec.SourceAtWork:
		return len(units) > 0
	}
	return slices.ContainsFunc(o.Users, func(unit string) bool { return units[unit] })
}

// releaseShared releases the shared objects that have a switch of their own, after the Bindings of
// all released Clusters. Those that wait for a unit that is not released, that act on a copy of
// another operation, or that failed, are left for a resume. One that is gone from the target is
// reported: there is nothing to release. own are the units of this operation.
func (r *run) releaseShared(ctx context.Context, unreleased, own map[string]bool) error {
	for i, o := range r.Plan.Shared.Objects {
		row := r.Rows.Row(o.GroupKind())
		mayBePaused := row.Pause.Order() > 0 || row.PerManagementCluster // by an older version
		if o.Action == Skip || !mayBePaused || r.waitsFor(o, unreleased) || !r.shared.mayRelease(o) {
			continue
		}
		err := r.releaseSharedObject(ctx, o, i+1, own)
		switch {
		case err == nil:
		case isLost(o, err):
			if err := r.sharedGone(ctx, o); err != nil {
				return err
			}
		case isNotReady(err) || actsOnCopy(err) || isOfOneObject(err):
			r.failShared(ctx, o, err) // the others are released all the same
		default:
			return fmt.Errorf("release %s: %w", o.Ref, err)
		}
	}
	return nil
}

// isOfOneObject reports whether an error is about one object: the API server refuses a write to it,
// or a move works on it.
func isOfOneObject(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	_, atWork := errors.AsType[*OperationAtWorkError](err)
	return isDenied(err) || answered && !kube.Transient(err) || atWork
}

// releaseSharedObject releases a shared object that is still paused by us. Each one has a step of
// its own (wave), since a resume may release more of them.
func (r *run) releaseSharedObject(ctx context.Context, o Object, wave int,
	own map[string]bool) error {
	if paused, err := r.isPaused(ctx, o); err != nil || !paused {
		return err
	}
	if err := r.checkCopies(ctx, o, own); err != nil {
		return err
	}
	if err := r.checkObjectReady(ctx, o, false); err != nil {
		return err
	}
	step := catalog.Step{Phase: "release-shared" + r.Hooks.StepSuffix, Wave: wave}
	if o.Namespace != "" {
		step.Unit = o.Namespace + "/-"
	}
	return r.Journal.Do(ctx, step, func(ctx context.Context, _ *catalog.StepHandle) error {
		return r.releaseObject(ctx, Unit{}, o, false)
	})
}

// sharedGone reports a shared object that is gone from the target since it was restored.
func (r *run) sharedGone(ctx context.Context, o Object) error {
	return r.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
		Code: object.CodeSharedGone, Ref: o.Ref,
		Message: "it was restored and is gone from the target since, so it is not released",
		Hint:    "find out what removed it, and create it again if workload clusters need it"}))
}

// isPaused reports whether an object is still paused by us.
func (r *run) isPaused(ctx context.Context, o Object) (bool, error) {
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
	})
	return err == nil && capi.PausedByUs(live.Object), err
}

// createLate creates the late objects of a unit, and before them the shared late objects that own
// late objects of units: a HelmChartProxy owns a HelmReleaseProxy of each workload cluster.
func (r *run) createLate(ctx context.Context, u Unit) error {
	if slices.ContainsFunc(u.Objects, func(o Object) bool { return o.Late && o.Action == Create }) {
		r.shared.late.Do(func() { r.shared.lateErr = r.createShared(ctx, r.lateOwners()) })
		if r.shared.lateErr != nil {
			return r.shared.lateErr
		}
		if err := r.shared.blocked(u.Name, true); err != nil {
			return err
		}
	}
	return r.createWaves(ctx, u, true)
}

// lateOwners returns the waves of shared late objects up to the last one that owns a late object
// of a unit.
func (r *run) lateOwners() [][]Object {
	owners := map[object.Ref]bool{}
	for _, u := range r.Plan.Units {
		for _, o := range u.Objects {
			if !o.Late || o.Action == Skip || u.Blocked {
				continue
			}
			for _, owner := range o.Owners {
				owners[owner] = true
			}
		}
	}
	waves, last := sharedWaves(r.Plan, true), 0
	for i, wave := range waves {
		if slices.ContainsFunc(wave, func(o Object) bool { return owners[o.Ref] }) {
			last = i + 1
		}
	}
	return waves[:last]
}
