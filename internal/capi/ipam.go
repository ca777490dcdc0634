package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	ipamTypes      = "cluster-api v1.14, api/ipam/v1beta2"
	inClusterTypes = "cluster-api-ipam-provider-in-cluster v1.1, pkg/ipamutil/reconciler.go " +
		"(HasPaused)"
)

// ipamRows are the kinds of IP address management, and the in-cluster provider of pools.
func ipamRows() []Row {
	rows := []Row{
		{GroupKind: IPAddressClaim, Source: ipamTypes, Provenance: WithControllers,
			Pause: PauseWithCluster, Address: true, Refs: []Reference{{Path: "spec.poolRef"}}},
		{GroupKind: IPAddress, Source: ipamTypes, Provenance: WithControllers, Pause: PauseNone,
			Address: true, Refs: []Reference{{Path: "spec.poolRef"},
				{Path: "spec.claimRef", To: IPAddressClaim, SoftOwner: true}}},
	}
	pool := func(kind string) object.GroupKind {
		return object.GroupKind{Group: GroupIPAM, Kind: kind}
	}
	// A paused pool gives no address, but it counts those that are given.
	row := Row{Source: inClusterTypes, Provenance: OnAPIServer, Pause: PauseByAnnotation,
		AddressPool: true, StatusWhilePaused: true}
	ran := row
	ran.Provenance = WithControllers
	return slices.Concat(rows,
		sameRows(ran, pool("InClusterIPPool"), pool("GlobalInClusterIPPool")),
		sameRows(row, pool("InClusterPrefixPool"), pool("GlobalInClusterPrefixPool")))
}
