package capi

import "testing"

// TestComparedFieldsAreThoseThatControllersCompareWithMachines: a change of one after a restore
// replaces Machines, a change of another one does not.
func TestComparedFieldsAreThoseThatControllersCompareWithMachines(t *testing.T) {
	var rows *Table
	for _, tt := range []struct {
		name, kind string
		group      string
		label      string
		path       string
		want       bool
	}{
		{name: "control plane", group: GroupControlPlane, kind: "KubeadmControlPlane",
			path: "spec.kubeadmConfigSpec.files", want: true},
		{name: "replicas", group: GroupControlPlane, kind: "KubeadmControlPlane",
			path: "spec.replicas"},
		{name: "configuration of a control plane Machine", group: GroupBootstrap, kind: "KubeadmConfig",
			label: labelControlPlane, path: "spec.preKubeadmCommands", want: true},
		{name: "configuration of a worker", group: GroupBootstrap, kind: "KubeadmConfig",
			path: "spec.preKubeadmCommands"},
		{name: "control plane of RKE2", group: GroupControlPlane, kind: "RKE2ControlPlane",
			path: "spec.serverConfig.cni", want: true},
		{name: "its registration address", group: GroupControlPlane, kind: "RKE2ControlPlane",
			path: "spec.registrationAddress"},
		{name: "configuration of a server of RKE2", group: GroupBootstrap, kind: "RKE2Config",
			label: labelControlPlane, path: "spec.agentConfig.version", want: true},
		{name: "configuration of an agent of RKE2", group: GroupBootstrap, kind: "RKE2Config",
			path: "spec.agentConfig.version"},
		{name: "control plane of k3s", group: GroupControlPlane, kind: "KThreesControlPlane",
			path: "spec.kthreesConfigSpec.serverConfig", want: true},
		{name: "configuration of a server of k3s", group: GroupBootstrap, kind: "KThreesConfig",
			label: labelControlPlane, path: "spec.files", want: true},
		{name: "control plane of Talos", group: GroupControlPlane, kind: "TalosControlPlane",
			path: "spec.infrastructureTemplate.name", want: true},
	} {
		obj := map[string]any{"apiVersion": tt.group + "/v1beta2", "kind": tt.kind,
			"metadata": map[string]any{"labels": map[string]any{tt.label: ""}}}
		if got := rows.RowOf(obj).IsCompared(obj, tt.path); got != tt.want {
			t.Errorf("%s: compared is %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestTheExpiryOfACertificateMayChangeAtWork: the controller of a control plane reads it from the
// API server of the workload cluster, whose certificate may have been renewed.
func TestTheExpiryOfACertificateMayChangeAtWork(t *testing.T) {
	var rows *Table
	obj := map[string]any{"apiVersion": GroupBootstrap + "/v1beta2", "kind": "KubeadmConfig"}
	for path, want := range map[string]bool{
		"metadata.annotations.machine.cluster.x-k8s.io/certificates-expiry": true,
		"metadata.annotations.machine.cluster.x-k8s.io/other":               false,
	} {
		if got := rows.RowOf(obj).IsVolatileField(obj, path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// TestWhatNewerControllersRemoveFromObjectsOfMachines: the annotations of the template. Objects of
// no Machine have them for another reason.
func TestWhatNewerControllersRemoveFromObjectsOfMachines(t *testing.T) {
	var rows *Table
	for _, tt := range []struct {
		owner, path string
		want        bool
	}{
		{"Machine", clonedFromName, true},
		{"Machine", clonedFromKind, true},
		{"Machine", "cluster.x-k8s.io/other", false},
		{"Cluster", clonedFromName, false},
	} {
		obj := map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
			"kind": "AnyMachine", "metadata": map[string]any{"ownerReferences": []any{
				map[string]any{"apiVersion": GroupCore + "/v1beta1", "kind": tt.owner, "name": "m"}}}}
		if got := rows.RowOf(obj).IsVolatileField(obj, "metadata.annotations."+tt.path); got != tt.want {
			t.Errorf("%s of an object of a %s: %v, want %v", tt.path, tt.owner, got, tt.want)
		}
	}
}
