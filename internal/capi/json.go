package capi

import (
	"maps"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// kindOf returns the kind that a decoded object says that it is of.
func kindOf(obj map[string]any) object.GroupKind {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = ""
	}
	return object.GroupKind{Group: group, Kind: kind}
}

func annotations(obj map[string]any) map[string]any {
	meta, _ := obj["metadata"].(map[string]any)
	a, _ := meta["annotations"].(map[string]any)
	return a
}

// Annotate sets one annotation. The map of annotations is copied: copies of obj may share it.
func Annotate(obj map[string]any, key, value string) {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		obj["metadata"] = meta
	}
	a := maps.Clone(annotations(obj))
	if a == nil {
		a = map[string]any{}
	}
	a[key] = value
	meta["annotations"] = a
}

// Unannotate removes one annotation, and the field with the last of them.
func Unannotate(obj map[string]any, key string) {
	a := maps.Clone(annotations(obj))
	if _, ok := a[key]; !ok {
		return
	}
	delete(a, key)
	meta := obj["metadata"].(map[string]any)
	meta["annotations"] = a
	if len(a) == 0 {
		delete(meta, "annotations")
	}
}
