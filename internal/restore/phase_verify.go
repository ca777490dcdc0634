package restore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// patience is how long a difference has to last before it counts: a controller of the target may be
// in the middle of its first write.
const patience = 15 * time.Second

// verify compares the copy with the snapshot, paused as it is, with every owner reference on a live
// UID.
func (r *run) verify(ctx context.Context, u Unit) error {
	var fields fieldDifferences
	problem := func(o Object, source, live *unstructured.Unstructured) string {
		why := r.difference(o, source, live)
		if why == "" {
			fields.add(o.Ref, r.fieldsDiffer(o, source, live))
		}
		return why
	}
	objects, first := early(u.Objects), ""
	equal, err := retry.Poll(ctx, retry.Backoff{First: time.Second / 2, Longest: time.Second / 2},
		patience, func(ctx context.Context) (_ bool, err error) {
			objects, first, err = r.problems(ctx, objects, problem)
			return len(objects) == 0, err
		})
	if err == nil && !equal {
		err = fmt.Errorf("verify: %d objects on the target are not equal to the snapshot, the first: %s",
			len(objects), first)
	}
	if err != nil {
		return err
	}
	if f, ok := fields.finding(u.Name); ok {
		r.report(ctx, u.Name, f)
	}
	return nil
}

func early(objects []Object) []Object {
	var out []Object
	for _, o := range objects {
		if !o.Late && o.Action != Skip {
			out = append(out, o)
		}
	}
	return out
}

// wantedPaused returns what live should be while it is paused; nil when nothing is known of that:
// its controller has been at work.
func (r *run) wantedPaused(o Object, source, live *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if o.Action == Adopt && (!capi.PausedByUs(live.Object) ||
		o.GroupKind() == kube.NamespaceKind.GroupKind) {
		return nil, nil // pre-flight found it equal
	}
	want := source.DeepCopy()
	switch pause := r.Rows.Row(o.GroupKind()).Pause; {
	case capi.PausedByUs(live.Object):
		r.Rows.Pause(want.Object)
	case pause.Order() > 0 && pause.AtWork(false):
		return nil, nil // released by a run that died then
	}
	shared := r.unitOf[o.Ref] == "" // its owners may come later
	if err := r.setOwners(want, o, shared); err != nil {
		return nil, err
	}
	want.SetManagedFields(movedFields(source, want))
	return want, nil
}

// difference compares a live object with what it should be while it is paused. managedFields are
// not among it: see fieldsDiffer.
func (r *run) difference(o Object, source, live *unstructured.Unstructured) string {
	want, err := r.wantedPaused(o, source, live)
	if err != nil {
		return err.Error()
	}
	if want == nil {
		return ""
	}
	if why := wrongOwner(want, live); why != "" {
		return why
	}
	if r.unitOf[o.Ref] == "" {
		live = live.DeepCopy()
		live.SetOwnerReferences(want.GetOwnerReferences())
		if len(want.GetOwnerReferences()) == 0 {
			unstructured.RemoveNestedField(live.Object, fieldMetadata, fieldOwnerReferences)
		}
	}
	if o.GroupKind() == kube.NamespaceKind.GroupKind {
		if missing := namespaceDifferences(r.Rows, want, live); len(missing) > 0 {
			return "it lacks " + strings.Join(missing, ", ")
		}
		return ""
	}
	aspect := equality.Values
	if !capi.PausedByUs(live.Object) && r.Rows.Row(o.GroupKind()).Pause.AtWork(false) {
		aspect = equality.Spec // its controller is at work
	}
	if paths := equality.Differences(want.Object, live.Object, aspect); len(paths) > 0 {
		return "it differs in " + strings.Join(paths, ", ")
	}
	return ""
}

// fieldsDiffer returns the fields of a live object whose server-side appliers are not those of the
// snapshot; nil when its managedFields are not restored, or when its controller has been at work.
func (r *run) fieldsDiffer(o Object, source, live *unstructured.Unstructured) []string {
	if !r.wantsFields(source) || o.GroupKind() == kube.NamespaceKind.GroupKind ||
		!capi.PausedByUs(live.Object) && r.Rows.Row(o.GroupKind()).Pause.AtWork(false) {
		return nil
	}
	want, err := r.wantedPaused(o, source, live)
	if err != nil || want == nil {
		return nil
	}
	return equality.ManagedFieldsDifferences(want.Object, live.Object)
}

// fieldDifferences collects objects whose managedFields are not those of the snapshot. It is used
// concurrently.
type fieldDifferences struct {
	mu      sync.Mutex
	objects int
	first   object.Ref
	paths   []string
}

func (d *fieldDifferences) add(ref object.Ref, paths []string) {
	if len(paths) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects++
	if d.objects == 1 || object.CompareRefs(ref, d.first) < 0 {
		d.first, d.paths = ref, paths
	}
}

// finding is a warning about all objects of one unit; ok is false when there is none. managedFields
// say which controller may remove a field again, not what the object is, so they never leave a unit
// paused.
func (d *fieldDifferences) finding(unit string) (f object.Finding, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.objects == 0 {
		return object.Finding{}, false
	}
	const most = 5
	paths := d.paths
	more := ""
	if len(paths) > most {
		more = fmt.Sprintf(" and %d more", len(paths)-most)
		paths = paths[:most]
	}
	return object.Finding{Severity: object.Warning, Code: object.CodeManagedFields, Unit: unit,
		Ref: d.first,
		Message: fmt.Sprintf("server-side appliers do not own the same fields as in the snapshot: "+
			"%d objects, the first differs in %s%s", d.objects, strings.Join(paths, ", "), more),
		Hint: "the next apply of each controller writes its own fields again; only a field that a " +
			"controller stops applying before that has to be removed by hand"}, true
}
