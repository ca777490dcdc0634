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
				"it is made again. A host that was free when the snapshot was taken is free again after a " +
				"restore: pause by the annotation baremetalhost.metal3.io/paused what was provisioned " +
				"since, before its workload clusters are released. A fence of a source that comes back " +
				"pauses the hosts of its workload clusters, and no free ones: do not let its Bare Metal " +
				"Operator and its Ironic run, or pause them by that annotation. A move pauses the hosts of " +
				"its workload clusters by it, and from its first batch to its end the free hosts of the " +
				"selection as well. It releases a host on the target only when its status is that of the " +
				"source: with another one its disk would be written. After a rollback, a free host that the " +
				"target already uses stays there, and that of the source stays paused. The operator of " +
				"the target must not be older than that of the source: it refuses a status that it does not " +
				"know."},
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
	// Its controller starts a copy whose status has no phase from the beginning: it powers the host
	// off.
	remediation := withTemplate(row, infraKind("Metal3Remediation"))
	remediation[0].IgnoresPause = true
	remediation[0].Source = "cluster-api-provider-metal3 v1.13.2, " +
		"controllers/metal3remediation_controller.go (no pause)"
	remediation[0].ByHand = "let the remediation end before a move or a snapshot"
	rows := slices.Concat(withTemplate(row, infraKind("Metal3Cluster")), machines, remediation)
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
		add("spec.networkData.networks." + family + ".#.ipAddressFromIPPool")
	}
	add("spec.networkData.services.dnsFromIPPool")
	for _, network := range []string{"ipv4", "ipv6", "ipv4DHCP", "ipv6DHCP", "ipv6SLAAC"} {
		routes := "spec.networkData.networks." + network + ".#.routes.#."
		add(routes + "gateway.fromPoolRef")
		add(routes + "gateway.fromIPPool")
		add(routes + "services.dnsFromIPPool")
	}
	return refs
}

// hostRows are the kinds of the Bare Metal Operator.
func hostRows() []Row {
	const (
		types      = "baremetal-operator v0.14, apis/metal3.io/v1alpha1"
		controller = "baremetal-operator v0.13.2, internal/controller/metal3.io/"
		byHost     = types + "; " + controller + "host_state_machine.go (skipReconcileSubresource: " +
			"nothing is done without its host, or while that is paused)"
	)
	kind := func(name string) object.GroupKind {
		return object.GroupKind{Group: groupMetal3, Kind: name}
	}
	// They have the name of their host, which reads them, and makes those that are missing.
	var ofHost []Reference
	for _, name := range []string{"HardwareData", "HostFirmwareSettings", "HostFirmwareComponents",
		"HostUpdatePolicy", "PreprovisioningImage", "DataImage"} {
		ofHost = append(ofHost, Reference{Path: ownName, To: kind(name), Optional: true})
	}
	return append(claimRows(), []Row{
		{GroupKind: bareMetalHost, Provenance: OnAPIServer, Pause: PauseByHostAnnotation,
			Source: types + "/baremetalhost_types.go (PausedAnnotation, StatusAnnotation); " + controller +
				"baremetalhost_controller.go (Reconcile, reconcileHostData)",
			ByHand: "a host that is being provisioned, prepared or deprovisioned blocks its workload " +
				"cluster: let that finish first",
			UsersNamed: true, PausedShared: true,
			VolatileAnnotations: []string{annotationHostPaused, annotationHostStatus},
			Refs: slices.Concat(below(inSpec,
				Reference{Path: "bmc.credentialsName", To: Secret, Required: true},
				Reference{Path: "userData", To: Secret}, Reference{Path: "metaData", To: Secret},
				Reference{Path: "networkData", To: Secret},
				Reference{Path: "preprovisioningNetworkDataName", To: Secret},
				Reference{Path: "image.ociAuthSecretName", To: Secret},
				Reference{Path: "networkInterfaces.#.hostNetworkAttachment", Optional: true,
					To: kind("HostNetworkAttachment")},
				Reference{Path: "consumerRef", Back: true}), ofHost)},
		{GroupKind: kind("HostNetworkAttachment"), Pause: PauseNone, UsersNamed: true,
			Source: "baremetal-operator v0.14.0-rc.0, apis/metal3.io/v1alpha1 (no controller)"},
		{GroupKind: kind("HardwareData"), Source: types, Provenance: OnAPIServer, Pause: PauseNone},
		{GroupKind: kind("FirmwareSchema"), Source: types, Provenance: OnAPIServer, Pause: PauseNone},
		{GroupKind: kind("HostFirmwareSettings"), Source: byHost, Provenance: OnAPIServer,
			Pause: PauseNone,
			Refs:  []Reference{{Path: "status.schema", To: kind("FirmwareSchema")}}},
		{GroupKind: kind("HostFirmwareComponents"), Source: byHost, Provenance: OnAPIServer,
			Pause: PauseNone},
		{GroupKind: kind("HostUpdatePolicy"), Provenance: OnAPIServer, Pause: PauseNone,
			Source: types + "; " + controller + "baremetalhost_controller.go (acquireHostUpdatePolicy: " +
				"its host alone reads it)"},
		{GroupKind: kind("DataImage"), Provenance: OnAPIServer, Pause: PauseNone,
			Source: types + "; " + controller + "dataimage_controller.go (nothing is done while its host " +
				"is paused; without it, the finalizer is removed)"},
		// Its controller makes an image and its address, and nothing with a machine.
		{GroupKind: kind("PreprovisioningImage"), Provenance: OnAPIServer, Pause: PauseNone,
			StatusWhilePaused: true,
			Source:            types + "; " + controller + "preprovisioningimage_controller.go (no pause)",
			Refs:              []Reference{{Path: "spec.networkDataName", To: Secret}}},
		{GroupKind: kind("BMCEventSubscription"), Provenance: OnAPIServer, Pause: PauseUnknown,
			Source: types + "; " + controller + "bmceventsubscription_controller.go (no pause: it " +
				"subscribes at the BMC what has no status)",
			Refs: []Reference{{Path: "spec.hostName", To: bareMetalHost},
				{Path: "spec.httpHeadersRef", To: Secret}}},
	}...)
}

