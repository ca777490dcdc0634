package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// API groups of Metal3.
const (
	groupMetal3     = "metal3.io"
	groupMetal3IPAM = "ipam.metal3.io"
)

var (
	bareMetalHost    = object.GroupKind{Group: groupMetal3, Kind: "BareMetalHost"}
	metal3Pool       = object.GroupKind{Group: groupMetal3IPAM, Kind: "IPPool"}
	metal3Claim      = object.GroupKind{Group: groupMetal3IPAM, Kind: "IPClaim"}
	metal3Templates  = infraKind("Metal3DataTemplate")
	metal3DataClaims = infraKind("Metal3DataClaim")
)

// metal3Providers are cluster-api-provider-metal3, the Bare Metal Operator and the IP address
// manager.
func metal3Providers() []Project {
	return []Project{
		{Name: "Metal3 (CAPM3)", Versions: "1.13, 1.14", Rows: metal3Rows()},
		{Name: "Metal3: Bare Metal Operator (BMO)", Versions: "0.13, 0.14", Rows: hostRows(),
			ByHand: "Stop Ironic of the source before the target starts its own: two DHCP servers of one " +
				"provisioning network boot the hosts of each other. The database of Ironic is not captured; " +
				"it is made again."},
		{Name: "Metal3: IP address manager", Versions: "1.13, 1.14", Rows: metal3AddressRows()},
	}
}

func metal3Rows() []Row {
	const types = "cluster-api-provider-metal3 v1.14, api/v1beta2"
	data := []Reference{{Path: "metaData", To: Secret}, {Path: "networkData", To: Secret}}
	machine := append([]Reference{{Path: "dataTemplate", To: metal3Templates},
		{Path: "userData", To: Secret}}, data...)
	row := Row{Source: types, Provenance: OnAPIServer}
	machines := withTemplate(row, infraKind("Metal3Machine"), machine...)
	machines[0].Source += "; baremetal/metal3machine_manager.go (the annotation)"
	machines[0].Refs = append(machines[0].Refs, Reference{
		Path: "metadata.annotations[metal3.io/BareMetalHost]", To: bareMetalHost, Qualified: true})
	rows := slices.Concat(withTemplate(row, infraKind("Metal3Cluster")), machines,
		withTemplate(row, infraKind("Metal3Remediation")))
	return append(rows,
		Row{GroupKind: infraKind("Metal3Data"), Source: types, Provenance: OnAPIServer,
			Pause: PauseWithCluster, Refs: below(inSpec, append([]Reference{
				{Path: "template", To: metal3Templates, SoftOwner: true},
				{Path: "claim", To: metal3DataClaims}}, data...)...)},
		Row{GroupKind: metal3DataClaims, Source: types, Provenance: OnAPIServer, Pause: PauseWithCluster,
			Refs: []Reference{{Path: "spec.template", To: metal3Templates, SoftOwner: true}}},
		// Several Clusters may share one, which 1.14 therefore pauses by the annotation alone.
		Row{GroupKind: metal3Templates, Provenance: OnAPIServer, Pause: PauseByAnnotation,
			Source: "cluster-api-provider-metal3 v1.14, controllers/metal3datatemplate_controller.go " +
				"(HasPaused; v1.13: IsPaused)",
			UsersNamed: true, Refs: poolRefs()})
}

// poolRefs are the fields of a Metal3DataTemplate that name a pool {apiGroup, kind, name}. Without
// a kind it is an IPPool (cluster-api-provider-metal3 v1.14, baremetal/metal3data_manager.go).
func poolRefs() []Reference {
	var refs []Reference
	add := func(path string) { refs = append(refs, Reference{Path: path, To: metal3Pool}) }
	for _, field := range []string{"ipAddresses", "prefixes", "gateways", "dnsServers"} {
		add("spec.metaData." + field + "FromPool")
		add("spec.metaData." + field + "FromIPPool") // v1beta1
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		add("spec.networkData.networks." + family + ".#.fromPoolRef")
	}
	for _, network := range []string{"ipv4", "ipv6", "ipv4DHCP", "ipv6DHCP", "ipv6SLAAC"} {
		add("spec.networkData.networks." + network + ".#.routes.#.gateway.fromPoolRef")
	}
	return refs
}

