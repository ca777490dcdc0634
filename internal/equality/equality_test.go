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

func TestDifferencesOfEachField(t *testing.T) {
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
		{"what a conversion stores of the other version",
			`{"metadata":{"annotations":{"cluster.x-k8s.io/conversion-data":"x","a":"b"}}}`,
			`{"metadata":{"annotations":{"cluster.x-k8s.io/conversion-data":"y","a":"b"}}}`, All, ""},
		{"other annotations", `{"metadata":{"annotations":{"a":"x"}}}`, `{"metadata":{}}`, All,
			"metadata.annotations"},
		{"owner by name, not by UID",
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"}]}}`, All, ""},
		{"an owner at another version",
			`{"metadata":{"ownerReferences":[{"apiVersion":"x/v1beta1","kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"x/v1beta2","kind":"A","name":"a","uid":"1"}]}}`,
			All, ""},
		{"an owner of another group",
			`{"metadata":{"ownerReferences":[{"apiVersion":"x/v1","kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"y/v1","kind":"A","name":"a","uid":"1"}]}}`,
			All, "metadata.ownerReferences[0].apiVersion"},
		{"another owner", `{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"b","uid":"1"}]}}`, All,
			"metadata.ownerReferences[0].name"},
		{"condition times and generations, the Paused condition, the order",
			`{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"1","observedGeneration":1},{"type":"Paused","status":"False"}]}}`,
			`{"status":{"conditions":[{"type":"Paused","status":"True"},{"type":"Ready","status":"True","lastTransitionTime":"2","observedGeneration":3}]}}`, All, ""},
		{"the topology of a paused Cluster",
			`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","status":{"conditions":[{"type":"TopologyReconciled","status":"True"}]}}`,
			`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","status":{"conditions":[{"type":"TopologyReconciled","status":"False","reason":"Paused"}]}}`, All, ""},
		{"a condition of that name on another kind",
			`{"kind":"A","status":{"conditions":[{"type":"TopologyReconciled","status":"True"}]}}`,
			`{"kind":"A","status":{"conditions":[{"type":"TopologyReconciled","status":"False"}]}}`, All,
			"status.conditions.TopologyReconciled.status"},
		{"a condition", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
			`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, All,
			"status.conditions.Ready.status"},
		{"status left out", `{"status":{"replicas":3}}`, `{"status":{"replicas":4}}`, Spec, ""},
		{"observedGeneration at any depth", `{"status":{"a":{"observedGeneration":1},"b":2}}`,
			`{"status":{"b":2}}`, All, ""},
		{"managers of plain updates",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Update"}]}}`, `{"metadata":{}}`, All,
			""},
		{"an applied field",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","time":"1","fieldsV1":{"f:spec":{"f:a":{}}}}]},"spec":{"a":1}}`,
			`{"metadata":{},"spec":{"a":1}}`, All, "metadata.managedFields[m].spec.a"},
		{"managedFields left out",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:spec":{"f:a":{}}}}]},"spec":{"a":1}}`,
			`{"metadata":{},"spec":{"a":1}}`, Values, ""},
		{"status without managedFields", `{"status":{"replicas":3}}`, `{"status":{"replicas":4}}`, Values,
			"status.replicas"},
		{"appliers in another order, at another version and time, in two entries",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"1","fieldsV1":{"f:spec":{"f:a":{},"f:b":{}}}},{"manager":"n","operation":"Apply","fieldsV1":{"f:spec":{"f:a":{}}}}]},"spec":{"a":1,"b":2}}`,
			`{"metadata":{"managedFields":[{"manager":"n","operation":"Apply","fieldsV1":{"f:spec":{"f:a":{}}}},{"manager":"m","operation":"Apply","apiVersion":"v2","fieldsV1":{"f:spec":{"f:a":{}}}},{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:spec":{"f:b":{}}}}]},"spec":{"a":1,"b":2}}`, All, ""},
		{"an applier of a subresource",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","subresource":"status","fieldsV1":{"f:status":{"f:a":{}}}}]},"status":{"a":1}}`,
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:status":{"f:a":{}}}}]},"status":{"a":1}}`, All,
			"metadata.managedFields[m/status].status.a"},
		{"an applied map that is empty",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:annotations":{},"f:labels":{"f:l":{}}}}}],"labels":{"l":"1"}}}`,
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:labels":{"f:l":{}}}}}],"labels":{"l":"1"}}}`, All, ""},
		{"an applied map that is empty but for our annotations",
			`{"metadata":{"annotations":{"mgmtd.dev/operation":"x"},"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:annotations":{}}}}]}}`,
			`{"metadata":{}}`, All, ""},
		{"an applied map that is empty but for what a conversion stores",
			`{"metadata":{"annotations":{"cluster.x-k8s.io/conversion-data":"x"},"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:annotations":{"f:cluster.x-k8s.io/conversion-data":{}}}}}]}}`,
			`{"metadata":{}}`, All, ""},
		{"an applied map that is there",
			`{"metadata":{"annotations":{"a":"x"},"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:annotations":{}}}}]}}`,
			`{"metadata":{"annotations":{"a":"x"}}}`, All, "metadata.managedFields[m].metadata.annotations"},
		{"applied elements of lists",
			`{"metadata":{"finalizers":["f"],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:finalizers":{"v:\"f\"":{}}},"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}}}}}}]},"spec":{"ports":[{"port":80,"name":"a"}]}}`,
			`{"metadata":{"finalizers":["f"]},"spec":{"ports":[{"port":80,"name":"a"}]}}`, All,
			"metadata.managedFields[m].metadata.finalizers.v:*"},
		{"applied elements that are not there",
			`{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:finalizers":{"v:\"f\"":{}}},"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}}}}}}]}}`,
			`{"metadata":{}}`, All, ""},
		{"owners in managedFields by name",
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"2\"}":{}}}}}]}}`, All, ""},
		{"owners in managedFields that are none",
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"1"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}}]}}`,
			`{"metadata":{"ownerReferences":[{"kind":"A","name":"a","uid":"2"}],"managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}}]}}`, All,
			"metadata.managedFields[m].metadata.ownerReferences.owner A/a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := decode(t, tt.a), decode(t, tt.b)
			got := Differences(nil, a, b, tt.aspect)
			if first := append(got, "")[0]; first != tt.want {
				t.Errorf("differences %v, want %q first", got, tt.want)
			}
			if len(Differences(nil, b, a, tt.aspect)) > 0 != (tt.want != "") {
				t.Error("the other way round it is otherwise")
			}
			if len(Differences(nil, a, decode(t, tt.a), All)) > 0 {
				t.Error("not equal to itself, or changed by the comparison")
			}
		})
	}
}

