package capi

import "github.com/mgmtd/mgmtd/internal/object"

const (
	addonTypes     = "cluster-api v1.14, api/addons/v1beta2"
	installsCharts = "installs charts"
)

// addonRows are ClusterResourceSets and the Helm add-on provider.
func addonRows() []Row {
	return []Row{
		{GroupKind: ClusterResourceSet, Source: addonTypes, Pause: PauseByAnnotation, Shared: true,
			RunsCode: "applies manifests to workload clusters", ClusterSelector: "spec.clusterSelector",
			Refs: []Reference{{Path: "spec.resources"}}},
		{GroupKind: ClusterResourceSetBinding, Source: addonTypes, Pause: PauseNone,
			BoundToCluster: true,
			Refs: []Reference{
				{Path: "spec.bindings.#.clusterResourceSetName", To: ClusterResourceSet},
				{Path: "spec.clusterName", To: Cluster, SoftOwner: true},
			}},
		{GroupKind: object.GroupKind{Group: GroupAddons, Kind: "HelmChartProxy"},
			Source: "cluster-api-addon-provider-helm v0.3, api/v1alpha1/helmchartproxy_types.go",
			Pause:  PauseUnknown, RunsCode: installsCharts, ClusterSelector: "spec.clusterSelector"},
		{GroupKind: object.GroupKind{Group: GroupAddons, Kind: "HelmReleaseProxy"},
			Source: "cluster-api-addon-provider-helm v0.3, api/v1alpha1/helmreleaseproxy_types.go",
			Pause:  PauseUnknown, RunsCode: installsCharts},
	}
}
