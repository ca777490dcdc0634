package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// tries bounds the requests for one object: with the back-off of mgmt.Backoff about a minute of an API server that does not answer, and any number of
// conflicts that matter.
const tries = 16

// createWave creates the objects of a wave, all at once: none of them owns another.
func (r *run) createWave(ctx context.Context, unit string, wave []Object) error {
	if !slices.ContainsFunc(wave, func(o Object) bool { return o.Action != Skip }) {
		return nil
	}
	return r.Journal.Do(ctx, createStep(unit, wave[0].Wave), func(ctx context.Context, h *catalog.StepHandle) error {
		return r.each(wave, func(o Object) error {
			if err := r.apply(ctx, h, unit, o); err != nil {
				return err
			}
			r.Journal.Progress("objects restored", r.done.Add(1), r.total)
			return nil
		})
	})
}

// apply brings one object to the target: create, status, managedFields. It looks first and may run again after a crash at any point.
func (r *run) apply(ctx context.Context, h *catalog.StepHandle, unit string, o Object) error {
	if o.Action == Adopt {
		return r.checkAdopted(ctx, o)
	}
	source, err := decodeObject(r.Contents, o.Ref)
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
	if k.Status && source.Object["status"] != nil {
		if live, err = r.converge(ctx, k, live, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return r.Writer.UpdateStatus(ctx, k, withStatus(live, source))
		}); err != nil {
			return fmt.Errorf("write status: %w", err)
		}
	}
	_, err = r.converge(ctx, k, live, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if _, marked := live.GetAnnotations()[annotationOperation]; !marked {
			return live, nil // an earlier try came this far
		}
		live = live.DeepCopy()
		unannotate(live, annotationOperation)
		if r.wantsFields(source) {
			live.SetManagedFields(movedFields(source, live))
		}
		return r.Writer.Update(ctx, k, live)
	})
	if err != nil {
		return fmt.Errorf("write managedFields: %w", err)
	}
	return nil
}

// createOrFind creates the object, or finds the one that this operation created before.
func (r *run) createOrFind(ctx context.Context, k mgmt.Kind, source *unstructured.Unstructured, unit string, o Object) (*unstructured.Unstructured, error) {
	body := source.DeepCopy()
	if err := r.prepare(body, o, r.workloadID(unit), unit == ""); err != nil {
		return nil, err
	}
	annotate(body, annotationOperation, r.Operation)
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
		if err != nil {
			return nil, err
		}
		return live, r.checkOurs(o.Ref, live)
	})
}

// StrangerError says that an object on the target is not the one that this operation created or adopted.
type StrangerError struct{ Ref mgmt.Ref }

func (e *StrangerError) Error() string {
	return "the target has an object of this name that this operation did not create"
}

// Hint tells the operator what to do.
func (e *StrangerError) Hint() string {
	return "it came after the plan was made; find out whose it is, delete one of them, and resume"
}

// checkOurs: only what carries the mark of this operation, or whose UID is journaled, may be changed.
func (r *run) checkOurs(ref mgmt.Ref, live *unstructured.Unstructured) error {
	known := r.uid(ref)
	if known == string(live.GetUID()) || known == "" && live.GetAnnotations()[annotationOperation] == r.Operation {
		return nil
	}
	return &StrangerError{ref}
}

func (r *run) checkAdopted(ctx context.Context, o Object) error {
	k := r.kinds[o.GroupKind()]
	live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) { return r.Reader.Get(ctx, k, o.Namespace, o.Name) })
	if err != nil {
		return err
	}
	if string(live.GetUID()) != o.UID {
		return &StrangerError{o.Ref}
	}
	return nil
}

func (r *run) workloadID(unit string) string {
	for i := range r.Plan.Units {
		if r.Plan.Units[i].Name == unit {
			return r.Plan.Units[i].WorkloadID
		}
	}
	return ""
}

// wantsFields tells for which objects managedFields are written: without them, appliers such as the topology controller would never remove a field again.
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

// converge writes to live until it works. Controllers of the target touch objects within milliseconds, so the resourceVersion of a moment ago is often
// stale: then it looks again.
func (r *run) converge(ctx context.Context, k mgmt.Kind, live *unstructured.Unstructured, write func(live *unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	uid := live.GetUID()
	stale := false
	return retry(ctx, k.GroupKind, func() (*unstructured.Unstructured, error) {
		if stale {
			newer, err := r.Reader.Get(ctx, k, live.GetNamespace(), live.GetName())
			if err != nil {
				return nil, err
			}
			if newer.GetUID() != uid {
				return nil, &StrangerError{}
			}
			live = newer
		}
		stale = true // whatever comes back, an answer may have been lost
		return write(live)
	})
}

// retry sends a request again while its failure may pass: conflicts at once, the rest with back-off. A permanent error comes back at once.
func retry(ctx context.Context, gk mgmt.GroupKind, request func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	for attempt := 1; ; attempt++ {
		obj, err := request()
		if err == nil {
			return obj, nil
		}
		conflict := apierrors.IsConflict(err)
		if attempt == tries || !conflict && !mgmt.Transient(err) {
			return nil, &apiError{text: safe(gk, err), err: err}
		}
		if conflict && attempt < 6 {
			continue
		}
		if err := mgmt.Sleep(ctx, mgmt.Backoff(attempt, err)); err != nil {
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

// completeOwners adds to shared objects the owners that have come to live with this unit: a Secret that two Clusters own is created with neither.
func (r *run) completeOwners(ctx context.Context, unit string) error {
	var objects []Object
	for _, o := range r.Plan.Shared.Objects {
		if o.Action == Create && slices.ContainsFunc(o.Owners, func(owner mgmt.Ref) bool { return r.unitOf[owner] == unit }) {
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, catalog.Step{Unit: unit, Phase: "owners"}, func(ctx context.Context, _ *catalog.StepHandle) error {
		return r.each(objects, func(o Object) error {
			source, err := decodeObject(r.Contents, o.Ref)
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
				if len(owned.GetOwnerReferences()) == len(live.GetOwnerReferences()) {
					return live, nil
				}
				live.SetOwnerReferences(owned.GetOwnerReferences())
				return r.Writer.Update(ctx, k, live)
			})
			return err
		})
	})
}

// waitClasses waits until the target's controllers have taken in every ClusterClass that was created: its generation observed, and no condition worse than
// on the source.
func (r *run) waitClasses(ctx context.Context) error {
	var classes []Object
	for _, o := range r.Plan.Shared.Objects {
		if o.GroupKind() == snapshot.ClusterClassKind && o.Action == Create {
			classes = append(classes, o)
		}
	}
	return r.wait(ctx, classes, "ClusterClasses to be reconciled", func(_ Object, source, live *unstructured.Unstructured) string {
		if observed, found, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration"); found && observed != live.GetGeneration() {
			return "its generation is not observed yet"
		}
		return worse(source, live)
	})
}
