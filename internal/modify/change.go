package modify

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
)

// change is a value that differs between two objects: its path, and what it is afterwards.
type change struct {
	path []string
	now  any // nil when it is gone
}

func (c change) String() string {
	var b strings.Builder
	for i, p := range c.path {
		if i > 0 && !strings.HasPrefix(p, "[") {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

// changes returns the leaves at which two objects differ. A mapping that came or went counts by its
// leaves: its removal changes each of its fields. A list of another length counts as a whole.
func changes(before, after map[string]any) []change {
	var list []change
	compareMaps(before, after, nil, &list)
	slices.SortFunc(list, func(a, b change) int { return slices.Compare(a.path, b.path) })
	return list
}

func compareMaps(before, after map[string]any, path []string, list *[]change) {
	for k, was := range before {
		compare(was, after[k], append(slices.Clip(path), k), list)
	}
	for k, is := range after {
		if _, known := before[k]; !known {
			compare(nil, is, append(slices.Clip(path), k), list)
		}
	}
}

func compare(was, is any, path []string, list *[]change) {
	if reflect.DeepEqual(was, is) {
		return
	}
	before, wasMap := was.(map[string]any)
	after, isMap := is.(map[string]any)
	if (wasMap || was == nil) && (isMap || is == nil) && len(before)+len(after) > 0 {
		compareMaps(before, after, path, list)
		return
	}
	wasList, listed := was.([]any)
	isList, still := is.([]any)
	if listed && still && len(wasList) == len(isList) {
		for i := range wasList {
			compare(wasList[i], isList[i], append(slices.Clip(path), fmt.Sprintf("[%d]", i)), list)
		}
		return
	}
	if wasMap { // it became something else: its fields are gone
		compareMaps(before, nil, path, list)
	}
	*list = append(*list, change{path, is})
}

// ownPrefix begins the labels and annotations of this product.
const ownPrefix = "mgmtd.dev/"

// protected reports whether a field may never be changed: what identifies an object, ties it to
// others or to a workload cluster, holds its deletion, or pauses it; and what decides whether a
// Secret may be restored at all.
func (c change) protected(resource string) bool {
	at := func(i int) string {
		if i < len(c.path) {
			return c.path[i]
		}
		return ""
	}
	switch at(0) {
	case "apiVersion", "kind", "status":
		return true
	case "type":
		return resource == "secrets"
	case "spec":
		return at(1) == "" || at(1) == "paused" || at(1) == "clusterName"
	case "metadata":
		key := at(2)
		switch at(1) {
		case "labels":
			return key == "" || key == capi.LabelClusterName || strings.HasPrefix(key, ownPrefix)
		case "annotations":
			return key == "" || capi.PausesObject(key) || strings.HasPrefix(key, ownPrefix)
		}
		return true
	}
	return false
}

// invalid says what the API server would refuse without naming it, as it may not cite Secrets.
func (c change) invalid(resource string) string {
	if resource != "secrets" || c.path[0] != "data" || c.now == nil {
		return ""
	}
	text, ok := c.now.(string)
	if _, err := base64.StdEncoding.DecodeString(text); !ok || err != nil {
		return c.String() + " would not be base64: write the text itself to stringData"
	}
	return ""
}
