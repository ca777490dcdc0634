package capi

import (
	"fmt"
	"testing"
)

// pausedObject is an object of generation 3 with conditions in status, and those of status.v1beta2,
// where Cluster API 1.10 publishes Paused.
func pausedObject(t *testing.T, conditions, v1beta2 string) map[string]any {
	t.Helper()
	obj := decoded(t, fmt.Sprintf(`{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Machine",
		"metadata":{"name":"a"},"status":{"conditions":[%s],"v1beta2":{"conditions":[%s]}}}`, conditions,
		v1beta2))
	obj["metadata"].(map[string]any)["generation"] = int64(3)
	for _, list := range []any{obj["status"], obj["status"].(map[string]any)["v1beta2"]} {
		for _, c := range list.(map[string]any)["conditions"].([]any) {
			c := c.(map[string]any)
			if observed, ok := c["observedGeneration"].(float64); ok {
				c["observedGeneration"] = int64(observed) // as the API decodes it
			}
		}
	}
	return obj
}

func TestPauseIsReadWhereEachContractPublishesIt(t *testing.T) {
	const (
		ready  = `{"type":"Ready","status":"True"}`
		paused = `{"type":"Paused","status":"True","reason":"Paused","observedGeneration":3}`
		older  = `{"type":"Paused","status":"True","reason":"Paused","observedGeneration":2}`
		not    = `{"type":"Paused","status":"False","reason":"NotPaused","observedGeneration":3}`
	)
	for _, tt := range []struct {
		name, conditions, v1beta2 string
		publishes                 bool
		whyTrue, whyFalse         string
	}{
		{"1.11 and newer", paused, "", true, "", "Paused is True"},
		{"1.10, paused", ready, ready + "," + paused, true, "", "Paused is True"},
		{"1.10, not paused", ready, not, true, "Paused is False", ""},
		{"1.10, of an older generation", ready, older, true,
			"Paused was observed at generation 2 of 3", "Paused is True"},
		{"older than 1.9", ready, "", false, "it has no Paused condition yet",
			"it has no Paused condition yet"},
	} {
		obj := pausedObject(t, tt.conditions, tt.v1beta2)
		if got := PublishesPause(obj); got != tt.publishes {
			t.Errorf("%s: publishes %v", tt.name, got)
		}
		if got := NotAcknowledged(obj, "True"); got != tt.whyTrue {
			t.Errorf("%s: not paused: %q", tt.name, got)
		}
		if got := NotAcknowledged(obj, "False"); got != tt.whyFalse {
			t.Errorf("%s: not at work: %q", tt.name, got)
		}
	}
}

// TestTopologyIsReadFromTheConditionsOfItsContract: a version may publish the reason only in the
// conditions of the new contract.
func TestTopologyIsReadFromTheConditionsOfItsContract(t *testing.T) {
	const (
		old     = `{"type":"TopologyReconciled","status":"True"}`
		working = `{"type":"TopologyReconciled","status":"True","reason":"ReconcileSucceeded"}`
		paused  = `{"type":"TopologyReconciled","status":"False","reason":"Paused"}`
	)
	for _, tt := range []struct{ name, conditions, v1beta2, want string }{
		{"1.14, paused", paused, "", ""},
		{"1.14, at work", working, "", "TopologyReconciled has reason ReconcileSucceeded"},
		{"1.10, paused", paused, paused, ""},
		{"1.10, at work", old, working, "TopologyReconciled has reason ReconcileSucceeded"},
		{"paused in the new conditions alone", old, paused, ""},
		{"older than 1.9, paused", paused, "", ""},
	} {
		obj := pausedObject(t, tt.conditions, tt.v1beta2)
		obj["spec"] = map[string]any{"topology": map[string]any{"class": "c"}}
		if got := TopologyNotPaused(obj); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// TestAClassWithOlderReferencesIsNotWorse: a target of a newer contract says RefVersionsUpToDate is
// False of every class of an older one, which blocks nobody.
func TestAClassWithOlderReferencesIsNotWorse(t *testing.T) {
	var rows *Table
	row := rows.Row(ClusterClass)
	for name, good := range map[string]bool{"RefVersionsUpToDate": false, "VariablesReady": true,
		"ClusterClassVariablesReconciled": true} {
		if row.IsGood(name) != good {
			t.Errorf("%s is good: %v", name, !good)
		}
	}
}

// TestPauseIsReadOfWhatHasAnOwner: a controller of a provider returns before the pause of an object
// that has no owner of Cluster API's core yet.
func TestPauseIsReadOfWhatHasAnOwner(t *testing.T) {
	const (
		core  = "cluster.x-k8s.io/v1beta1"
		infra = "infrastructure.cluster.x-k8s.io/v1beta1"
	)
	for _, tt := range []struct {
		name, apiVersion, annotation, ownerVersion, owner string
		reads                                             bool
	}{
		{"a Machine of nobody", core, "", "", "", true},
		{"an infrastructure machine of nobody", infra, "", "", "", false},
		{"one that a control plane has created", infra, "", "controlplane.cluster.x-k8s.io/v1beta1",
			"KubeadmControlPlane", false},
		{"one that a MachineSet has created", infra, "", core, "MachineSet", false},
		{"one of a Machine", infra, "", core, "Machine", true},
		{"one of a Machine of another API", infra, "", "machine.openshift.io/v1beta1", "Machine", false},
		{"a bootstrap configuration of a MachinePool", "bootstrap.cluster.x-k8s.io/v1beta2", "", core,
			"MachinePool", true},
		{"an infrastructure", infra, "x", core, "Cluster", true},
		{"an externally managed infrastructure", infra, AnnotationManagedBy, core, "Cluster", false},
	} {
		obj := decoded(t, fmt.Sprintf(`{"apiVersion":%q,"kind":"Any","metadata":{"name":"a",
			"annotations":{%q:""},"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"o"}]}}`,
			tt.apiVersion, tt.annotation, tt.ownerVersion, tt.owner))
		if got := ReadsPause(obj); got != tt.reads {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	if ReadsPause(decoded(t, `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"Any"}`)) {
		t.Error("an object without metadata")
	}
}