// hostRows are the kinds of the Bare Metal Operator.
func hostRows() []Row {
	const types = "baremetal-operator v0.14, apis/metal3.io/v1alpha1"
	kind := func(name string) object.GroupKind {
		return object.GroupKind{Group: groupMetal3, Kind: name}
	}
	return []Row{
		// Restored with an empty status for only a moment, it has its disk imaged again.
		{GroupKind: bareMetalHost, Provenance: OnAPIServer, Pause: PauseUnsupported,
			Source: types + "/baremetalhost_types.go (PausedAnnotation, StatusAnnotation)",
			ByHand: "create it by hand with the annotations baremetalhost.metal3.io/paused and " +
				"baremetalhost.metal3.io/status (its status as JSON), and remove the first one only when " +
				"its status says provisioned, with the image of its spec: with an empty status its disk is " +
				"imaged again",
			VolatileAnnotations: []string{"baremetalhost.metal3.io/paused",
				"baremetalhost.metal3.io/status"},
			Refs: slices.Concat(below(inSpec,
				Reference{Path: "bmc.credentialsName", To: Secret},
				Reference{Path: "userData", To: Secret}, Reference{Path: "metaData", To: Secret},
				Reference{Path: "networkData", To: Secret},
				Reference{Path: "preprovisioningNetworkDataName", To: Secret},
				Reference{Path: "image.ociAuthSecretName", To: Secret},
				Reference{Path: "consumerRef", Back: true}),
				[]Reference{{Path: ownName, To: kind("HardwareData"), Optional: true}})},
		{GroupKind: kind("HardwareData"), Source: types, Provenance: OnAPIServer, Pause: PauseNone},
		{GroupKind: kind("FirmwareSchema"), Source: types, Provenance: OnAPIServer, Pause: PauseNone},
		{GroupKind: kind("HostFirmwareSettings"), Source: types, Provenance: OnAPIServer,
			Pause: PauseUnknown,
			Refs:  []Reference{{Path: "status.schema", To: kind("FirmwareSchema")}}},
		{GroupKind: kind("BMCEventSubscription"), Source: types, Provenance: OnAPIServer,
			Pause: PauseUnknown, Refs: []Reference{{Path: "spec.hostName", To: bareMetalHost},
				{Path: "spec.httpHeadersRef", To: Secret}}},
		{GroupKind: kind("PreprovisioningImage"), Source: types, Pause: PauseUnknown,
			Refs: []Reference{{Path: "spec.networkDataName", To: Secret}}},
	}
}

// metal3AddressRows are the kinds of the IP address manager. The controller of the pools is the
// only one that works on claims and addresses.
func metal3AddressRows() []Row {
	const types = "ip-address-manager v1.14, api/v1alpha1"
	return []Row{
		// The annotation is read for a pool of a Cluster alone: that of another one is reconciled with
		// each of its claims.
		{GroupKind: metal3Pool, Provenance: OnAPIServer, Pause: PauseByAnnotation, AddressPool: true,
			Source:     "ip-address-manager v1.14, controllers/ippool_controller.go (IsPaused)",
			PauseNeeds: "spec.clusterName",
			ByHand: "a pool without spec.clusterName is never paused: restore the workload clusters " +
				"without it, and create it by hand once its claims and addresses are there"},
		{GroupKind: metal3Claim, Source: types, Provenance: OnAPIServer, Pause: PauseNone,
			Refs: []Reference{{Path: "spec.pool", To: metal3Pool, SoftOwner: true}}},
		{GroupKind: object.GroupKind{Group: groupMetal3IPAM, Kind: "IPAddress"}, Source: types,
			Provenance: OnAPIServer, Pause: PauseNone,
			Refs: []Reference{{Path: "spec.pool", To: metal3Pool, SoftOwner: true},
				{Path: "spec.claim", To: metal3Claim, SoftOwner: true}}},
	}
}
