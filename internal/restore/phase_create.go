package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// createWaves creates the waves of one unit that come before its release, or those after it.
func (r *run) createWaves(ctx context.Context, u Unit, late bool) error {
	for _, wave := range Waves(u.Objects) {
		if wave[0].Late != late {
			continue
		}
		if err := r.createWave(ctx, u.Name, wave); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) createStep(unit string, wave int) catalog.Step {
	step := r.copyStep(unit, "create")
	step.Wave = wave
	if unit == "" {
		step.Phase += r.Hooks.StepSuffix
	}
	return step
}

// copyStep returns a step of the copy of a unit. A pre-copy has steps of its own, since the copy
// itself does the same again.
func (r *run) copyStep(unit, phase string) catalog.Step {
	if r.Hooks.PreCopy != nil && unit != "" {
		phase = "pre-" + phase
	}
	return catalog.Step{Unit: unit, Phase: phase}
}

// createWave creates the objects of a wave, all at once: none of them owns another.
func (r *run) createWave(ctx context.Context, unit string, wave []Object) error {
	if !slices.ContainsFunc(wave, func(o Object) bool { return o.Action == Create }) {
		// no change, so no step
		return r.each(wave, func(o Object) error { return r.checkAdopted(ctx, o) })
	}
	return r.Journal.Do(ctx, r.createStep(unit, wave[0].Wave), func(ctx context.Context,
		h *catalog.StepHandle) error {
		if err := r.checkWave(ctx, unit, wave); err != nil {
			return err
		}
		for objects := range slices.Chunk(wave, journaledAtOnce) {
			if err := r.createObjects(ctx, h, unit, objects, r.each); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkWave makes sure, before objects of a wave are written, that their owners live and that their
// Cluster is paused. What the pre-copy has as it is now is not written: verify reads it, and an
// owner of it that is in the plan as well.
func (r *run) checkWave(ctx context.Context, unit string, wave []Object) error {
	var owned []Object
	written := false
	for _, o := range wave {
		current := r.isCurrent(o)
		if written = written || !current; !current || len(o.Outside) > 0 {
			owned = append(owned, o)
		}
	}
	if err := r.checkOwners(ctx, owned); err != nil || !written {
		return err
	}
	return r.checkPaused(ctx, unit, wave[0].Late)
}

// journaledAtOnce is how many objects of a wave are created before their UIDs are journaled with
// one fsync. It bounds the objects in memory that wait for that, and is twice the number of
// requests in flight, so that few of them wait for the last one.
const journaledAtOnce = 2 * requests

// createObjects creates objects of a wave, journals their UIDs, and then writes the managedFields,
// which takes away the mark by which a resume finds an object without a journaled UID. each is
// run.each, or handles errors in its own way.
func (r *run) createObjects(ctx context.Context, h *catalog.StepHandle, unit string,
	objects []Object, each func(objects []Object, fn func(o Object) error) error) error {
	var made created
	err := each(objects, func(o Object) error {
		if err := r.apply(ctx, h, &made, unit, o); err != nil {
			return err
		}
		r.Journal.Progress("objects restored", r.done.Add(1), r.total)
		return nil
	})
	if len(made.uids) > 0 { // also of those that were created before another one failed
		err = errors.Join(err, h.Record(ctx, made.uids...))
	}
	if err != nil {
		return err
	}
	return r.applyFields(ctx, h, unit, &made, each)
}

// checkOwners makes sure that the owners of a wave live, with the UIDs that will be written. One
// that the plan or the journal knows may have been deleted since, and the garbage collector would
// delete what names it.
func (r *run) checkOwners(ctx context.Context, wave []Object) error {
	var owners []Object
	seen := map[object.Ref]bool{}
	for _, o := range wave {
		for i, ref := range o.Owners {
			uid := o.Outside[i]
			if uid == "" {
				uid = r.uid(ref)
			}
			if uid == "" || seen[ref] || r.seenAlive(ref) || o.Action == Skip {
				continue
			}
			seen[ref] = true
			owners = append(owners, Object{Ref: ref, UID: uid})
		}
	}
	return r.each(owners, func(o Object) error {
		k, ok := kube.FindKind(r.Kinds, o.GroupKind())
		if !ok {
			return fmt.Errorf("the target no longer serves %s", o.GroupKind())
		}
		live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured,
			error) {
			return r.Reader.Get(ctx, k, o.Namespace, o.Name)
		})
		if apierrors.IsNotFound(err) || err == nil && (string(live.GetUID()) != o.UID ||
			live.GetDeletionTimestamp() != nil) {
			return &deletedError{}
		}
		if err == nil {
			r.setAlive(o.Ref)
		}
		return err
	})
}

// checkPaused makes sure, before objects of a unit are created, that its Cluster on the target is
// the one of the plan or the journal, and is paused: controllers that see a MachineSet and not yet
// its Machines would create new ones.
func (r *run) checkPaused(ctx context.Context, unit string, late bool) error {
	key, err := object.ParseKey(unit)
	if err != nil || late {
		return nil // shared objects have no Cluster
	}
	ref := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: key.Namespace, Name: key.Name}
	if r.uid(ref) == "" {
		return nil // this wave creates it
	}
	k := r.kinds[ref.GroupKind()]
	live, err := request(ctx, ref.GroupKind(), func() (*unstructured.Unstructured,
		error) {
		return r.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	})
	if apierrors.IsNotFound(err) || err == nil && (string(live.GetUID()) != r.uid(ref) ||
		live.GetDeletionTimestamp() != nil) {
		return fmt.Errorf("%s: %w", ref, &deletedError{})
	}
	if err != nil {
		return err
	}
	if paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused"); !paused &&
		r.missing(unit) {
		return &unpausedError{unit}
	}
	return nil
}

// missing reports whether the plan creates objects of a unit before its release.
func (r *run) missing(unit string) bool {
	for _, u := range r.Plan.Units {
		if u.Name == unit {
			return slices.ContainsFunc(u.Objects, func(o Object) bool {
				return o.Action == Create &&
					!o.Late
			})
		}
	}
	return false
}

// createOrFind creates the object, or finds the one that this operation created before.
func (r *run) createOrFind(ctx context.Context, k kube.Kind, source *unstructured.Unstructured,
	unit string, o Object) (*unstructured.Unstructured, error) {
	body := source.DeepCopy()
	if err := r.prepare(body, o, r.workloadID[unit], unit == ""); err != nil {
		return nil, err
	}
	ctx = r.withMark(ctx)
	if k.Status {
		delete(body.Object, "status") // create ignores it
	}
	return request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		if r.uid(o.Ref) == "" {
			// Before each try: another host may have taken over and removed all copies by now.
			if err := r.Journal.Alive(ctx); err != nil {
				return nil, err
			}
			live, err := r.Writer.Create(ctx, k, body)
			if !apierrors.IsAlreadyExists(err) {
				return live, err
			}
		}
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if apierrors.IsNotFound(err) && r.uid(o.Ref) != "" || err == nil &&
			live.GetDeletionTimestamp() != nil {
			return nil, &deletedError{}
		}
		if err != nil {
			return nil, err
		}
		row := r.Rows.Row(o.GroupKind())
		if err := r.checkOurs(o.Ref, live); err != nil && r.createdCluster(unit) &&
			(row.BoundToCluster || row.IsMadeFor(body.Object) && row.MayHaveMade(live.Object)) {
			// A ClusterResourceSet that is at work on the target binds a Cluster as soon as it is
			// there, and knows nothing of what was applied before. Some controllers make objects for
			// an owner that is paused.
			if err := r.Journal.Alive(ctx); err != nil { // after the read, as in change
				return nil, err
			}
			return r.takeOver(ctx, k, body, live)
		} else if err != nil {
			return nil, err
		}
		return live, nil
	})
}

// createdCluster reports whether this operation creates the Cluster of a unit.
func (r *run) createdCluster(unit string) bool {
	for _, u := range r.Plan.Units {
		if u.Name == unit {
			return slices.ContainsFunc(u.Objects, func(o Object) bool {
				return o.GroupKind() == capi.Cluster && o.Action == Create
			})
		}
	}
	return false
}

// takeOver replaces live by body.
func (r *run) takeOver(ctx context.Context, k kube.Kind, body, live *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	body = body.DeepCopy()
	body.SetUID(live.GetUID())
	body.SetResourceVersion(live.GetResourceVersion())
	return r.Writer.Update(ctx, k, body)
}

func (r *run) checkAdopted(ctx context.Context, o Object) error {
	k := r.kinds[o.GroupKind()]
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured,
		error) {
		return r.Reader.Get(ctx, k, o.Namespace, o.Name)
	})
	if err != nil {
		return err
	}
	if string(live.GetUID()) != o.UID || live.GetDeletionTimestamp() != nil {
		return &deletedError{}
	}
	r.setAlive(o.Ref)
	return nil
}
