package equality

import (
	"encoding/json"
	"testing"
)

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDifferences(t *testing.T) {
	tests := []struct {
		name, a, b string
		aspect     Aspect
		want       string // first path, or "" when equal
	}{
		{"what a management cluster sets itself",
			`{"metadata":{"name":"a","uid":"1","resourceVersion":"5","generation":1,"creationTimestamp":"x"}}`, `{"metadata":{"name":"a","uid":"2","generation":7}}`, All, ""},
		{"spec", `{"spec":{"replicas":3}}`, `{"spec":{"replicas":4}}`, All, "spec.replicas"},
		{"a field more", `{"spec":{}}`, `{"spec":{"paused":true}}`, All, "spec.paused"},
		{"false is not absent", `{"spec":{"paused":false}}`, `{"spec":{}}`, All, "spec.paused"},
		{"finalizers", `{"metadata":{"finalizers":["a"]}}`, `{"metadata":{"finalizers":["a","b"]}}`, All,
			"metadata.finalizers"},
		{"our annotations", `{"metadata":{"annotations":{"mgmtd.dev/operation":"x"}}}`, `{"metadata":{}}`,
			All, ""},
		{"other annotations", `{"metadata":{"annotations":{"a":"x"}}}`, `{"metadata":{}}`, All,
			"metadata.annotations"},
		{"owner by name, not by UID",
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"}]}}`, All, ""},
		{"another owner", `{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"b","uid":"1"}]}}`, All,
			"metadata.ownerReferences[0].name"},
		{"condition times and generations, the Paused condition, the order",
			`{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"1","observedGeneration":1},{"type":"Paused","status":"False"}]}}`,
			`{"status":{"conditions":[{"type":"Paused","status":"True"},{"type":"Ready","status":"True","lastTransitionTime":"2","observedGeneration":3}]}}`, All, ""},
		{"a condition", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
			`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, All,
			"status.conditions.Ready.status"},
		{"status left out", `{"status":{"replicas":3}}`, `{"status":{"replicas":4}}`, Spec, ""},
		{"observedGeneration at any depth", `{"status":{"a":{"observedGeneration":1},"b":2}}`,
			`{"status":{"b":2}}`, All, ""},
		{"managers of plain updates",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Update"}]}}`, `{"metadata":{}}`, All,
			""},
		{"appliers", `{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","time":"1"}]}}`,
			`{"metadata":{}}`, All, "metadata.managedFields"},
		{"owners in managedFields by name",
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"2\"}":{}}}}}]}}`, All, ""},
		{"owners in managedFields that are none",
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}}]}}`, All,
			"metadata.managedFields[0].fieldsV1.f:metadata.f:ownerReferences.k:{\"uid\":\"1\"}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := decode(t, tt.a), decode(t, tt.b)
			got := Differences(a, b, tt.aspect)
			if first := append(got, "")[0]; first != tt.want {
				t.Errorf("differences %v, want %q first", got, tt.want)
			}
			if len(Differences(b, a, tt.aspect)) > 0 != (tt.want != "") {
				t.Error("the other way round it is otherwise")
			}
			if len(Differences(a, decode(t, tt.a), All)) > 0 {
				t.Error("not equal to itself, or changed by the comparison")
			}
		})
	}
}
