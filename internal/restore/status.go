package restore

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// withStatus returns live with the status of the snapshot's object, and shares the rest with it.
// The Paused condition stays that of live: the target's controllers write it as soon as the object
// is there. observedGeneration is mapped at any depth: equal to the source's generation becomes
// the live generation, anything else one less.
func withStatus(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	status, _, _ := unstructured.NestedMap(want.Object, "status") // a deep copy
	mapGenerations(status, want.GetGeneration(), live.GetGeneration())
	liveStatus, _, _ := unstructured.NestedMap(live.Object, "status")
	keepPaused(status, liveStatus)
	out := &unstructured.Unstructured{Object: maps.Clone(live.Object)}
	out.Object["status"] = status
	return out
}

// withoutStatus returns u without a status that the API server ignores in a write of the object,
// and shares the rest with it.
func withoutStatus(k kube.Kind, u *unstructured.Unstructured) *unstructured.Unstructured {
	if !k.Status || u.Object["status"] == nil {
		return u
	}
	u = &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	delete(u.Object, "status")
	return u
}

func mapGenerations(v any, from, to int64) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if g, ok := e.(int64); ok && k == "observedGeneration" {
				switch {
				case g == from:
					v[k] = to
				case to > 1:
					v[k] = to - 1
				default:
					// nothing is observed yet; 0 is not valid in the schema of Cluster API
					delete(v, k)
				}
				continue
			}
			mapGenerations(e, from, to)
		}
	case []any:
		for _, e := range v {
			mapGenerations(e, from, to)
		}
	}
}

// keepPaused replaces the Paused condition of want by that of live, or removes it when live has
// none yet, in every list of conditions.
func keepPaused(want, live map[string]any) {
	for _, path := range [][]string{{"conditions"}, {"v1beta2", "conditions"}} {
		conditions := sliceOf(want, path...)
		others := make([]any, 0, len(conditions))
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == conditionPaused {
				continue
			}
			others = append(others, c)
		}
		if paused := condition(sliceOf(live, path...), conditionPaused); paused != nil {
			others = append(others, paused)
		}
		if len(others) > 0 || conditions != nil {
			_ = unstructured.SetNestedSlice(want, others, path...) // status.v1beta2 is a map, or absent
		}
	}
}

func sliceOf(m map[string]any, path ...string) []any {
	s, _, _ := unstructured.NestedSlice(m, path...)
	return s
}

func condition(conditions []any, name string) map[string]any {
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == name {
			return m
		}
	}
	return nil
}
