package observe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OwnAnnotations is the prefix of the product's own annotations. Compare ignores them.
const OwnAnnotations = "mgmtd.dev/"

// Values of Difference.What.
const (
	Gone      = "gone"
	New       = "new"
	Different = "different"
)

// Difference is one object that is not what it was.
type Difference struct {
	Ref  Ref
	What string
	// Paths are the fields that differ, never their values.
	Paths []string
}

// String describes the difference for people.
func (d Difference) String() string {
	if d.What != Different {
		return d.Ref.String() + " is " + d.What
	}
	return fmt.Sprintf("%s differs in %s", d.Ref, strings.Join(d.Paths, ", "))
}

// Options of Compare; the zero value compares everything.
type Options struct {
	// WithoutStatus ignores status: controllers rewrite it once the object is unpaused.
	WithoutStatus bool
}

// Compare reports which objects are gone, new or different, sorted by name.
//
// It ignores uid, resourceVersion, generation, creationTimestamp, UIDs of owners,
// observedGeneration, times and generations of conditions, the Paused condition, and annotations
// mgmtd.dev/*. managedFields compare as the fields that server-side appliers own (appliedPaths).
func Compare(before, after Objects, opts Options) []Difference {
	var differences []Difference
	for _, ref := range before.Refs() {
		is, ok := after[ref]
		if !ok {
			differences = append(differences, Difference{Ref: ref, What: Gone})
			continue
		}
		if paths := differing(before[ref], is, opts); len(paths) > 0 {
			differences = append(differences, Difference{Ref: ref, What: Different, Paths: paths})
		}
	}
	for _, ref := range after.Refs() {
		if _, ok := before[ref]; !ok {
			differences = append(differences, Difference{Ref: ref, What: New})
		}
	}
	return differences
}

// Left reports the objects that a move should have deleted from its source: all but Namespaces.
func Left(objects Objects) []string {
	var left []string
	for _, ref := range objects.Refs() {
		if !isNamespace(ref) {
			left = append(left, ref.String()+" is still there")
		}
	}
	return left
}

func differing(was, is *unstructured.Unstructured, opts Options) []string {
	var paths []string
	walk("", normalized(was, opts), normalized(is, opts), &paths)
	slices.Sort(paths)
	return paths
}

// normalized is a copy of the content of o without what Compare ignores.
func normalized(o *unstructured.Unstructured, opts Options) map[string]any {
	content := o.DeepCopy().Object
	metadata, _ := content["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp"} {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, func(key string, _ any) bool {
			return strings.HasPrefix(key, OwnAnnotations)
		})
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	if opts.WithoutStatus {
		delete(content, "status")
	}
	applied := appliedPaths(content) // while owners have their UIDs
	delete(metadata, "managedFields")
	if len(applied) > 0 {
		metadata["managedFields"] = applied
	}
	if owners, ok := metadata["ownerReferences"].([]any); ok {
		for _, owner := range owners {
			delete(owner.(map[string]any), "uid")
		}
		sortByText(owners)
	}
	if status, ok := content["status"].(map[string]any); ok {
		if normalizeStatus(status); len(status) == 0 {
			delete(content, "status")
		}
	}
	return content
}

// appliedPaths returns, by applier, the leaf paths that server-side apply recorded in managedFields
// and that content has. They decide which fields an applier removes the next time; other entries
// only record who wrote last. A path that content does not have decides nothing: an applier of an
// empty map owns "f:annotations": {}, and the API server drops that path when the last key of the
// map is removed by anybody (structured-merge-diff v6, merge/update.go, Update).
func appliedPaths(content map[string]any) map[string]any {
	appliers := map[string]any{}
	entries, _, _ := unstructured.NestedSlice(content, "metadata", "managedFields")
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		fields, ok := entry["fieldsV1"].(map[string]any)
		if !ok || entry["operation"] != "Apply" {
			continue
		}
		name := fmt.Sprint(entry["manager"])
		if subresource, ok := entry["subresource"]; ok {
			name += fmt.Sprint(" of ", subresource)
		}
		paths, ok := appliers[name].(map[string]any)
		if !ok {
			paths = map[string]any{}
		}
		if addLeaves("", fields, content, paths); len(paths) > 0 {
			appliers[name] = paths
		}
	}
	return appliers
}

