package capi

import "github.com/mgmtd/mgmtd/internal/object"

// API groups of StackHPC.
const (
	groupStackHPCAddons = "addons.stackhpc.com"
	groupAzimuth        = "azimuth.stackhpc.com"
	groupScheduling     = "scheduling.azimuth.stackhpc.com"
)

const stackhpcAddons = "azimuth-cloud/cluster-api-addon-provider 0.12, " +
	"capi_addons/models/v1alpha1 (spec.paused)"

// stackhpcProviders are the add-on provider and capi-helm-charts of StackHPC, and Azimuth.
func stackhpcProviders() []Project {
	return []Project{
		{Name: "StackHPC add-on provider and capi-helm-charts", Versions: "0.12",
			Rows: stackhpcAddonRows(),
			ByHand: "An add-on that is deleted on a source while it is not paused is uninstalled from the " +
				"workload cluster. The autoscalers of the charts are Deployments: scale them to zero on the " +
				"source, and install them on the target."},
		{Name: "Azimuth", Versions: "0.23", Rows: azimuthRows(),
			ByHand: "A Secret `<cluster>-etcd-key` that is missing is made again, with another key: what " +
				"the workload cluster has encrypted cannot be read any more."},
	}
}

func stackhpcAddonRows() []Row {
	addon := func(kind, runs, sources string) Row {
		return Row{GroupKind: object.GroupKind{Group: groupStackHPCAddons, Kind: kind},
			Source: stackhpcAddons + "; capi_addons/operator.py (annotations)", Provenance: OnAPIServer,
			// The operator writes metadata and status of a paused add-on before it reads the pause.
			Pause: PauseByOwnSpec, StatusWhilePaused: true, RunsCode: runs,
			// kopf stores there what it has handled, and how far it is.
			VolatileAnnotations: []string{groupStackHPCAddons + "/"},
			Refs: []Reference{{Path: "spec.clusterName", To: Cluster, SoftOwner: true},
				{Path: "spec." + sources + ".#.secret.name", To: Secret},
				{Path: "spec." + sources + ".#.configMap.name", To: ConfigMap}}}
	}
	return []Row{addon("HelmRelease", installsCharts, "valuesSources"),
		addon("Manifests", "applies manifests", "manifestSources")}
}

func azimuthRows() []Row {
	kind := func(name string) object.GroupKind {
		return object.GroupKind{Group: groupAzimuth, Kind: name}
	}
	lease := object.GroupKind{Group: groupScheduling, Kind: "Lease"}
	const source = "azimuth-cloud/azimuth-capi-operator 0.23, azimuth_capi/models/v1alpha1/cluster.py"
	return []Row{
		// Its webhook refuses one whose template or credentials are absent.
		{GroupKind: kind("Cluster"), Provenance: OnAPIServer, Pause: PauseByOwnSpecLast,
			StatusWhilePaused: true, VolatileAnnotations: []string{groupAzimuth + "/"},
			Source: source + " (spec.paused); azimuth_capi/operator.py (on_cluster_create)",
			Refs: []Reference{
				{Path: ownName, To: Cluster, SoftOwner: true, Optional: true},
				{Path: "spec.templateName", To: kind("ClusterTemplate"), SoftOwner: true},
				{Path: "spec.cloudCredentialsSecretName", To: Secret, SoftOwner: true,
					Required: true},
				{Path: "spec.leaseName", To: lease, SoftOwner: true},
				{Path: ownName, Suffix: "-etcd-key", To: Secret, SoftOwner: true, Required: true}}},
		{GroupKind: kind("ClusterTemplate"), Source: source, Provenance: OnAPIServer, Pause: PauseNone,
			VolatileAnnotations: []string{groupAzimuth + "/"},
			ByHand: "the webhook refuses a new Cluster of a deprecated template: lift spec.deprecated for " +
				"the time of the restore"},
		// Nothing says what its operator does with a Lease that has no status yet.
		{GroupKind: lease, Source: "azimuth-cloud/azimuth-capi-operator 0.23, azimuth_capi/operator.py " +
			"(adopt_lease)", Pause: PauseUnsupported,
			ByHand: "restore it by hand, with its status, before the Cluster that names it"},
	}
}
