package capi

import "github.com/mgmtd/mgmtd/internal/object"

const (
	capiTypes = "cluster-api v1.14, api/core/v1beta2 (v1beta1 where fields differ)"
	kubeTypes = "kubernetes, core/v1"
)

// kubeadmConfiguration is the annotation in which a kubeadm control plane of 1.10 or older stores
// the configuration that it compares with its Machines.
const kubeadmConfiguration = "controlplane.cluster.x-k8s.io/kubeadm-cluster-configuration"

func core(kind string) object.GroupKind { return object.GroupKind{Group: GroupCore, Kind: kind} }

// coreRows are the kinds of Kubernetes, clusterctl and Cluster API core.
func coreRows() []Row {
	return []Row{
		{GroupKind: Namespace, Source: kubeTypes, Pause: PauseNone,
			VolatileAnnotations: []string{"kubectl.kubernetes.io/last-applied-configuration"}},
		{GroupKind: Secret, Source: kubeTypes, Pause: PauseNone, Volatile: []VolatileField{
			// The bootstrap data of a MachinePool holds its token; see KubeadmConfig.
			{Path: "data", OwnedBy: kubeadmConfig},
			// The kubeadm control plane renews the client certificate (cluster-api v1.14,
			// controlplane/kubeadm/reconcilers/kubeadmcontrolplane/helpers.go); managed control planes
			// write a token that is valid for minutes (cluster-api-provider-aws v2,
			// pkg/cloud/services/eks/config.go).
			{Path: "data", NameSuffix: "-kubeconfig"},
			// The controller of AzureMachinePools writes it while their Cluster is paused
			// (cluster-api-provider-azure v1.26, controllers/azurejson_machinepool_controller.go).
			{Path: "data", NameSuffix: "-azure-json"},
		}, MadeFor: []object.GroupKind{infraKind("AzureMachinePool")}},
		{GroupKind: ConfigMap, Source: kubeTypes, Pause: PauseNone},
		{GroupKind: Provider, Source: "cluster-api v1.14, cmd/clusterctl/api/v1alpha3/provider_type.go",
			Pause: PauseNone}, // the inventory of clusterctl: no controller reads it
		// The topology controller reports the pause of its Cluster as the reason of
		// TopologyReconciled (cluster-api v1.14, api/core/v1beta2/condition_consts.go).
		{GroupKind: Cluster, Source: capiTypes, Pause: PauseBySpec,
			VolatileConditions: []string{conditionPaused, conditionTopologyReconciled},
			// cluster-api v1.14, util/secret/consts.go; clusterctl has the same list
			SecretSuffixes: []string{"kubeconfig", "ca", "etcd", "sa", "proxy", "apiserver-etcd-client"},
			Refs: []Reference{
				{Path: "spec.topology.classRef", To: ClusterClass, SoftOwner: true},
				// v1beta1: a name, and its namespace in the field next to it
				{Path: "spec.topology.class", Namespace: "spec.topology.classNamespace", To: ClusterClass,
					SoftOwner: true},
				{Path: "spec.infrastructureRef", Required: true},
				{Path: "spec.controlPlaneRef", Required: true},
				{Path: "spec.topology.controlPlane.healthCheck.remediation.templateRef"},
				{Path: "spec.topology.workers.machineDeployments.#.healthCheck.remediation.templateRef"},
				{Path: "spec.topology.controlPlane.machineHealthCheck.remediationTemplate"}, // v1beta1
				{Path: "spec.topology.workers.machineDeployments.#.machineHealthCheck.remediationTemplate"},
			}},
		// The Cluster webhook waits seconds for a ClusterClass that is not reconciled, so it is
		// never paused and comes first (cluster-api v1.14, core/webhooks/admission/cluster.go).
		{GroupKind: ClusterClass, Source: capiTypes, Pause: PauseNever, Shared: true, UsersNamed: true,
			// RefVersionsUpToDate is not among them: a target of another contract says False of every
			// class that names its templates at the version of the source.
			GoodConditions:  []string{"VariablesReady", "VariablesReconciled"},
			ReconciledFirst: true, Refs: classRefs()},
		{GroupKind: Machine, Source: capiTypes, Pause: PauseWithCluster,
			// A Machine with a Node has used its bootstrap data.
			Refs: append(machineRefs("spec.", true), Reference{Path: "spec.bootstrap.dataSecretName",
				To: Secret, Required: true, Unless: "status.nodeRef"}),
			Volatile: []VolatileField{
				// A newer kubeadm control plane writes its own readiness gates into the Machines that there
				// are, and removes an annotation of 1.10 and older (cluster-api v1.14,
				// controlplane/kubeadm/pkg/desiredstate/desired_state.go).
				{Path: "spec.readinessGates", OwnedBy: KubeadmControlPlane},
				{Path: "metadata.annotations." + kubeadmConfiguration, OwnedBy: KubeadmControlPlane},
			}},
		// A MachineDeployment looks for the MachineSet with an equal template, and makes a new one when
		// there is none (cluster-api v1.14, core/reconcilers/machinedeployment/mdutil).
		{GroupKind: core("MachineSet"), Source: capiTypes, Pause: PauseWithCluster,
			// Nothing is required: an old MachineSet without replicas often outlives its templates.
			Volatile: autoscaled, Refs: append(machineRefs("spec.template.spec.", false), templateData),
			Compared: []ComparedField{{Path: "spec.template"}}},
		{GroupKind: core("MachineDeployment"), Source: capiTypes, Pause: PauseWithCluster,
			Volatile: autoscaled, Refs: append(machineRefs("spec.template.spec.", true), templateData),
			Compared: []ComparedField{{Path: "spec.template"}}},
		{GroupKind: MachinePool, Source: capiTypes, Pause: PauseWithCluster, Volatile: autoscaled,
			Refs:     append(machineRefs("spec.template.spec.", true), templateData),
			Compared: []ComparedField{{Path: "spec.template"}}},
		// cluster-api v1.14, core/reconcilers/machinehealthcheck: at most every 15 s
		{GroupKind: core("MachineHealthCheck"), Source: capiTypes, Pause: PauseWithCluster,
			RateLimited: true,
			// Before 1.11 a webhook wrote 100%, which the topology controller of newer versions
			// removes: it does not apply it (cluster-api v1.10, internal/webhooks/machinehealthcheck.go).
			Volatile: []VolatileField{{Path: "spec.maxUnhealthy"}},
			Refs: []Reference{{Path: "spec.remediation.templateRef"},
				{Path: "spec.remediationTemplate"}}},
		{GroupKind: core("MachineDrainRule"), Source: capiTypes, Pause: PauseNone},
	}
}

