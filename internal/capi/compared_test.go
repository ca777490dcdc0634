package capi

import "testing"

// TestComparedFieldsAreThoseThatControllersCompareWithMachines: a change of one after a restore
// replaces Machines, a change of another one does not.
func TestComparedFieldsAreThoseThatControllersCompareWithMachines(t *testing.T) {
	var rows *Table
	for _, tt := range []struct {
		name, kind  string
		group       string
		label       string
		ownedByKind string
		path        string
		want        bool
	}{
		{name: "control plane", group: GroupControlPlane, kind: "KubeadmControlPlane",
			path: "spec.kubeadmConfigSpec.files", want: true},
		{name: "replicas", group: GroupControlPlane, kind: "KubeadmControlPlane",
			path: "spec.replicas"},
		{name: "configuration of a control plane Machine", group: GroupBootstrap, kind: "KubeadmConfig",
			label: labelControlPlane, path: "spec.preKubeadmCommands", want: true},
		{name: "configuration of a worker", group: GroupBootstrap, kind: "KubeadmConfig",
			path: "spec.preKubeadmCommands"},
		{name: "template of a class", group: GroupInfrastructure, kind: "AnyMachineTemplate",
			ownedByKind: "ClusterClass", path: "spec.template.spec.flavor", want: true},
		{name: "label of a template of a class", group: GroupInfrastructure, kind: "AnyMachineTemplate",
			ownedByKind: "ClusterClass", path: "metadata.labels"},
		{name: "template of a workload cluster", group: GroupInfrastructure, kind: "AnyMachineTemplate",
			ownedByKind: "Cluster", path: "spec.template.spec.flavor"},
	} {
		obj := map[string]any{"apiVersion": tt.group + "/v1beta2", "kind": tt.kind,
			"metadata": map[string]any{"labels": map[string]any{tt.label: ""},
				"ownerReferences": []any{map[string]any{"apiVersion": GroupCore + "/v1beta2",
					"kind": tt.ownedByKind}}}}
		if got := rows.RowOf(obj).IsCompared(obj, tt.path); got != tt.want {
			t.Errorf("%s: compared is %v, want %v", tt.name, got, tt.want)
		}
	}
}
