package equality

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
)

// annotationPrefix marks the annotations of this product, which never count as a difference.
const annotationPrefix = "mgmtd.dev/"

// Aspect is a part of an object that a comparison may leave out.
type Aspect int

// All compares everything. Values leaves out managedFields. Spec leaves out status as well, which
// controllers rewrite as soon as they run.
const (
	All Aspect = iota
	Values
	Spec
)

// Differences returns the paths at which two objects are not equal, at most 20 of them, and none
// when they are equal. Equal means equal but for what every management cluster sets itself: uid,
// resourceVersion, generation, creation and deletion timestamps, owner UIDs and versions,
// observedGeneration, the times and generations of conditions, the volatile conditions of the
// kind's row such as Paused, annotations mgmtd.dev/*, and what conversion webhooks store in an
// annotation. managedFields compare as ManagedFieldsDifferences does. rows may be nil, which is
// the built-in table. It returns paths and never values, since values may be those of Secrets.
func Differences(rows *capi.Table, want, got map[string]any, aspect Aspect) []string {
	var paths []string
	diff(Normal(rows, want, aspect), Normal(rows, got, aspect), "", &paths)
	if aspect == All {
		paths = append(paths, ManagedFieldsDifferences(rows, want, got)...)
	}
	slices.Sort(paths)
	return paths[:min(len(paths), 20)]
}

// Normal returns a copy of obj without what Differences ignores. It shares unchanged parts with
// obj, but neither its metadata nor its annotations.
func Normal(rows *capi.Table, obj map[string]any, aspect Aspect) map[string]any {
	out := maps.Clone(obj)
	if meta, ok := obj["metadata"].(map[string]any); ok {
		out["metadata"] = normalMetadata(meta, rows.RowOf(obj))
	}
	delete(out, "status")
	if status, ok := obj["status"].(map[string]any); ok && aspect != Spec {
		if s := normalStatus(status, rows.RowOf(obj)).(map[string]any); len(s) > 0 {
			out["status"] = s
		}
	}
	return out
}

func normalMetadata(meta map[string]any, row *capi.Row) map[string]any {
	out := maps.Clone(meta)
	for _, f := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		delete(out, f)
	}
	if _, ok := meta["annotations"].(map[string]any); ok {
		delete(out, "annotations")
		if annotations := otherAnnotations(meta, row); len(annotations) > 0 {
			out["annotations"] = annotations
		}
	}
	if owners, ok := meta["ownerReferences"].([]any); ok {
		refs := make([]any, len(owners))
		for i, o := range owners {
			refs[i] = ownerIdentity(o)
		}
		slices.SortFunc(refs, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		out["ownerReferences"] = refs
	}
	return out
}

// ownerIdentity returns an owner reference without what does not say who the owner is: its UID,
// and the version of its group, which controllers update to the newest.
func ownerIdentity(owner any) any {
	ref, ok := without(owner, "uid").(map[string]any)
	if !ok {
		return owner
	}
	apiVersion, _ := ref["apiVersion"].(string)
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		ref["apiVersion"] = group
	}
	return ref
}

// otherAnnotations returns a copy of the annotations that are neither of this product nor volatile.
func otherAnnotations(meta map[string]any, row *capi.Row) map[string]any {
	annotations, _ := meta["annotations"].(map[string]any)
	others := maps.Clone(annotations)
	maps.DeleteFunc(others, func(k string, _ any) bool {
		return strings.HasPrefix(k, annotationPrefix) || row.IsVolatileAnnotation(k)
	})
	return others
}

// normalStatus returns v without observedGeneration at any depth, and with normal conditions. row
// is that of the kind.
func normalStatus(v any, row *capi.Row) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if k == "observedGeneration" {
				continue
			}
			if list, ok := e.([]any); ok && k == "conditions" {
				if conditions := normalConditions(list, row); len(conditions) > 0 {
					out[k] = conditions
				}
				continue
			}
			e = normalStatus(e, row)
			if m, ok := e.(map[string]any); ok && len(m) == 0 {
				continue
			}
			out[k] = e
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = normalStatus(e, row)
		}
		return out
	default:
		return v
	}
}

// normalConditions returns the conditions that are not volatile by type, without their times and
// generations.
func normalConditions(list []any, row *capi.Row) map[string]any {
	byType := map[string]any{}
	for _, c := range list {
		m, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if name := fmt.Sprint(m["type"]); !row.IsVolatile(name) {
			byType[name] = without(m, "type", "lastTransitionTime", "lastUpdateTime",
				"lastHeartbeatTime", "observedGeneration")
		}
	}
	return byType
}

func without(v any, keys ...string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	m = maps.Clone(m)
	for _, k := range keys {
		delete(m, k)
	}
	return m
}

func diff(a, b any, path string, paths *[]string) {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if aok && bok {
		for k := range am {
			diff(am[k], bm[k], join(path, k), paths)
		}
		for k := range bm {
			if _, ok := am[k]; !ok {
				*paths = append(*paths, join(path, k))
			}
		}
		return
	}
	al, aok := a.([]any)
	bl, bok := b.([]any)
	if aok && bok && len(al) == len(bl) {
		for i := range al {
			diff(al[i], bl[i], fmt.Sprintf("%s[%d]", path, i), paths)
		}
		return
	}
	if !reflect.DeepEqual(a, b) && !sameNumber(a, b) {
		*paths = append(*paths, path)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// sameNumber compares numbers that one decoder gives as int64 and another as float64.
func sameNumber(a, b any) bool {
	af, aok := number(a)
	bf, bok := number(b)
	return aok && bok && af == bf
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