// autoscalerMarks are the annotations of objects whose replicas an autoscaler writes. Source:
// cluster-api v1.14, api/core/v1beta2/common_types.go.
var autoscalerMarks = []string{
	"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
	"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size",
	"cluster.x-k8s.io/replicas-managed-by",
}

// autoscaled are the fields that change when an autoscaler scales an object. A MachineDeployment
// writes its size into annotations of its MachineSets (cluster-api v1.14,
// api/core/v1beta2/machinedeployment_types.go).
var autoscaled = []VolatileField{
	{Path: "spec.replicas", Annotations: autoscalerMarks},
	{Path: "metadata.annotations.machinedeployment.clusters.x-k8s.io/desired-replicas",
		Annotations: autoscalerMarks},
	{Path: "metadata.annotations.machinedeployment.clusters.x-k8s.io/max-replicas",
		Annotations: autoscalerMarks},
}

// machineRefs are the fields of the spec of a Machine, but for its bootstrap data.
func machineRefs(spec string, required bool) []Reference {
	return []Reference{
		{Path: spec + "infrastructureRef", Required: required},
		{Path: spec + "bootstrap.configRef", Required: required},
		// Of a Machine of vSphere it is a zone, and of one of Nutanix a failure domain. All other
		// providers have no object of it.
		{Path: spec + "failureDomain", To: vsphereZone, Optional: true},
		{Path: spec + "failureDomain", To: nutanixDomain, Optional: true},
	}
}

// templateData is the bootstrap data in a template of Machines.
var templateData = Reference{Path: "spec.template.spec.bootstrap.dataSecretName", To: Secret}

func classRefs() []Reference {
	paths := []string{"spec.infrastructure.", "spec.controlPlane.",
		"spec.controlPlane.machineInfrastructure."}
	for _, workers := range []string{"machineDeployments", "machinePools"} {
		for _, of := range []string{"infrastructure.", "bootstrap."} {
			paths = append(paths, "spec.workers."+workers+".#."+of,
				"spec.workers."+workers+".#.template."+of)
		}
	}
	var refs []Reference
	for _, p := range paths {
		refs = append(refs, Reference{Path: p + "templateRef"}, Reference{Path: p + "ref"})
	}
	for _, p := range []string{
		"spec.controlPlane.healthCheck.remediation.templateRef",
		"spec.controlPlane.machineHealthCheck.remediationTemplate",
		"spec.workers.machineDeployments.#.healthCheck.remediation.templateRef",
		"spec.workers.machineDeployments.#.machineHealthCheck.remediationTemplate",
	} {
		refs = append(refs, Reference{Path: p})
	}
	// The name of a handler is "<handler>.<ExtensionConfig>" (cluster-api v1.14,
	// internal/runtime/client/client.go, ExtensionNameFromHandlerName).
	for _, p := range []string{
		"spec.patches.#.external.discoverVariablesExtension",
		"spec.patches.#.external.generatePatchesExtension", // v1beta1: generateExtension
		"spec.patches.#.external.generateExtension",
		"spec.patches.#.external.validateTopologyExtension", // v1beta1: validateExtension
		"spec.patches.#.external.validateExtension",
		"spec.upgrade.external.generateUpgradePlanExtension",
	} {
		refs = append(refs, Reference{Path: p, To: ExtensionConfig, SoftOwner: true, AfterDot: true})
	}
	return refs
}
