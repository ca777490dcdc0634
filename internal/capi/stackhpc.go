package capi

import "github.com/mgmtd/mgmtd/internal/object"

const stackhpcAddons = "azimuth-cloud/cluster-api-addon-provider, capi_addons/models/v1alpha1 " +
	"(spec.paused)"

// stackhpcRows are the kinds of Azimuth and of StackHPC's add-on provider.
func stackhpcRows() []Row {
	return []Row{
		{GroupKind: object.GroupKind{Group: "azimuth.stackhpc.com", Kind: "Cluster"},
			Source: "azimuth-cloud/azimuth-capi-operator, azimuth_capi/models/v1alpha1/cluster.py " +
				"(spec.paused)",
			Pause: PauseUnsupported},
		{GroupKind: object.GroupKind{Group: "addons.stackhpc.com", Kind: "HelmRelease"},
			Source: stackhpcAddons, Pause: PauseUnsupported, RunsCode: installsCharts},
		{GroupKind: object.GroupKind{Group: "addons.stackhpc.com", Kind: "Manifests"},
			Source: stackhpcAddons, Pause: PauseUnsupported, RunsCode: "applies manifests"},
	}
}
