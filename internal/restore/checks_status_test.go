package restore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/mgmtd/mgmtd/internal/object"
)

// statusCRD makes m serve Clusters whose status has a schema.
func statusCRD(t *testing.T, m *memory) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1",
		"kind":"CustomResourceDefinition","metadata":{"name":"clusters.cluster.x-k8s.io"},
		"spec":{"versions":[{"name":"v1beta2","schema":{"openAPIV3Schema":{"type":"object","properties":{
			"status":{"type":"object","properties":{
				"phase":{"type":"string","enum":["Provisioned","Failed"]},
				"observedGeneration":{"type":"integer","minimum":1},
				"reason":{"type":"string","default":"Unknown"},
				"conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
					"items":{"type":"object","required":["type","reason"],"properties":{"type":{"type":"string"},
						"status":{"type":"string"},"reason":{"type":"string"}}}}}}}}}}]}}`), &u.Object); err != nil {
		t.Fatal(err)
	}
	m.put(refOf(u), u)
}

// TestAStatusThatTheTargetWouldRefuseIsAFindingOfThePlan: a create drops the status, so no dry-run
// finds it. Messages name paths and reasons, never values.
func TestAStatusThatTheTargetWouldRefuseIsAFindingOfThePlan(t *testing.T) {
	const condition = `{"type":"Ready","status":"True","reason":"Ready"}`
	for _, tt := range []struct {
		status, accept, want string
	}{
		{`{"phase":"Provisioned","observedGeneration":1,"conditions":[` + condition + `]}`, "", ""},
		{`{"phase":null,"observedGeneration":7}`, "", ""}, // what the source had not observed yet
		{`{"phase":"value-1"}`, "", "error status-invalid: status.phase: Unsupported value"},
		{`{"phase":1}`, "", "error status-invalid: status.phase: Invalid value, " +
			"status.phase: Unsupported value"},
		{`{"conditions":[{"type":"Ready"}]}`, "",
			"error status-invalid: status.conditions[0].reason: Required value"},
		{`{"conditions":[` + condition + `,` + condition + `]}`, "",
			"error status-invalid: status.conditions[1]: Duplicate value"},
		{`{"phase":"Failed","more":{"than":"it-1"}}`, "", "error changed-by-target: status.more.than"},
		{`{"phase":"Failed","more":{"than":"it-1"}}`, "Cluster.cluster.x-k8s.io:status.more",
			"warning difference-accepted: status.more.than"},
	} {
		target := newMemory(t, "target")
		statusCRD(t, target)
		x := newTrial(t, newMemory(t, "source", `{"kind":"Namespace","metadata":{"name":"one"}}`,
			fmt.Sprintf(`{"kind":"Cluster","metadata":{"namespace":"one","name":"w"},"status":%s}`,
				tt.status)), target)
		if tt.accept != "" {
			a, err := object.ParseAcceptedDifference(tt.accept)
			if err != nil {
				t.Fatal(err)
			}
			x.spec.Accept = append(x.spec.Accept, a)
		}
		var got string
		for _, f := range x.makePlan(t).Findings {
			if slices.Contains([]object.Code{object.CodeStatusInvalid, object.CodeChangedByTarget,
				object.CodeDifferenceAccepted}, f.Code) {
				_, words, _ := strings.Cut(f.Message, ": ")
				words = words[strings.Index(words, "status."):]
				got += fmt.Sprintf("%s %s: %s", f.Severity, f.Code, words)
				if f.Unit != "one/w" || f.Ref.Kind != "Cluster" {
					t.Errorf("%s: finding %v", tt.status, f)
				}
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.status, got, tt.want)
		}
	}
}

// TestAUnitWithAnInvalidStatusIsNotCreated: the other unit is restored.
func TestAUnitWithAnInvalidStatusIsNotCreated(t *testing.T) {
	source, target := twoTenants(t), newMemory(t, "target")
	source.set(t, "Cluster.cluster.x-k8s.io/two/w", func(u *unstructured.Unstructured) {
		u.Object["status"] = map[string]any{"phase": "no-such-phase"}
	})
	statusCRD(t, target)
	x := newTrial(t, source, target)
	_, err := x.run(t)
	if err == nil || target.get(t, "Cluster.cluster.x-k8s.io/two/w") != nil {
		t.Errorf("the unit with the invalid status was created; the run returned %v", err)
	}
	if got := x.released(t); got != "one/w" {
		t.Errorf("released %q", got)
	}
}
