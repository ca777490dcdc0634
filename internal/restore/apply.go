package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// created are the objects of one transaction of the journal.
type created struct {
	mu   sync.Mutex
	uids []catalog.Value
	// unfinished are the objects whose managedFields are to be written, and live what these are
	// written to: the answers of their last writes without status and managedFields, which are the
	// larger part of them.
	unfinished []Object
	live       map[object.Ref]*unstructured.Unstructured
}

func (c *created) addUID(v catalog.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uids = append(c.uids, v)
}

func (c *created) addUnfinished(o Object, live *unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		c.live = map[object.Ref]*unstructured.Unstructured{}
	}
	c.unfinished, c.live[o.Ref] = append(c.unfinished, o), live
}

// apply brings one object to the target: create, then status. Its managedFields follow when its UID
// is journaled. It may run again after a crash at any point: it reads the object first and writes
// what is missing.
func (r *run) apply(ctx context.Context, h *catalog.StepHandle, made *created, unit string,
	o Object) error {
	switch {
	case o.Action == Adopt:
		return r.checkAdopted(ctx, o)
	case o.Ours:
		return r.update(ctx, made, unit, o)
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
	if err := r.recordUID(ctx, h, made, o.Ref, live); err != nil {
		return err
	}
	r.setAlive(o.Ref)
	if o.UID == "" && !r.isUnfinished(live) {
		return nil // its last write was made: what differs is the work of controllers
	}
	if live, err = r.applyOwn(ctx, k, o, source, live); err != nil {
		return err
	}
	if o.GroupKind() != capi.Cluster { // completeCluster
		r.finishLater(ctx, made, k, unit, o, source, live)
	}
	return nil
}

// finishLater has the managedFields of an object written, after which it carries no mark. Without
// that, live is the answer to its last write.
func (r *run) finishLater(ctx context.Context, made *created, k kube.Kind, unit string, o Object,
	source, live *unstructured.Unstructured) {
	if r.wantsFields(source) {
		made.addUnfinished(o, withoutStatus(k, withManagedFields(live, nil)))
	} else {
		r.addLastWrite(ctx, unit, o, source, live)
	}
}

// recordUID has the UID of an object journaled: together with others, or at once for an object
// without a mark that stays until then.
func (r *run) recordUID(ctx context.Context, h *catalog.StepHandle, made *created,
	ref object.Ref, live *unstructured.Unstructured) error {
	uid := string(live.GetUID())
	if r.uid(ref) == uid {
		return nil
	}
	data, err := json.Marshal(uid)
	if err != nil {
		return err
	}
	value := catalog.Value{Key: ref.String(), Data: data}
	if hasUpdater(live, kube.MarkPrefix+r.Operation, "") {
		made.addUID(value)
	} else if err := h.Record(ctx, value); err != nil {
		return err
	}
	r.setUID(ref, uid)
	return nil
}

// applyOwn writes the status, which a create ignores, and removes the annotation that was the mark
// in earlier versions. Where it was the last annotation, the API server then removes the path of
// the whole map from the managedFields of all managers, so this comes before the managedFields.
func (r *run) applyOwn(ctx context.Context, k kube.Kind, o Object, source,
	live *unstructured.Unstructured) (_ *unstructured.Unstructured, err error) {
	if o.GroupKind() != capi.Cluster && !r.hasStatus(live) { // a Cluster's: completeCluster
		if live, err = r.applyStatus(ctx, k, live, source); err != nil {
			return nil, err
		}
	}
	return r.removeMark(ctx, k, live)
}

// applyFields writes the managedFields of created objects, whose UIDs are journaled: they lose the
// mark, and a host that goes on without this catalog knows them by their UIDs only. A target that
// refuses them for good, by a policy or since it cannot store them, leaves the objects without: a
// warning, since managedFields never keep a unit paused.
func (r *run) applyFields(ctx context.Context, h *catalog.StepHandle, unit string, made *created,
	each func(objects []Object, fn func(o Object) error) error) error {
	if len(made.unfinished) == 0 {
		return nil
	}
	if err := h.Sync(ctx); err != nil {
		return err
	}
	var refused notes
	err := each(made.unfinished, func(o Object) error {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		live, err := r.applyManagedFields(ctx, r.kinds[o.GroupKind()], made.live[o.Ref], source)
		switch {
		case isRefusal(err):
			refused.add(object.CodeManagedFields, o.Ref, []string{err.Error()})
			return nil
		case err != nil:
			return err
		}
		r.addLastWrite(ctx, unit, o, source, live)
		return nil
	})
	for _, n := range refused.notes {
		r.report(ctx, unit, object.Finding{Severity: object.Warning, Code: object.CodeManagedFields,
			Ref: n.first, Message: fmt.Sprintf("the target refuses the managedFields of %d objects: %s",
				n.objects, n.paths[0]), Hint: "the next apply of each controller writes its own " +
				"fields again; only a field that a controller stops applying before that has to be " +
				"removed by hand"})
	}
	return err
}

// isRefusal reports whether the target would answer the same request in the same way again.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

func (r *run) removeMark(ctx context.Context, k kube.Kind, live *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	live, err := r.converge(ctx, k, live, func(live *unstructured.Unstructured) (
		*unstructured.Unstructured, error) {
		if live.GetAnnotations()[annotationOperation] != r.Operation {
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
	ctx = r.withMark(ctx)
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

// applyManagedFields gives live the managedFields of source, in a write of their own, and returns
// the answer. It writes nothing when they are there already.
func (r *run) applyManagedFields(ctx context.Context, k kube.Kind, live,
	source *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := r.converge(ctx, k, live, func(live *unstructured.Unstructured) (
		*unstructured.Unstructured, error) {
		fields := movedFields(source, live)
		if equality.Semantic.DeepEqual(fields, managedFields(live)) {
			return live, nil
		}
		return r.Writer.Update(ctx, k, withoutStatus(k, withManagedFields(live, fields)))
	})
	if err != nil {
		return nil, fmt.Errorf("write managedFields: %w", err)
	}
	return live, nil
}

// wantsFields reports whether the managedFields of an object are written. Without them, appliers
// such as the topology controller would never remove a field again.
func (r *run) wantsFields(source *unstructured.Unstructured) bool {
	switch r.Plan.Spec.ManagedFields {
	case FieldsNone:
		return false
	case FieldsAll:
		return len(managers(source)) > 0
	default:
		return slices.ContainsFunc(managers(source), func(entry map[string]any) bool {
			return entry["operation"] == string(metav1.ManagedFieldsOperationApply)
		})
	}
}
