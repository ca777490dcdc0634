package capi

import "github.com/mgmtd/mgmtd/internal/object"

const (
	kubeadmTypes    = "cluster-api v1.14, api/bootstrap/kubeadm/v1beta2"
	kubeadmCPTypes  = "cluster-api v1.14, api/controlplane/kubeadm/v1beta2"
	runsMachineCode = "runs commands on machines"
)

var kubeadmConfig = object.GroupKind{Group: GroupBootstrap, Kind: "KubeadmConfig"}

// certificatesExpiry is the annotation that says when the certificate of a control plane Machine's
// API server expires.
const certificatesExpiry = "machine.cluster.x-k8s.io/certificates-expiry"

// kubeadmRows are the kinds of the kubeadm bootstrap and control-plane providers.
func kubeadmRows() []Row {
	return []Row{
		{GroupKind: kubeadmConfig, Source: kubeadmTypes,
			Pause: PauseWithCluster, RunsCode: runsMachineCode, Refs: kubeadmRefs("spec."),
			// The token of a MachinePool is renewed before it expires, and after an outage at once
			// (cluster-api v1.14,
			// bootstrap/kubeadm/reconcilers/kubeadmconfig/kubeadmconfig_controller.go).
			Volatile: []VolatileField{{Path: "spec.joinConfiguration.discovery.bootstrapToken.token",
				OwnedBy: MachinePool},
				// A control plane of a newer version reads it again from the certificate of the API server,
				// which may have been renewed since: seen from 1.10 to 1.14 (cluster-api v1.14,
				// kubeadmcontrolplane_controller.go, reconcileCertificateExpiries).
				{Path: "metadata.annotations." + certificatesExpiry}},
			// The controller of a control plane replaces a Machine whose KubeadmConfig is not as its
			// own spec says (cluster-api v1.14, controlplane/kubeadm/pkg/filters.go). Those of workers
			// are never compared.
			Compared: []ComparedField{{Path: "spec", Label: labelControlPlane}},
			// It lets one machine at a time initialise a control plane. Brought back it would
			// block, or be taken over by, the wrong machine (cluster-api issue 7794;
			// bootstrap/kubeadm/pkg/locking/control_plane_init_mutex.go).
			LockSuffixes: []string{"lock"}},
		{GroupKind: object.GroupKind{Group: GroupBootstrap, Kind: "KubeadmConfigTemplate"},
			Source: kubeadmTypes, Pause: PauseNone, UsersNamed: true, RunsCode: runsMachineCode,
			Refs: kubeadmRefs("spec.template.spec.")},
		{GroupKind: KubeadmControlPlane, Source: kubeadmCPTypes, Pause: PauseWithCluster,
			RunsCode: runsMachineCode, Volatile: autoscaled,
			// cluster-api v1.14, controlplane/kubeadm/pkg/filters.go
			Compared: []ComparedField{{Path: "spec.kubeadmConfigSpec"}, {Path: "spec.machineTemplate"},
				{Path: "spec.version"}},
			Refs: append([]Reference{
				{Path: "spec.machineTemplate.spec.infrastructureRef", Required: true},
				{Path: "spec.machineTemplate.infrastructureRef", Required: true}},
				kubeadmRefs("spec.kubeadmConfigSpec.")...),
			// Without one it makes new ones, and with them a workload cluster that trusts nobody
			// it knows
			// (controlplane/kubeadm/reconcilers/kubeadmcontrolplane/kubeadmcontrolplane_controller.go).
			Certificates: []string{"ca", "etcd", "proxy", "sa"}},
		{GroupKind: object.GroupKind{Group: GroupControlPlane, Kind: "KubeadmControlPlaneTemplate"},
			Source: kubeadmCPTypes, Pause: PauseNone, UsersNamed: true, RunsCode: runsMachineCode,
			Refs: kubeadmRefs("spec.template.spec.kubeadmConfigSpec.")},
	}
}

func kubeadmRefs(spec string) []Reference {
	return []Reference{
		{Path: spec + "files.#.contentFrom.secret.name", To: Secret},
		{Path: spec + "users.#.passwdFrom.secret.name", To: Secret},
	}
}
