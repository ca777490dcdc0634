package restore

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// patience is how long a difference has to last before it counts: a controller of the target may
// be in the middle of its first write.
const patience = 15 * time.Second

// verify compares the copy with the snapshot, paused as it is, with every owner reference on a
// live UID. What differs without keeping the unit paused is reported. Of a unit that is as its
// pre-copy is, the acknowledgements are read together with that.
func (r *run) verify(ctx context.Context, u Unit) error {
	var seen notes
	problem := r.verifier(ctx, &seen)
	if r.isUntouched(u) {
		wanted, _, err := r.acknowledging(ctx, u)
		if err != nil {
			return err
		}
		problem = acknowledged(wanted, problem)
	}
	objects, first := r.verifyUnchanged(ctx, early(u.Objects), &seen), ""
	var versions kube.Followed
	equal, err := retry.Poll(ctx, retry.Backoff{First: time.Second / 2, Longest: time.Second / 2},
		patience, func(ctx context.Context) (_ bool, err error) {
			objects, first, err = r.problems(ctx, objects, &versions, problem)
			return len(objects) == 0, err
		})
	if err == nil && !equal {
		err = &differentError{Objects: len(objects), First: first}
	}
	if err != nil {
		return err
	}
	for _, f := range seen.findings(u.Name) {
		r.report(ctx, u.Name, f)
	}
	return nil
}

// acknowledged returns a function that also asks for the acknowledgement of the pause of some
// objects.
func acknowledged(wanted []Object, problem problemFunc) problemFunc {
	refs := map[object.Ref]bool{}
	for _, o := range wanted {
		refs[o.Ref] = true
	}
	return func(o Object, source, live *unstructured.Unstructured) string {
		if refs[o.Ref] {
			if why := unseenPause(o, source, live); why != "" {
				return why
			}
		}
		return problem(o, source, live)
	}
}

// verifier returns a function that compares an object with the snapshot. What differs without
// keeping a unit paused is added to seen.
func (r *run) verifier(ctx context.Context, seen *notes) problemFunc {
	return func(o Object, source, live *unstructured.Unstructured) string {
		d, why := r.difference(ctx, o, source, live)
		if why == "" {
			seen.addDeviation(o.Ref, d)
		}
		return why
	}
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
	row := r.Rows.Row(o.GroupKind())
	if row.PerManagementCluster {
		return nil, nil
	}
	want := source.DeepCopy()
	switch pause := row.Pause; {
	case capi.PausedByUs(live.Object):
		r.Rows.Pause(want.Object)
	case pause.Order() > 0 && pause.AtWork(false):
		return nil, nil // released by a run that died then
	}
	shared := r.unitOf[o.Ref] == "" // its owners may come later
	if err := r.setOwners(want, o, shared); err != nil {
		return nil, err
	}
	return withManagedFields(want, movedFields(source, want)), nil
}

// difference compares a live object with what it should be while it is paused. why is not empty
// when it may not be released, for which managedFields are no reason.
func (r *run) difference(ctx context.Context, o Object, source, live *unstructured.Unstructured) (
	d deviation, why string) {
	return r.differenceBy(ctx, r.standard(), o, source, live)
}

// differenceBy is difference by another standard than that of the run.
func (r *run) differenceBy(ctx context.Context, s standard, o Object, source,
	live *unstructured.Unstructured) (d deviation, why string) {
	want, err := r.wantedPaused(o, source, live)
	if err != nil {
		return d, err.Error()
	}
	if want == nil {
		return d, ""
	}
	if why := wrongOwner(want, live); why != "" {
		return d, why
	}
	fields := r.fieldsDiffer(o, source, want, live)
	if r.unitOf[o.Ref] == "" {
		live = live.DeepCopy()
		live.SetOwnerReferences(want.GetOwnerReferences())
		if len(want.GetOwnerReferences()) == 0 {
			unstructured.RemoveNestedField(live.Object, fieldMetadata, fieldOwnerReferences)
		}
	}
	if o.GroupKind() == kube.NamespaceKind.GroupKind {
		labels, annotations := namespaceDifferences(r.Rows, want, live)
		d.annotations = annotations
		if len(labels) > 0 {
			return d, "it has other labels: " + strings.Join(labels, ", ")
		}
		return d, ""
	}
	aspect := equality.Values
	row := r.Rows.Row(o.GroupKind())
	if row.StatusWhilePaused || !capi.PausedByUs(live.Object) && row.Pause.AtWork(false) {
		aspect = equality.Spec // its controller writes the status
	}
	d = s.judge(ctx, o.Ref, want, live, aspect)
	d.managedFields = fields
	if d.difference() == "" {
		if paths := s.comparedPaths(r.Rows.Row(o.GroupKind()), source, d); len(paths) > 0 {
			return d, "Cluster API would replace Machines because of " + shortened(paths)
		}
	}
	return d, d.difference()
}

func (r *run) standard() standard {
	return standard{prober: r.Prober, kinds: r.Kinds, accept: r.Plan.Spec.Accept,
		rows: r.Rows}
}

// fieldsDiffer returns the fields of a live object whose server-side appliers are not those of
// want; nil when its managedFields are not restored, or when its controller has been at work.
func (r *run) fieldsDiffer(o Object, source, want, live *unstructured.Unstructured) []string {
	if !r.wantsFields(source) || o.GroupKind() == kube.NamespaceKind.GroupKind ||
		!capi.PausedByUs(live.Object) && r.Rows.Row(o.GroupKind()).Pause.AtWork(false) {
		return nil
	}
	return equality.ManagedFieldsDifferences(r.Rows, want.Object, live.Object)
}
