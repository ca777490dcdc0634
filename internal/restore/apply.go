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

// tries bounds the requests for one object: with the back-off of kube.Backoff about a minute of an
// API server that does not answer, and any number of conflicts that matter.
const tries = 16

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
		live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured,
			error) {
			return r.Reader.Get(ctx, k, o.Namespace, o.Name)
		})
		if apierrors.IsNotFound(err) || err == nil && (string(live.GetUID()) != o.UID ||
			live.GetDeletionTimestamp() != nil) {
			return &GoneError{}
		}
		if err == nil {
			r.setAlive(o.Ref)
		}
		return err
	})
}

// checkPaused makes sure, before objects of a unit are created, that its Cluster on the target is
// the one that we know and stands still: controllers that see a MachineSet and not yet its Machines
// would make new ones.
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
	live, err := retry(ctx, ref.GroupKind(), func() (*unstructured.Unstructured,
		error) {
		return r.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	})
	if apierrors.IsNotFound(err) || err == nil && (string(live.GetUID()) != r.uid(ref) ||
		live.GetDeletionTimestamp() != nil) {
		return fmt.Errorf("%s: %w", ref, &GoneError{})
	}
	if err != nil {
		return err
	}
	if paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused"); !paused &&
		r.missing(unit) {
		return &UnpausedError{unit}
	}
	return nil
}

// missing tells whether objects of a unit still have to be created.
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

// UnpausedError says that somebody ended the pause of a workload cluster in the middle of its
// restore.
type UnpausedError struct{ Unit string }

func (e *UnpausedError) Error() string {
	return "the workload cluster " + e.Unit + " is not paused any more on the target, and not all " +
		"of its objects are there"
}

// Hint tells the operator what to do.
func (e *UnpausedError) Hint() string {
	return "pause it at once (spec.paused: true), look whether its controllers made new " +
		"Machines, then resume"
}

// GoneError says that an object that this restore created, adopted or relies on was deleted, or is
// being deleted.
type GoneError struct{}

func (e *GoneError) Error() string { return "it was deleted on the target, or is being deleted" }

// Hint tells the operator what to do.
func (e *GoneError) Hint() string {
	return "find out who deleted it; then run the restore again as a new operation, which adopts " +
		"what is equal and creates what is missing"
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
// managedFields it would take more with it than itself: where it was the last annotation, the API
// server removes the path of the whole map from the managedFields of all managers. An object
// without the mark was left by a run that died after that write.
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
		Unannotate(live, annotationOperation)
		return r.Writer.Update(ctx, k, live)
	})
	if err != nil {
		return nil, fmt.Errorf("remove mark: %w", err)
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

// applyStatus gives live the status of source. It writes nothing when that is there already.
func (r *run) applyStatus(ctx context.Context, k kube.Kind, live,
	source *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !k.Status || source.Object["status"] == nil {
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

func clusterStatusStep(unit string) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "cluster-status"}
}

// completeCluster gives the Cluster its status, once all other objects of the unit are there.
// Cluster API connects to a workload cluster as soon as the status says that its infrastructure is
// provisioned, paused or not; where the kubeconfig Secret is not there yet, it tries again only
// after 30 s (controllers/clustercache at v1.14), and until then no control plane is Available.
func (r *run) completeCluster(ctx context.Context, u Unit) error {
	var clusters []Object
	for _, o := range u.Objects {
		if o.GroupKind() == capi.Cluster && o.Action == Create {
			clusters = append(clusters, o)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, clusterStatusStep(u.Name), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return r.each(clusters, func(o Object) error {
			source, err := decodeObject(r.Rows, r.Contents, o.Ref)
			if err != nil {
				return err
			}
			k := r.kinds[o.GroupKind()]
			live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured,
				error) {
				return r.Reader.Get(ctx, k, o.Namespace, o.Name)
			})
			if err != nil {
				return err
			}
			if err := r.checkOurs(o.Ref, live); err != nil {
				return err
			}
			_, err = r.applyStatus(ctx, k, live, source)
			return err
		})
	})
}

// createOrFind creates the object, or finds the one that this operation created before.
func (r *run) createOrFind(ctx context.Context, k kube.Kind, source *unstructured.Unstructured,
	unit string, o Object) (*unstructured.Unstructured, error) {
	body := source.DeepCopy()
	if err := r.prepare(body, o, r.workloadID[unit], unit == ""); err != nil {
		return nil, err
	}
	Annotate(body, annotationOperation, r.Operation)
	if k.Status {
		delete(body.Object, "status") // create ignores it
	}
	return retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		if r.uid(o.Ref) == "" {
			live, err := r.Writer.Create(ctx, k, body)
			if !apierrors.IsAlreadyExists(err) {
				return live, err
			}
		}
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if apierrors.IsNotFound(err) && r.uid(o.Ref) != "" || err == nil &&
			live.GetDeletionTimestamp() != nil {
			return nil, &GoneError{}
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

// createdCluster tells whether this operation created the Cluster of a unit.
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

// StrangerError says that an object on the target is not the one that this operation created or
// adopted.
type StrangerError struct{ Ref object.Ref }

func (e *StrangerError) Error() string {
	return "the target has an object of this name that this operation did not create"
}

// Hint tells the operator what to do.
func (e *StrangerError) Hint() string {
	return "it came after the plan was made; find out whose it is, delete one of them, and resume"
}

// checkOurs: only what carries the mark of this operation, or whose UID is journaled, may be
// changed.
func (r *run) checkOurs(ref object.Ref, live *unstructured.Unstructured) error {
	known := r.uid(ref)
	if known == string(live.GetUID()) || known == "" &&
		live.GetAnnotations()[annotationOperation] == r.Operation {
		return nil
	}
	return &StrangerError{ref}
}

func (r *run) checkAdopted(ctx context.Context, o Object) error {
	k := r.kinds[o.GroupKind()]
	live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured,
		error) {
		return r.Reader.Get(ctx, k, o.Namespace, o.Name)
	})
	if err != nil {
		return err
	}
	if string(live.GetUID()) != o.UID || live.GetDeletionTimestamp() != nil {
		return &GoneError{}
	}
	r.setAlive(o.Ref)
	return nil
}

