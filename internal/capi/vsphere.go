package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

var vsphereZone = infraKind("VSphereDeploymentZone")

// vsphereProviders is cluster-api-provider-vsphere, with vCenter and with a supervisor.
func vsphereProviders() []Project {
	return []Project{{Name: "vSphere (CAPV), also with a supervisor", Versions: "1.16, 1.17",
		Rows: vsphereRows(), ByHand: "The Secrets of VSphereClusterIdentities are in the namespace of " +
			"the provider (capv-system) and come with their identity; install the provider first. With a " +
			"supervisor, what the VM Operator makes of a VSphereMachine is an object of the management " +
			"cluster itself, of a kind of which nothing is known here: it is captured and not restored. " +
			"Its VirtualMachineGroups have no pause. VSphereDeploymentZones that only the " +
			"`failureDomainSelector` of a VSphereCluster selects, and no Machine names, do not come with " +
			"a single workload cluster: restore or move them with all that is in their management cluster."}}
}

func vsphereRows() []Row {
	const (
		types       = "cluster-api-provider-vsphere v1.17, api/govmomi/v1beta2"
		controllers = "cluster-api-provider-vsphere v1.17, controllers/"
		supervisor  = "cluster-api-provider-vsphere v1.17, api/supervisor/v1beta2"
	)
	identity, domain := infraKind("VSphereClusterIdentity"), infraKind("VSphereFailureDomain")
	// {kind, name}: a Secret of its namespace, or an identity. Types are not fields here.
	identityRef := Reference{Path: "identityRef", To: identity, Required: true}
	pools := Reference{Path: "network.devices.#.addressesFromPools"}
	row := Row{Source: types, Provenance: OnAPIServer}
	ofSupervisor := func(kind string) object.GroupKind {
		return object.GroupKind{Group: "vmware." + GroupInfrastructure, Kind: kind}
	}
	ofNobody := Row{Source: supervisor, Provenance: OnAPIServer}
	rows := slices.Concat(
		withTemplate(row, infraKind("VSphereCluster"), identityRef),
		withTemplate(row, infraKind("VSphereMachine"), pools),
		withTemplate(ofNobody, ofSupervisor("VSphereCluster")),
		withTemplate(ofNobody, ofSupervisor("VSphereMachine"),
			Reference{Path: "network.interfaces.primary.networkRef"},
			Reference{Path: "network.interfaces.secondary.#.networkRef"}))
	return append(rows,
		Row{GroupKind: infraKind("VSphereVM"), Source: types, Provenance: OnAPIServer,
			Pause: PauseWithCluster,
			Refs:  below(inSpec, pools, Reference{Path: "bootstrapRef", To: Secret})},
		// Both controllers know of no Cluster: only the annotation pauses them.
		Row{GroupKind: identity, Provenance: OnAPIServer, Pause: PauseByAnnotation,
			Source: controllers + "vsphereclusteridentity_controller.go (EnsurePausedCondition without " +
				"a Cluster); pkg/identity/identity.go (the Secret)",
			RunsCode: usesCredentials,
			Refs: []Reference{{Path: "spec.secretName", To: Secret, Required: true,
				Controller: "capv-system"}}},
		// A zone owns its failure domain, so it is there first.
		Row{GroupKind: vsphereZone, Provenance: OnAPIServer, Pause: PauseByAnnotation,
			Source: controllers + "vspheredeploymentzone_controller.go (EnsurePausedCondition without " +
				"a Cluster), vspheredeploymentzone_controller_domain.go (the owner)",
			Refs: []Reference{{Path: "spec.failureDomain", To: domain}}},
		// Its zone's controller alone reads it.
		Row{GroupKind: domain, Provenance: OnAPIServer, Pause: PauseNone,
			Source: controllers + "vspheredeploymentzone_controller.go",
			Refs:   []Reference{{Path: "spec.topology.networkConfigurations.#.addressesFromPools"}}},
		Row{GroupKind: ofSupervisor("ProviderServiceAccount"), Pause: PauseByAnnotation,
			Provenance: OnAPIServer,
			Source:     controllers + "vmware/serviceaccount_controller.go (HasPaused)",
			Refs: []Reference{{Path: "spec.ref",
				To: ofSupervisor("VSphereCluster")}}})
}
