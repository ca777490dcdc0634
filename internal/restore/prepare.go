package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// strip removes what a management cluster sets itself; what is left can be created.
func strip(u *unstructured.Unstructured) {
	for _, f := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		unstructured.RemoveNestedField(u.Object, fieldMetadata, f)
	}
}

// prepare turns an object of the snapshot into the one to create: paused, marked as ours, with
// owner references to live UIDs. With partial, owners that are not on the target yet are left out,
// since they follow. Without it they are an error: the garbage collector deletes an object with an
// unknown owner.
func (r *run) prepare(u *unstructured.Unstructured, o Object, workloadID string,
	partial bool) error {
	strip(u)
	r.Rows.Pause(u.Object)
	if workloadID != "" && o.GroupKind() == capi.Cluster {
		capi.Annotate(u.Object, capi.AnnotationWorkloadID, workloadID)
	}
	return r.setOwners(u, o, partial)
}

// setOwners rewrites the owner references to the UIDs that live on the target.
func (r *run) setOwners(u *unstructured.Unstructured, o Object, partial bool) error {
	var refs []metav1.OwnerReference
	position := 0
	for _, ref := range u.GetOwnerReferences() {
		if position == len(o.Owners) || !sameOwner(ref, o.Owners[position]) {
			continue // dropped by the plan
		}
		uid := o.Outside[position]
		if uid == "" {
			uid = r.uid(o.Owners[position])
		}
		if uid == "" && !partial {
			return fmt.Errorf("its owner %s does not live on the target", o.Owners[position])
		}
		if uid != "" {
			ref.UID = types.UID(uid)
			refs = append(refs, ref)
		}
		position++
	}
	u.SetOwnerReferences(refs)
	if len(refs) == 0 {
		unstructured.RemoveNestedField(u.Object, fieldMetadata, fieldOwnerReferences)
	}
	return nil
}

// wrongOwner names an owner reference of live that has another UID than the same one of want; ""
// when there is none.
func wrongOwner(want, live *unstructured.Unstructured) string {
	for _, is := range live.GetOwnerReferences() {
		for _, should := range want.GetOwnerReferences() {
			if is.Kind == should.Kind && is.Name == should.Name && is.APIVersion == should.APIVersion &&
				is.UID != should.UID {
				return fmt.Sprintf("its owner %s/%s is not the one that lives", is.Kind, is.Name)
			}
		}
	}
	return ""
}

func sameOwner(ref metav1.OwnerReference, owner object.Ref) bool {
	group, _, ok := strings.Cut(ref.APIVersion, "/")
	if !ok {
		group = ""
	}
	return group == owner.Group && ref.Kind == owner.Kind && ref.Name == owner.Name
}

// movedFields returns the managedFields of source for live, without those of our own pauses and
// marks. They name owner references by UID, so these UIDs are replaced by those of the owners of
// live. The entries stay what JSON made of them: GetManagedFields would encode and decode each.
func movedFields(source, live *unstructured.Unstructured) []any {
	var uids []string // pairs of an old and a new one
	for _, was := range source.GetOwnerReferences() {
		for _, is := range live.GetOwnerReferences() {
			if was.Kind == is.Kind && was.Name == is.Name {
				uids = append(uids, string(was.UID), string(is.UID))
			}
		}
	}
	fields := withoutOwn(managedFields(source))
	if len(uids) == 0 {
		return fields
	}
	replacer := strings.NewReplacer(uids...)
	moved := make([]any, 0, len(fields))
	for _, e := range fields {
		if entry, ok := e.(map[string]any); ok {
			entry = maps.Clone(entry)
			entry["fieldsV1"] = renamed(entry["fieldsV1"], replacer)
			e = entry
		}
		moved = append(moved, e)
	}
	return moved
}

// passing are the annotations that operations of ours write for as long as they last, or for one
// management cluster.
var passing = []string{capi.AnnotationOperation, capi.AnnotationEpoch, capi.AnnotationFenced,
	capi.AnnotationWasPaused}

// withoutOwn returns entries of managedFields without the fields that operations of ours write to a
// source: its switches and our marks. On a copy they would say that it was paused or released since
// it was created (pausedSince).
func withoutOwn(fields []any) []any {
	if !slices.ContainsFunc(fields, isOwn) {
		return fields
	}
	var out []any
	for _, e := range fields {
		if !isOwn(e) {
			out = append(out, e)
			continue
		}
		entry := runtime.DeepCopyJSON(e.(map[string]any)) //nolint:forcetypeassert // isOwn
		set, _ := entry["fieldsV1"].(map[string]any)
		for name := range annotationsIn(set) {
			annotation := strings.TrimPrefix(name, "f:")
			if slices.Contains(passing, annotation) || capi.PausesObject(annotation) {
				unstructured.RemoveNestedField(set, "f:metadata", "f:annotations", name)
			}
		}
		unstructured.RemoveNestedField(set, "f:spec", "f:paused")
		if removeEmpty(set); len(set) > 0 {
			out = append(out, entry)
		}
	}
	return out
}

// isOwn reports whether an entry of managedFields is that of a write of ours which is no creation.
func isOwn(e any) bool {
	entry, ok := e.(map[string]any)
	return ok && entry["manager"] == kube.DefaultFieldManager
}

func annotationsIn(set map[string]any) map[string]any {
	annotations, _, _ := unstructured.NestedMap(set, "f:metadata", "f:annotations")
	return annotations
}

// removeEmpty removes the parents of which nothing is left but themselves.
func removeEmpty(set map[string]any) {
	for _, path := range [][]string{{"f:metadata", "f:annotations"}, {"f:metadata"}, {"f:spec"}} {
		left, found, _ := unstructured.NestedMap(set, path...)
		if delete(left, "."); found && len(left) == 0 {
			unstructured.RemoveNestedField(set, path...)
		}
	}
}

// renamed returns a set of fields with replacements in all of its names.
func renamed(v any, replacer *strings.Replacer) any {
	set, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(set))
	for name, sub := range set {
		out[replacer.Replace(name)] = renamed(sub, replacer)
	}
	return out
}

// managedFields returns the entries of u as they are.
func managedFields(u *unstructured.Unstructured) []any {
	meta, _ := u.Object[fieldMetadata].(map[string]any)
	fields, _ := meta["managedFields"].([]any)
	return fields
}

// withManagedFields returns u with these entries. It shares everything else with u.
func withManagedFields(u *unstructured.Unstructured, fields []any) *unstructured.Unstructured {
	meta, _ := u.Object[fieldMetadata].(map[string]any)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]any{}
	}
	meta["managedFields"] = fields
	if len(fields) == 0 {
		delete(meta, "managedFields")
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.Object[fieldMetadata] = meta
	return out
}

// RemoveOwnerRefs removes the owner references of u to the UIDs in leaving. It reports whether it
// changed anything.
func RemoveOwnerRefs(u *unstructured.Unstructured, leaving map[types.UID]bool) (changed bool) {
	refs := u.GetOwnerReferences()
	stay := slices.DeleteFunc(slices.Clone(refs), func(ref metav1.OwnerReference) bool {
		return leaving[ref.UID]
	})
	if len(stay) == len(refs) {
		return false
	}
	u.SetOwnerReferences(stay)
	if len(stay) == 0 {
		unstructured.RemoveNestedField(u.Object, fieldMetadata, fieldOwnerReferences)
	}
	return true
}
