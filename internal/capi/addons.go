package capi

import "github.com/mgmtd/mgmtd/internal/object"

const (
	addonTypes     = "cluster-api v1.14, api/addons/v1beta2"
	installsCharts = "installs charts"
	helmProvider   = "cluster-api-addon-provider-helm v0.6, "
)

// addonRows are ClusterResourceSets and the Helm add-on provider.
func addonRows() []Row {
	helm := func(kind string) object.GroupKind {
		return object.GroupKind{Group: GroupAddons, Kind: kind}
	}
	secrets := []Reference{{Path: "spec.credentials.secret", To: Secret, Required: true},
		{Path: "spec.tlsConfig.caSecret", To: Secret, Required: true}}
	return []Row{
		{GroupKind: ClusterResourceSet, Source: addonTypes, Provenance: WithControllers,
			Pause: PauseByAnnotation, Shared: true,
			RunsCode: "applies manifests to workload clusters", ClusterSelector: "spec.clusterSelector",
			Refs: []Reference{{Path: "spec.resources"}}},
		{GroupKind: ClusterResourceSetBinding, Source: addonTypes, Provenance: WithControllers,
			Pause: PauseNone, BoundToCluster: true,
			Refs: []Reference{
				{Path: "spec.bindings.#.clusterResourceSetName", To: ClusterResourceSet},
				{Path: "spec.clusterName", To: Cluster, SoftOwner: true},
			}},
		// A HelmChartProxy deletes the HelmReleaseProxies of Clusters that it does not find, and makes
		// those that it misses. So it is there first, and paused until its Clusters are at work. An
		// event of a Cluster passes the pause, and has it note which Clusters it selects: only some of
		// them are on a target while workload clusters of a namespace move one after the other.
		{GroupKind: helm("HelmChartProxy"), Provenance: WithControllers, Pause: PauseByAnnotation,
			Shared: true, StatusWhilePaused: true,
			Source: helmProvider + "controllers/helmchartproxy/helmchartproxy_controller_phases.go " +
				"(IsPaused)",
			RunsCode: installsCharts, ClusterSelector: "spec.clusterSelector", Refs: secrets},
		// An event of its Cluster passes the annotation: what it does then, it would do after the
		// release.
		{GroupKind: helm("HelmReleaseProxy"), Provenance: WithControllers, Pause: PauseByAnnotation,
			Source: helmProvider + "controllers/helmreleaseproxy/helmreleaseproxy_controller.go " +
				"(ResourceNotPausedAndHasFilterLabel)",
			RunsCode: installsCharts,
			ByHand: "its Cluster becoming initialised reconciles a paused one, too: where the restore " +
				"releases nothing, scale the provider on the target to zero",
			Refs: append([]Reference{{Path: "spec.clusterRef", To: Cluster, SoftOwner: true}}, secrets...)},
	}
}
