package move

import "testing"

// TestWhatAPauseInterruptsIsReported: with a warning, except for what no pause stops.
func TestWhatAPauseInterruptsIsReported(t *testing.T) {
	kcp := func(fields string) string {
		return anObject("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", "cp", fields)
	}
	const rolls = "warning rolling-out: its Machines are being replaced, added or removed: "
	const owned = `"metadata":{"name":"x","labels":{"topology.cluster.x-k8s.io/owned":""}},`
	topology := core("Cluster", "w", `"spec":{"topology":{"version":"v1.35.0"}},"status":{"conditions":[`+
		`{"type":"TopologyReconciled","status":"True","reason":"ReconcileSucceeded"}]}`)
	for name, tt := range map[string]struct {
		objects []string
		want    []string
	}{
		"nothing": {[]string{topology, kcp(owned + `"spec":{"replicas":3,"version":"v1.35.0"},"status":` +
			`{"replicas":3,"upToDateReplicas":3,"conditions":[{"type":"RollingOut","status":"False"}]}`),
			core("MachineDeployment", "md", `"spec":{"replicas":1},"status":{"replicas":1,"upToDateReplicas":1}`),
			core("MachineSet", "old", `"spec":{"replicas":2},"status":{"replicas":2,"upToDateReplicas":0}`),
			core("Machine", "m", `"status":{"conditions":[{"type":"HealthCheckSucceeded","status":"True"}]}`),
			anObject("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlaneTemplate", "t",
				`"status":{"conditions":[{"type":"RollingOut","status":"True"}]}`)}, nil},
		"a rollout": {[]string{kcp(`"spec":{"replicas":3},"status":{"replicas":3,"upToDateReplicas":1}`),
			core("MachineDeployment", "md", `"spec":{"replicas":2},"status":{"replicas":3,"upToDateReplicas":1}`)},
			[]string{rolls + "KubeadmControlPlane cp has 1 of 3 Machines up to date, " +
				"MachineDeployment md has 3 of 2 Machines; the pause "}},
		"a rollout by its condition": {[]string{kcp(`"status":{"conditions":[{"type":"RollingOut",` +
			`"status":"True","reason":"RollingOut"}]}`)}, []string{rolls + "KubeadmControlPlane cp is rolling out; "}},
		"a rollout of contract v1beta1": {[]string{anObject("cluster.x-k8s.io/v1beta1", "MachineDeployment",
			"md", `"spec":{"replicas":3},"status":{"replicas":3,"updatedReplicas":2}`)},
			[]string{rolls + "MachineDeployment md has 2 of 3 Machines up to date; "}},
		"a rollout of contract v1beta1 that has begun": {[]string{kcp(`"spec":{"replicas":3},"status":` +
			`{"replicas":3,"conditions":[{"type":"MachinesSpecUpToDate","status":"False"}]}`)},
			[]string{rolls + "KubeadmControlPlane cp is rolling out; "}},
		"an upgrade": {[]string{core("Cluster", "w", `"spec":{"topology":{"version":"v1.35.0"}},"status":`+
			`{"conditions":[{"type":"TopologyReconciled","status":"False","reason":"ClusterUpgrading"}]}`),
			core("MachineDeployment", "x", owned+`"spec":{"template":{"spec":{"version":"v1.34.0"}}}`)},
			[]string{"warning upgrading: its topology is being upgraded or changed: Cluster w has a " +
				"topology that is not reconciled (ClusterUpgrading), MachineDeployment x has version v1.34.0 " +
				"and is to have v1.35.0; the pause "}},
		"a version in short": {[]string{topology, kcp(owned + `"spec":{"version":"v1.35"}`)}, nil},
		"a MachineDeployment that is not of the topology": {[]string{topology, core("MachineDeployment",
			"x", `"spec":{"template":{"spec":{"version":"v1.34.0"}}}`)}, nil},
		"a topology that failed": {[]string{core("Cluster", "w", `"status":{"conditions":[{"type":`+
			`"TopologyReconciled","status":"False","reason":"ReconcileFailed"}]}`)}, nil},
		"a remediation": {[]string{core("Machine", "m", `"status":{"conditions":[{"type":"OwnerRemediated",`+
			`"status":"False","reason":"WaitingForRemediation"}]}`),
			anObject("cluster.x-k8s.io/v1beta1", "Machine", "n", `"status":{"v1beta2":{"conditions":[`+
				`{"type":"HealthCheckSucceeded","status":"False","reason":"UnhealthyNode"}]}}`),
			kcp(`"metadata":{"name":"cp","annotations":` +
				`{"controlplane.cluster.x-k8s.io/remediation-in-progress":"{}"}}`)},
			[]string{"warning remediating: unhealthy Machines are being replaced or repaired: Machine m " +
				"is unhealthy, Machine n is unhealthy, KubeadmControlPlane cp is replacing a Machine; the pause "}},
		"an update in place": {[]string{core("Machine", "m", `"metadata":{"name":"m","annotations":{`+
			`"in-place-updates.internal.cluster.x-k8s.io/update-in-progress":"",`+
			`"runtime.cluster.x-k8s.io/pending-hooks":"UpdateMachine"}}`)}, []string{
			"error updating-in-place: its Machines are being updated in place: Machine m is being updated; "}},
		"a hook": {[]string{core("Cluster", "w", `"metadata":{"name":"w","annotations":`+
			`{"runtime.cluster.x-k8s.io/pending-hooks":"AfterClusterUpgrade"}}`)}, []string{
			"warning hooks-pending: calls of runtime hooks are pending: Cluster w waits for AfterClusterUpgrade; "}},
	} {
		t.Run(name, func(t *testing.T) {
			checkFound(t, found(t, sourceOf(t, tt.objects...), checkProgress), tt.want...)
		})
	}
}