// claimRows are the kinds with which others than its owner use a host.
func claimRows() []Row {
	return []Row{
		// A claim takes the host that names it as its consumer, else a free one. Without its hosts it
		// would take another one, so it comes after them.
		{GroupKind: object.GroupKind{Group: groupMetal3, Kind: "HostClaim"}, Pause: PauseUnknown,
			Source: "baremetal-operator v0.14.0-rc.0, internal/controller/metal3.io/" +
				"hostclaim_controller.go (no pause), pkg/hostclaim/hostclaim_manager.go (chooseBMH); " +
				"v0.13 does nothing with it",
			ByHand: "scale baremetal-operator on the source to zero for the time of the move: a claim " +
				"takes a free host",
			Refs: []Reference{{Path: "spec.userData", To: Secret}, {Path: "spec.metaData", To: Secret},
				{Path: "spec.networkData", To: Secret}, {Path: "spec.consumerRef", Back: true},
				{Path: "status.bareMetalHost", To: bareMetalHost},
				{Path: "status.hardwareData", Optional: true,
					To: object.GroupKind{Group: groupMetal3, Kind: "HardwareData"}}}},
		{GroupKind: object.GroupKind{Group: groupMetal3, Kind: "HostDeployPolicy"}, Pause: PauseNone,
			Source: "baremetal-operator v0.14.0-rc.0, pkg/hostclaim/hostclaim_manager.go " +
				"(acceptableNamespaces: HostClaims alone read it)"},
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
			Address: true, Refs: []Reference{{Path: "spec.pool", To: metal3Pool, SoftOwner: true}}},
		{GroupKind: object.GroupKind{Group: groupMetal3IPAM, Kind: "IPAddress"}, Source: types,
			Provenance: OnAPIServer, Pause: PauseNone, Address: true,
			Refs: []Reference{{Path: "spec.pool", To: metal3Pool, SoftOwner: true},
				{Path: "spec.claim", To: metal3Claim, SoftOwner: true}}},
	}
}
