package equality

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
)

// ManagedFieldsDifferences returns the fields that a server-side applier owns in one of two objects
// and not in the other, as "metadata.managedFields[manager].path", sorted. Entries compare as sets
// of manager, subresource and leaf paths. Three things do not count:
//   - Entries of plain updates, which only record who wrote last.
//   - Times and versions of entries.
//   - Paths that do not exist in their object. An applier of an empty map owns the map itself
//     ("f:annotations": {}), and the API server drops that path from all entries when the last key
//     of the map is removed by anybody (structured-merge-diff, merge/update.go, Update).
//
// Owner references have the owner's UID in their path, and compare by kind and name.
func ManagedFieldsDifferences(rows *capi.Table, want, got map[string]any) []string {
	a, b := appliedPaths(rows, want), appliedPaths(rows, got)
	var paths []string
	for path, shown := range a {
		if _, ok := b[path]; !ok {
			paths = append(paths, shown)
		}
	}
	for path, shown := range b {
		if _, ok := a[path]; !ok {
			paths = append(paths, shown)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// appliedPaths returns the leaf paths that server-side appliers own and that exist in obj. A value
// is the path as it may be shown: without the values of lists, which may be those of Secrets.
func appliedPaths(rows *capi.Table, obj map[string]any) map[string]string {
	meta, _ := obj["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	paths := map[string]string{}
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		fields, isSet := entry["fieldsV1"].(map[string]any)
		if !ok || !isSet || entry["operation"] != "Apply" {
			continue
		}
		manager := fmt.Sprint(entry["manager"])
		if subresource, ok := entry["subresource"].(string); ok && subresource != "" {
			manager += "/" + subresource
		}
		l := leaves{paths: paths}
		head := "metadata.managedFields[" + manager + "]"
		l.walk(fields, withoutOwnAnnotations(rows, obj), head, head)
	}
	return paths
}

// withoutOwnAnnotations returns obj with otherAnnotations alone, and without the map when there are
// none. It shares unchanged parts with obj.
func withoutOwnAnnotations(rows *capi.Table, obj map[string]any) map[string]any {
	meta, _ := obj["metadata"].(map[string]any)
	if _, ok := meta["annotations"].(map[string]any); !ok {
		return obj
	}
	out := without(obj).(map[string]any)
	meta = without(meta, "annotations").(map[string]any)
	annotations := otherAnnotations(obj["metadata"].(map[string]any), rows.RowOf(obj))
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	out["metadata"] = meta
	return out
}

// leaves collects the leaf paths of a set of fields (fieldsV1).
type leaves struct {
	paths map[string]string // by full path: the path as it may be shown
}

// walk adds the leaf paths of fields that exist in value.
func (l leaves) walk(fields map[string]any, value any, path, shown string) {
	for key, sub := range fields {
		if key == "." {
			continue // the parent itself, which is no leaf
		}
		child, name, ok := descend(value, key)
		if !ok {
			continue
		}
		childPath, childShown := path+"."+name, shown+"."+shownElement(key, name)
		if set, isSet := sub.(map[string]any); isSet && len(set) > 0 {
			l.walk(set, child, childPath, childShown)
			continue
		}
		l.paths[childPath] = childShown
	}
}

// shownElement is name without values: an element of a list is shown by its name or type only.
func shownElement(element, name string) string {
	kind, rest, _ := strings.Cut(element, ":")
	if kind == "v" {
		return "v:*"
	}
	if kind != "k" || name != element {
		return name
	}
	var keys struct{ Name, Type string }
	if json.Unmarshal([]byte(rest), &keys) != nil || keys.Name+keys.Type == "" {
		return "k:*"
	}
	return "k:" + cmp.Or(keys.Name, keys.Type)
}

// descend follows one element of a fieldsV1 path: "f:" a field, "k:" the element of a list with
// these keys, "v:" an element of a list of scalars, "i:" a position. name is the element as a path
// names it; ok is false when value does not have it.
func descend(value any, element string) (child any, name string, ok bool) {
	kind, rest, _ := strings.Cut(element, ":")
	if kind == "f" {
		m, isMap := value.(map[string]any)
		child, ok = m[rest]
		return child, rest, isMap && ok
	}
	list, _ := value.([]any)
	switch kind {
	case "k":
		var keys map[string]any
		if json.Unmarshal([]byte(rest), &keys) != nil {
			return nil, element, false
		}
		for _, item := range list {
			if m, isMap := item.(map[string]any); isMap && hasKeys(m, keys) {
				return item, itemName(m, keys, element), true
			}
		}
	case "v":
		var want any
		if json.Unmarshal([]byte(rest), &want) != nil {
			return nil, element, false
		}
		for _, item := range list {
			if sameScalar(item, want) {
				return item, element, true
			}
		}
	case "i":
		if i, err := strconv.Atoi(rest); err == nil && i >= 0 && i < len(list) {
			return list[i], element, true
		}
	}
	return nil, element, false
}

func hasKeys(item, keys map[string]any) bool {
	for k, v := range keys {
		if !sameScalar(item[k], v) {
			return false
		}
	}
	return len(keys) > 0
}

// sameScalar compares two scalars; maps and lists are never the same.
func sameScalar(a, b any) bool {
	for _, v := range []any{a, b} {
		switch v.(type) {
		case map[string]any, []any:
			return false
		}
	}
	return a == b || sameNumber(a, b)
}

// itemName names an element of a list. Owner references are keyed by UID, which is another one on
// every management cluster, and are named by kind and name.
func itemName(item, keys map[string]any, element string) string {
	if _, byUID := keys["uid"]; byUID && len(keys) == 1 && item["kind"] != nil {
		return fmt.Sprintf("owner %v/%v", item["kind"], item["name"])
	}
	return element
}
