package capi

import "github.com/mgmtd/mgmtd/internal/object"

const (
	ipamTypes      = "cluster-api v1.14, api/ipam/v1beta2"
	inClusterTypes = "cluster-api-ipam-provider-in-cluster v1.0, api/v1alpha2/inclusterippool_types.go"
)

// ipamRows are the kinds of IP address management, and the in-cluster provider of pools.
func ipamRows() []Row {
	return []Row{
		{GroupKind: IPAddressClaim, Source: ipamTypes, Pause: PauseWithCluster,
			Refs: []Reference{{Path: "spec.poolRef"}}},
		{GroupKind: IPAddress, Source: ipamTypes, Pause: PauseNone,
			Refs: []Reference{{Path: "spec.poolRef"},
				{Path: "spec.claimRef", To: IPAddressClaim, SoftOwner: true}}},
		{GroupKind: object.GroupKind{Group: GroupIPAM, Kind: "InClusterIPPool"}, Source: inClusterTypes,
			Pause: PauseByAnnotation, AddressPool: true},
		{GroupKind: object.GroupKind{Group: GroupIPAM, Kind: "GlobalInClusterIPPool"},
			Source: inClusterTypes, Pause: PauseByAnnotation, AddressPool: true},
	}
}
