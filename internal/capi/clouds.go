package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// cloudProviders are infrastructure providers. A few of their kinds are paused in another way than
// the contract of Cluster API says, or name objects that are not part of it. Their other kinds have
// no row: the rows of the contract (defaults) fit them.
func cloudProviders() []Project {
	return []Project{
		{Name: "KubeVirt (CAPK)", Versions: "0.11", Rows: kubevirtRows(),
			ByHand: "Its controllers do not honour the pause of a Cluster. Scale capk-controller-manager " +
				"to zero on the target until the release, and on the source for the whole of a move. " +
				"Virtual machines that run on the management cluster itself are neither captured nor " +
				"moved: without them, the target makes new ones."},
		{Name: "Hetzner (CAPH)", Versions: "1.1", Rows: hetznerRows(),
			ByHand: "Nothing pauses a free HetznerBareMetalHost: see to it that one that is free on the " +
				"source is not on the target as well, or both may install it. An SSH key of a bare metal " +
				"machine has to be in a Secret that its HetznerBareMetalMachine names."},
		{Name: "Nutanix (CAPX)", Versions: "1.10", Rows: nutanixRows(),
			ByHand: "A failure domain `NutanixMetro/NAME` or `NutanixMetroSite/NAME` of a Machine is " +
				"not followed: restore or move these objects with their whole namespace."},
		{Name: "Oracle Cloud (CAPOCI)", Versions: "0.24", Rows: ociRows()},
		{Name: "Proxmox (CAPMOX)", Versions: "0.9", Rows: proxmoxRows()},
		{Name: "IBM Cloud (CAPIBM)", Versions: "0.14", Rows: []Row{
			// A copy is looked up by its name, and imported when it is not there.
			{GroupKind: infraKind("IBMPowerVSImage"), Pause: PauseNone, StatusWhilePaused: true,
				Source: "cluster-api-provider-ibmcloud v0.14, internal/controllers/powervs/" +
					"ibmpowervsimage_controller.go (no pause)"}}},
	}
}

// kubevirtRows: only an event filter reads the annotation of the object of the event, and events of
// the Machine and the Cluster pass it.
func kubevirtRows() []Row {
	const source = "cluster-api-provider-kubevirt v0.11, api/v1alpha1; " +
		"controllers/kubevirtcluster_controller.go, kubevirtmachine_controller.go (no IsPaused)"
	infra := Reference{Path: "infraClusterSecretRef", To: Secret, Required: true}
	var rows []Row
	for _, kind := range []string{"KubevirtCluster", "KubevirtMachine"} {
		of := withTemplate(Row{Source: source}, infraKind(kind), infra)
		of[0].IgnoresPause, of[0].StatusWhilePaused = true, true
		of[0].ByHand = "scale capk-controller-manager to zero on both sides until the release"
		rows = append(rows, of...)
	}
	return rows
}

func hetznerRows() []Row {
	const types = "cluster-api-provider-hetzner v1.1.8, api/v1beta1"
	host := infraKind("HetznerBareMetalHost")
	ssh := Reference{Path: "sshSpec.secretRef", To: Secret, Required: true}
	rows := slices.Concat(
		withTemplate(Row{Source: types}, infraKind("HetznerCluster"),
			Reference{Path: "hetznerSecretRef", To: Secret, Required: true},
			Reference{Path: "sshKeys.robotRescueSecretRef", To: Secret},
			Reference{Path: "sshKeys.rescueSecretRef", To: Secret}), // v1beta2
		withTemplate(Row{Source: types}, infraKind("HetznerBareMetalMachine"), ssh))
	// Without its host the controller lets the Machine be deleted (pkg/services/baremetal).
	rows[2].Refs = append(rows[2].Refs, Reference{To: host, Qualified: true, Required: true,
		Path: "metadata.annotations[infrastructure.cluster.x-k8s.io/HetznerBareMetalHost]"})
	// v1beta1 keeps the whole status of a host in its spec.
	return append(rows, Row{GroupKind: host, Source: types + "/hetznerbaremetalhost_types.go",
		Pause: PauseWithCluster, Volatile: []VolatileField{{Path: "spec.status"}},
		Refs: []Reference{{Path: "spec.status.userData", To: Secret},
			{Path: "spec.status.sshSpec.secretRef", To: Secret},
			{Path: "spec.consumerRef", Back: true}}})
}

// nutanixDomain is what a Machine of Nutanix names as its failure domain.
var nutanixDomain = infraKind("NutanixFailureDomain")

func nutanixRows() []Row {
	const types = "cluster-api-provider-nutanix v1.10, api/v1beta1"
	metro := infraKind("NutanixMetro")
	unpaused := Row{Source: types + "; controllers (no pause: they write nothing but status)",
		Pause: PauseNone, StatusWhilePaused: true, UsersNamed: true}
	rows := withTemplate(Row{Source: types}, infraKind("NutanixCluster"),
		Reference{Path: "controlPlaneFailureDomains", To: nutanixDomain},
		Reference{Path: "prismCentral.credentialRef", To: Secret},
		Reference{Path: "prismCentral.additionalTrustBundle", To: ConfigMap, Optional: true})
	rows = append(rows, sameRows(unpaused, nutanixDomain, metro, infraKind("NutanixMetroSite"))...)
	rows[3].Refs = []Reference{{Path: "spec.failureDomains", To: nutanixDomain}}
	rows[4].Refs = []Reference{{Path: "spec.preferredFailureDomain", To: nutanixDomain},
		{Path: "spec.metroRef", To: metro}}
	return append(rows, Row{GroupKind: infraKind("NutanixVirtualHADomain"), Pause: PauseUnknown,
		Source: types + "; controllers/nutanixvirtualhadomain_controller.go (no pause: it makes " +
			"categories, protection policies and recovery plans that are missing)",
		ByHand: "scale capx-controller-manager on the source to zero for the time of the move",
		Refs: []Reference{{Path: "spec.metroRef", To: metro},
			{Path: "spec.movementGroups.#.categoryRecoveryPlans.#.failureDomainRef",
				To: nutanixDomain}}})
}

func ociRows() []Row {
	const types = "cluster-api-provider-oci v0.24, api/v1beta2"
	identity := infraKind("OCIClusterIdentity")
	ref := Reference{Path: "identityRef", To: identity, Required: true}
	return append(slices.Concat(
		withTemplate(Row{Source: types}, infraKind("OCICluster"), ref,
			Reference{Path: "clientOverrides.certOverride", To: Secret, Required: true}),
		withTemplate(Row{Source: types}, infraKind("OCIManagedCluster"), ref)),
		Row{GroupKind: identity, Source: types + "; cloud/util/util.go", Pause: PauseNone,
			RunsCode: usesCredentials, Shared: true, UsersNamed: true,
			Refs: []Reference{{Path: "spec.principalSecret", To: Secret, Required: true}}})
}

func proxmoxRows() []Row {
	const types = "cluster-api-provider-proxmox v0.9, api/v1alpha1, api/v1alpha2"
	var pools []Reference
	for _, device := range []string{"network.default.", "network.additionalDevices.#.",
		"network.networkDevices.#."} {
		for _, field := range []string{"ipv4PoolRef", "ipv6PoolRef", "ipPoolRef"} {
			pools = append(pools, Reference{Path: device + field,
				To: object.GroupKind{Group: GroupIPAM}})
		}
	}
	return slices.Concat(
		withTemplate(Row{Source: types}, infraKind("ProxmoxCluster"),
			Reference{Path: "credentialsRef", To: Secret, Required: true}),
		withTemplate(Row{Source: types}, infraKind("ProxmoxMachine"), pools...))
}