// TestVolatileAnnotationsAreNoDifference: a provider takes block-move from what is paused and puts
// it on what is at work; the Azure Service Operator is paused and unpaused by annotations.
func TestVolatileAnnotationsAreNoDifference(t *testing.T) {
	resource := func(annotations map[string]any) map[string]any {
		return map[string]any{"apiVersion": "network.azure.com/v1", "kind": "VirtualNetwork",
			"metadata": map[string]any{"name": "a", "annotations": annotations}}
	}
	want := resource(map[string]any{"clusterctl.cluster.x-k8s.io/block-move": "true",
		"serviceoperator.azure.com/reconcile-policy": "manage", "x": "y"})
	got := resource(map[string]any{"serviceoperator.azure.com/reconcile-policy": "skip",
		"sigs.k8s.io/cluster-api-provider-azure-pre-pause-reconcile-policy": "manage", "x": "y"})
	if paths := Differences(nil, want, got, All); len(paths) > 0 {
		t.Errorf("they differ in %v", paths)
	}
	if c := Compare(nil, want, got, Values); len(c.Lost)+len(c.Added) > 0 {
		t.Errorf("lost %v, added %v", c.Lost, c.Added)
	}
	want["kind"], got["kind"] = "Secret", "Secret"
	want["apiVersion"], got["apiVersion"] = "v1", "v1"
	if paths := Differences(nil, want, got, All); len(paths) != 2 {
		t.Errorf("the policy of a Secret is no annotation of its controllers: %v", paths)
	}
}
