package move

import "testing"

// Clusters as cluster-api v1.14 and v1.10 leave them.
const (
	refs = `"spec":{"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DevCluster",` +
		`"name":"w"},"controlPlaneRef":{"apiGroup":"controlplane.cluster.x-k8s.io",` +
		`"kind":"KubeadmControlPlane","name":"w"}}`
	initialized = `{"type":"ControlPlaneInitialized","status":"True","reason":"Initialized"}`
	ready       = `"status":{"initialization":{"infrastructureProvisioned":true,` +
		`"controlPlaneInitialized":true},"conditions":[` + initialized + `]}`
)

// TestWhatIsStillProvisionedIsNotMoved: as clusterctl refuses it, and MachinePools besides.
func TestWhatIsStillProvisionedIsNotMoved(t *testing.T) {
	const start = "error provisioning: it is still being provisioned: "
	old := func(kind, name, fields string) string {
		return anObject("cluster.x-k8s.io/v1beta1", kind, name, fields)
	}
	for name, tt := range map[string]struct {
		objects []string
		want    []string
	}{
		"provisioned": {[]string{core("Cluster", "w", refs+","+ready),
			core("Machine", "m", `"status":{"nodeRef":{"name":"m"}}`)}, nil},
		"nothing of it": {[]string{core("Cluster", "w", refs)}, []string{start +
			"Cluster w has no infrastructure yet, Cluster w has no initialized control plane yet; a prov"}},
		"no infrastructure": {[]string{core("Cluster", "w", refs+`,"status":{"initialization":`+
			`{"controlPlaneInitialized":true},"conditions":[`+initialized+`]}`)}, []string{start +
			"Cluster w has no infrastructure yet; "}},
		"no control plane": {[]string{core("Cluster", "w", refs+`,"status":{"initialization":`+
			`{"infrastructureProvisioned":true},"conditions":[{"type":"ControlPlaneInitialized",`+
			`"status":"False","reason":"NotInitialized"}]}`)}, []string{start +
			"Cluster w has no initialized control plane yet; "}},
		"a topology of which nothing is made": {[]string{core("Cluster", "w",
			`"spec":{"topology":{"version":"v1.35.0"}}`)}, []string{start + "Cluster w has no infra"}},
		"of contract v1beta1": {[]string{old("Cluster", "w", refs+`,"status":{"infrastructureReady":true,`+
			`"controlPlaneReady":true,"conditions":[{"type":"ControlPlaneInitialized","status":"True"}]}`)}, nil},
		"of contract v1beta1, without a control plane": {[]string{old("Cluster", "w",
			refs+`,"status":{"infrastructureReady":true,"conditions":[{"type":"ControlPlaneInitialized",`+
				`"status":"False","reason":"WaitingForControlPlaneProviderInitialized"}]}`)},
			[]string{start + "Cluster w has no initialized control plane yet"}},
		"unmanaged control plane and infrastructure": {[]string{core("Cluster", "w",
			`"spec":{"controlPlaneEndpoint":{"host":"h","port":6443}}`)}, nil},
		"infrastructure that something else manages": {[]string{core("Cluster", "w",
			refs+`,"status":{"initialization":{"controlPlaneInitialized":true},"conditions":[`+initialized+`]}`),
			anObject("infrastructure.cluster.x-k8s.io/v1beta2", "DevCluster", "w",
				`"metadata":{"name":"w","annotations":{"cluster.x-k8s.io/managed-by":""}}`)}, nil},
		"Machines without Nodes": {[]string{core("Machine", "a", ""), core("Machine", "b", ""),
			core("Machine", "c", ""), core("Machine", "d", `"status":{"nodeRef":{}}`)}, []string{start +
			"Machine a has no Node yet, Machine b has no Node yet, Machine c has no Node yet and 1 more; "}},
		"a MachinePool without infrastructure": {[]string{core("MachinePool", "p",
			`"spec":{"replicas":2},"status":{"initialization":{"bootstrapDataSecretCreated":true}}`)},
			[]string{start + "MachinePool p has no infrastructure yet; "}},
		"a MachinePool that grows": {[]string{core("MachinePool", "p", `"spec":{"replicas":2},"status":`+
			`{"initialization":{"infrastructureProvisioned":true},"nodeRefs":[{"name":"a"}]}`)},
			[]string{"warning rolling-out: machines of its MachinePools have not joined yet: " +
				"MachinePool p has 1 of 2 Nodes; "}},
		"a MachinePool that is scaled elsewhere": {[]string{core("MachinePool", "p",
			`"metadata":{"name":"p","annotations":{"cluster.x-k8s.io/replicas-managed-by":"external"}},`+
				`"spec":{"replicas":2},"status":{"initialization":{"infrastructureProvisioned":true},`+
				`"replicas":1,"nodeRefs":[{"name":"a"}]}`)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			checkFound(t, found(t, sourceOf(t, tt.objects...), checkProvisioning), tt.want...)
		})
	}
}
