package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// hostedProviders have control planes that run as Pods of the management cluster.
func hostedProviders() []Project {
	const etcd = "The etcd of a hosted control plane runs on the management cluster and is not " +
		"captured: bring it to the target by the means of the provider."
	return []Project{
		{Name: "k0smotron", Versions: "2.1", Rows: k0smotronRows(), ByHand: etcd},
		{Name: "k0rdent", Versions: "1.12", Rows: k0rdentRows(),
			ByHand: "Its Clusters are in kcm-system, with its own controllers: install it on the target " +
				"first, since nothing is restored into a namespace of a provider that is not there."},
		{Name: "Kamaji", Versions: "0.20", Rows: kamajiRows(), ByHand: etcd + " A control plane on an " +
			"external cluster (`deployment.externalClusterReference`) is found by the UID of its " +
			"KamajiControlPlane, so that a copy makes a new, empty one there: do not move or restore it."},
		{Name: "HyperShift", Versions: "v1beta1", ByHand: etcd, Rows: []Row{
			{GroupKind: object.GroupKind{Group: "hypershift.openshift.io", Kind: "HostedControlPlane"},
				Source: "openshift/hypershift, api/hypershift/v1beta1 (spec.etcd)",
				Pause:  PauseUnknown, HostedEtcd: true}}},
	}
}

func k0smotronRows() []Row {
	row := Row{RunsCode: runsMachineCode,
		Source: "k0smotron v2.1, api/bootstrap/v1beta2, api/controlplane/v1beta2, " +
			"internal/controller (IsPaused of its Cluster)"}
	config := []Reference{
		{Path: "files.#.contentFrom.secretRef", To: Secret},
		{Path: "files.#.contentFrom.configMapRef", To: ConfigMap},
		{Path: "provisioner.customUserDataRef.secretRef", To: Secret},
		{Path: "provisioner.customUserDataRef.configMapRef", To: ConfigMap},
	}
	controlPlane := append(below("k0sConfigSpec.", config...),
		Reference{Path: "machineTemplate.infrastructureRef"})
	hosted := withTemplate(row, controlPlaneKind("K0smotronControlPlane"),
		Reference{Path: "certificateRefs", To: Secret},
		Reference{Path: "storage.kine.dataSourceSecretName", To: Secret},
		Reference{Path: "remoteHostCluster.kubeconfigRef", To: Secret})
	hosted[0].HostedEtcd = true
	hosted[0].Source = "k0smotron v2.1, api/controlplane/v1beta2 (etcd as a StatefulSet)"
	row.RunsCode = ""
	remote := Reference{Path: "sshKeyRef", To: Secret, Required: true}
	return slices.Concat(
		withTemplate(row, bootstrapKind("K0sWorkerConfig"), config...),
		withTemplate(row, bootstrapKind("K0sControllerConfig"), config...)[:1],
		withTemplate(row, controlPlaneKind("K0sControlPlane"), controlPlane...),
		hosted,
		withTemplate(row, infraKind("RemoteCluster")),
		withTemplate(row, infraKind("RemoteMachine"), remote),
		// No controller of its own reads a pause.
		[]Row{{GroupKind: infraKind("PooledRemoteMachine"), Pause: PauseUnknown,
			Source: "k0smotron v2.1, api/infrastructure/v1beta2",
			Refs: []Reference{{Path: "spec.machine.sshKeyRef", To: Secret,
				Required: true}}}})
}

func k0rdentRows() []Row {
	kind := func(name string) object.GroupKind {
		return object.GroupKind{Group: "k0rdent.mirantis.com", Kind: name}
	}
	return []Row{
		// A ClusterDeployment installs the chart that makes the Cluster. Only its Region is ever
		// paused.
		{GroupKind: kind("ClusterDeployment"), Pause: PauseUnsupported, RunsCode: installsCharts,
			Source: "k0rdent/kcm v1.12, internal/controller/clusterdeployment_controller.go",
			ByHand: "leave it out, and create it by hand once its workload cluster is released",
			Refs:   []Reference{{Path: "spec.credential", To: kind("Credential"), Required: true}}},
		{GroupKind: kind("Credential"), Pause: PauseNone,
			Source: "k0rdent/kcm v1.12, api/v1beta1/credential_types.go",
			Refs:   []Reference{{Path: "spec.identityRef", Required: true}}},
	}
}

func kamajiRows() []Row {
	row := Row{Source: "clastix/cluster-api-control-plane-provider-kamaji v0.20, api/v1alpha2; " +
		"controllers/kamajicontrolplane_controller.go (IsPaused of its Cluster)",
		RunsCode: runsMachineCode}
	kubeconfig := Reference{To: Secret,
		Path:      "deployment.externalClusterReference.kubeconfigSecretName",
		Namespace: "deployment.externalClusterReference.kubeconfigSecretNamespace"}
	rows := withTemplate(row, controlPlaneKind("KamajiControlPlane"), kubeconfig)
	rows[0].HostedEtcd = true
	return rows
}