// wantsFields tells for which objects managedFields are written: without them, appliers such as the
// topology controller would never remove a field again.
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

// converge writes to live until it works. Controllers of the target touch objects within
// milliseconds, so the resourceVersion of a moment ago is often stale: then it looks again.
func (r *run) converge(ctx context.Context, k kube.Kind, live *unstructured.Unstructured,
	write func(live *unstructured.Unstructured) (*unstructured.Unstructured, error)) (
	*unstructured.Unstructured, error) {
	uid := live.GetUID()
	stale := false
	return retry(ctx, k.GroupKind, func() (*unstructured.Unstructured, error) {
		if stale {
			newer, err := r.Reader.Get(ctx, k, live.GetNamespace(), live.GetName())
			if err != nil {
				return nil, err
			}
			if newer.GetUID() != uid || newer.GetDeletionTimestamp() != nil {
				return nil, &GoneError{}
			}
			live = newer
		}
		stale = true // whatever comes back, an answer may have been lost
		return write(live)
	})
}

// retry sends a request again while its failure may pass: conflicts at once, the rest with
// back-off. A permanent error comes back at once.
func retry(ctx context.Context, gk object.GroupKind, request func() (*unstructured.Unstructured,
	error)) (*unstructured.Unstructured, error) {
	for attempt := 1; ; attempt++ {
		obj, err := request()
		if err == nil {
			return obj, nil
		}
		conflict := apierrors.IsConflict(err)
		if attempt == tries || !conflict && !kube.Transient(err) {
			return nil, &apiError{text: safe(gk, err), err: err}
		}
		if conflict && attempt < 6 {
			continue
		}
		if err := kube.Sleep(ctx, kube.Backoff(attempt, err)); err != nil {
			return nil, err
		}
	}
}

// apiError hides the text of an API error behind a safe one and keeps the error for errors.As.
type apiError struct {
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

func ownersStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "owners"} }

// completeOwners adds to shared objects the owners that have come to live with this unit: a Secret
// that two Clusters own is created with neither.
func (r *run) completeOwners(ctx context.Context, unit string) error {
	var objects []Object
	for _, o := range r.Plan.Shared.Objects {
		if o.Action != Skip && slices.ContainsFunc(o.Owners,
			func(owner object.Ref) bool { return r.unitOf[owner] == unit }) {
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, ownersStep(unit), func(ctx context.Context, _ *catalog.StepHandle) error {
		return r.each(objects, func(o Object) error {
			source, err := decodeObject(r.Rows, r.Contents, o.Ref)
			if err != nil {
				return err
			}
			k := r.kinds[o.GroupKind()]
			_, err = retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
				live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
				if err != nil {
					return nil, err
				}
				if err := r.checkOurs(o.Ref, live); err != nil {
					return nil, err
				}
				owned := source.DeepCopy()
				if err := r.setOwners(owned, o, true); err != nil {
					return nil, err
				}
				refs := live.GetOwnerReferences()
				for _, ref := range owned.GetOwnerReferences() {
					if !slices.ContainsFunc(refs, func(l metav1.OwnerReference) bool { return l.UID == ref.UID }) {
						refs = append(refs, ref)
					}
				}
				if len(refs) == len(live.GetOwnerReferences()) {
					return live, nil
				}
				live.SetOwnerReferences(refs)
				return r.Writer.Update(ctx, k, live)
			})
			return err
		})
	})
}

// waitClasses waits until the target's controllers have taken in every ClusterClass that was
// created: its generation observed, and no condition worse than on the source.
func (r *run) waitClasses(ctx context.Context) error {
	var classes []Object
	for _, o := range r.Plan.Shared.Objects {
		if r.Rows.Row(o.GroupKind()).ReconciledFirst && o.Action == Create {
			classes = append(classes, o)
		}
	}
	return r.wait(ctx, classes, "ClusterClasses to be reconciled",
		func(o Object, source, live *unstructured.Unstructured) string {
			if observed, found, _ := unstructured.NestedInt64(live.Object, "status",
				"observedGeneration"); found && observed != live.GetGeneration() {
				return "its generation is not observed yet"
			}
			return worse(r.Rows.Row(o.GroupKind()), source, live)
		})
}
