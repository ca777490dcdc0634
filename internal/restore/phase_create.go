package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	step := catalog.Step{Unit: unit, Phase: "create", Wave: wave}
	if unit == "" {
		step.Phase += r.Hooks.StepSuffix
	}
	return step
}

// createWave creates the objects of a wave, all at once: none of them owns another.
func (r *run) createWave(ctx context.Context, unit string, wave []Object) error {
	if !slices.ContainsFunc(wave, func(o Object) bool { return o.Action == Create }) {
		// no change, so no step
		return r.each(wave, func(o Object) error { return r.checkAdopted(ctx, o) })
	}
	return r.Journal.Do(ctx, r.createStep(unit, wave[0].Wave), func(ctx context.Context,
		h *catalog.StepHandle) error {
		if err := r.checkOwners(ctx, wave); err != nil {
			return err
		}
		if err := r.checkPaused(ctx, unit, wave[0].Late); err != nil {
			return err
		}
		return r.each(wave, func(o Object) error {
			if err := r.apply(ctx, h, unit, o); err != nil {
				return err
			}
			r.Journal.Progress("objects restored", r.done.Add(1), r.total)
			return nil
		})
	})
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
			return &DeletedError{}
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
		return fmt.Errorf("%s: %w", ref, &DeletedError{})
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

// apply brings one object to the target: create, status, managedFields. It may run again after a
// crash at any point: it reads the object first and writes what is missing.
func (r *run) apply(ctx context.Context, h *catalog.StepHandle, unit string, o Object) error {
	if o.Action == Adopt {
		return r.checkAdopted(ctx, o)
	}
	source, err := decodeObject(r.Rows, r.Contents, o.Ref)
	if err != nil {
		return err
	}
	k := r.kinds[o.GroupKind()]
	live, err := r.createOrFind(ctx, k, source, unit, o)
	if err != nil {
		return err
	}
	uid := string(live.GetUID())
	if r.uid(o.Ref) != uid {
		data, err := json.Marshal(uid)
		if err != nil {
			return err
		}
		if err := h.Record(ctx, catalog.Value{Key: o.Ref.String(), Data: data}); err != nil {
			return err
		}
		r.setUID(o.Ref, uid)
	}
	r.setAlive(o.Ref)
	return r.complete(ctx, k, o, source, live)
}

// complete writes what a create ignores: status, then managedFields. The UID of live is journaled,
// so the mark is not needed any more: it goes in a write between the two. In one write with the
// managedFields it would remove more than itself: where it was the last annotation, the API server
// removes the path of the whole map from the managedFields of all managers. An object without the
// mark was left by a run that died after that write.
func (r *run) complete(ctx context.Context, k kube.Kind, o Object, source,
	live *unstructured.Unstructured) error {
	if isMarked(live) {
		var err error
		if o.GroupKind() != capi.Cluster { // its status comes with completeCluster
			if live, err = r.applyStatus(ctx, k, live, source); err != nil {
				return err
			}
		}
		if live, err = r.removeMark(ctx, k, live); err != nil {
			return err
		}
	}
	return r.applyManagedFields(ctx, k, live, source)
}

func isMarked(u *unstructured.Unstructured) bool {
	_, marked := u.GetAnnotations()[annotationOperation]
	return marked
}

func (r *run) removeMark(ctx context.Context, k kube.Kind, live *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	live, err := r.converge(ctx, k, live, func(live *unstructured.Unstructured) (
		*unstructured.Unstructured, error) {
		if !isMarked(live) {
			return live, nil
		}
		live = live.DeepCopy()
		capi.Unannotate(live.Object, annotationOperation)
		return r.Writer.Update(ctx, k, live)
	})
	if err != nil {
		return nil, fmt.Errorf("remove mark: %w", err)
	}
	return live, nil
}

// applyStatus gives live the status of source. It writes nothing when that is there already.
func (r *run) applyStatus(ctx context.Context, k kube.Kind, live,
	source *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !k.Status || source.Object["status"] == nil ||
		r.Rows.Row(k.GroupKind).PerManagementCluster {
		return live, nil
	}
	live, err := r.converge(ctx, k, live, func(live *unstructured.Unstructured) (
		*unstructured.Unstructured, error) {
		with := withStatus(live, source)
		if equality.Semantic.DeepEqual(with.Object["status"], live.Object["status"]) {
			return live, nil
		}
		return r.Writer.UpdateStatus(ctx, k, with)
	})
	if err != nil {
		return nil, fmt.Errorf("write status: %w", err)
	}
	return live, nil
}

// applyManagedFields gives live the managedFields of source, in a write of their own. It writes
// nothing when they are there already.
func (r *run) applyManagedFields(ctx context.Context, k kube.Kind, live,
	source *unstructured.Unstructured) error {
	if !r.wantsFields(source) {
		return nil
	}
	_, err := r.converge(ctx, k, live, func(live *unstructured.Unstructured) (
		*unstructured.Unstructured, error) {
		fields := movedFields(source, live)
		if equality.Semantic.DeepEqual(fields, live.GetManagedFields()) {
			return live, nil
		}
		live = live.DeepCopy()
		live.SetManagedFields(fields)
		return r.Writer.Update(ctx, k, live)
	})
	if err != nil {
		return fmt.Errorf("write managedFields: %w", err)
	}
	return nil
}

// wantsFields reports whether the managedFields of an object are written. Without them, appliers
// such as the topology controller would never remove a field again.
func (r *run) wantsFields(source *unstructured.Unstructured) bool {
	switch r.Plan.Spec.ManagedFields {
	case FieldsNone:
		return false
	case FieldsAll:
		return len(source.GetManagedFields()) > 0
	default:
		return slices.ContainsFunc(source.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
			return f.Operation == metav1.ManagedFieldsOperationApply
		})
	}
}

// createOrFind creates the object, or finds the one that this operation created before.
func (r *run) createOrFind(ctx context.Context, k kube.Kind, source *unstructured.Unstructured,
	unit string, o Object) (*unstructured.Unstructured, error) {
	body := source.DeepCopy()
	if err := r.prepare(body, o, r.workloadID[unit], unit == ""); err != nil {
		return nil, err
	}
	capi.Annotate(body.Object, annotationOperation, r.Operation)
	if k.Status {
		delete(body.Object, "status") // create ignores it
	}
	return request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		if r.uid(o.Ref) == "" {
			live, err := r.Writer.Create(ctx, k, body)
			if !apierrors.IsAlreadyExists(err) {
				return live, err
			}
		}
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if apierrors.IsNotFound(err) && r.uid(o.Ref) != "" || err == nil &&
			live.GetDeletionTimestamp() != nil {
			return nil, &DeletedError{}
		}
		if err != nil {
			return nil, err
		}
		if err := r.checkOurs(o.Ref, live); err != nil &&
			r.Rows.Row(o.GroupKind()).BoundToCluster && r.createdCluster(unit) {
			// A ClusterResourceSet that is at work on the target binds a Cluster as soon as it is
			// there, and knows nothing of what was applied before.
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
		return &DeletedError{}
	}
	r.setAlive(o.Ref)
	return nil
}