// addLeaves adds to paths the leaves of fields that value has.
func addLeaves(path string, fields map[string]any, value any, paths map[string]any) {
	for element, below := range fields {
		selected, name, ok := selectElement(value, element)
		if !ok {
			continue
		}
		if sub, _ := below.(map[string]any); len(sub) > 0 {
			addLeaves(step(path, name), sub, selected, paths)
		} else {
			paths[step(path, name)] = true
		}
	}
}

// selectElement returns what an element of fieldsV1 selects in value, and its name in a path:
// f:name is a field, k:{...} the item of a list that has these fields, v:... the item that is this
// value, i:0 the item at this position. An owner reference is named by kind and name, since its key
// is a UID.
func selectElement(value any, element string) (selected any, name string, ok bool) {
	kind, rest, _ := strings.Cut(element, ":")
	if fields, isMap := value.(map[string]any); isMap && kind == "f" {
		selected, ok = fields[rest]
		return selected, rest, ok
	}
	var want any
	_ = json.Unmarshal([]byte(rest), &want) // no item is equal to what is not JSON
	list, _ := value.([]any)
	for i, item := range list {
		fields, _ := item.(map[string]any)
		keys, _ := want.(map[string]any)
		switch {
		case kind == "i" && text(i) == rest, kind == "v" && text(item) == text(want):
			return item, element, true
		case kind == "k" && len(keys) > 0 && hasFields(fields, keys):
			if len(keys) == 1 && keys["uid"] != nil {
				element = fmt.Sprintf("owner %v %v", fields["kind"], fields["name"])
			}
			return item, element, true
		}
	}
	return nil, "", false
}

func hasFields(item, fields map[string]any) bool {
	for key, value := range fields {
		if is, ok := item[key]; !ok || text(is) != text(value) {
			return false
		}
	}
	return true
}

func setOrDelete(content map[string]any, field string, list []any) {
	if content[field] = list; len(list) == 0 {
		delete(content, field)
	}
}

// normalizeStatus removes observedGeneration at any depth, and times and generations from
// conditions.
func normalizeStatus(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			normalizeStatus(element)
		}
	case map[string]any:
		delete(value, "observedGeneration")
		if conditions, ok := value["conditions"].([]any); ok {
			setOrDelete(value, "conditions", normalConditions(conditions))
		}
		for key, element := range value {
			normalizeStatus(element)
			if content, ok := element.(map[string]any); ok && len(content) == 0 {
				delete(value, key)
			}
		}
	}
}

func normalConditions(conditions []any) []any {
	var normal []any
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if ok && condition["type"] == "Paused" {
			continue
		}
		for _, field := range []string{"lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime",
			"observedGeneration"} {
			delete(condition, field)
		}
		normal = append(normal, item)
	}
	// The order of conditions means nothing.
	slices.SortFunc(normal, func(a, b any) int { return cmp.Compare(typeOf(a), typeOf(b)) })
	return normal
}

func typeOf(condition any) string {
	content, _ := condition.(map[string]any)
	name, _ := content["type"].(string)
	return name
}

func sortByText(list []any) {
	slices.SortFunc(list, func(a, b any) int { return cmp.Compare(text(a), text(b)) })
}

// text is the JSON of value. It is canonical, since encoding/json sorts keys.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // value was decoded from JSON
	}
	return string(data)
}

// walk adds to paths where a and b differ.
func walk(path string, a, b any, paths *[]string) {
	if x, ok := a.(map[string]any); ok {
		if y, ok := b.(map[string]any); ok {
			for key := range x {
				at := step(path, key)
				if _, ok := y[key]; !ok {
					*paths = append(*paths, at)
					continue
				}
				walk(at, x[key], y[key], paths)
			}
			for key := range y {
				if _, ok := x[key]; !ok {
					*paths = append(*paths, step(path, key))
				}
			}
			return
		}
	}
	if x, ok := a.([]any); ok {
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				walk(fmt.Sprintf("%s[%d]", path, i), x[i], y[i], paths)
			}
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		*paths = append(*paths, path)
	}
}

func step(path, key string) string {
	if strings.ContainsAny(key, "./") {
		key = fmt.Sprintf("[%q]", key)
		return path + key
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
