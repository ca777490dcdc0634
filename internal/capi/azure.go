package capi

import (
	"maps"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// credentialFrom is the annotation that names the Secret with the credentials of a resource of the
// Azure Service Operator.
const credentialFrom = "serviceoperator.azure.com/credential-from"

// The row of every kind of the Azure Service Operator, and the fields in which such an object names
// others. The owner of a resource that may have several kinds of owners says its group and kind;
// that of the others is in asoOwners.
const asoSource = "azure-service-operator v2, docs: annotations, authentication; " +
	"cluster-api-provider-azure v1.26, azure/services/aso/aso.go"

var asoRefs = []Reference{
	{Path: "metadata.annotations[" + credentialFrom + "]", To: Secret, Required: true},
	{Name: "aso-credential", To: Secret, Optional: true},
	{Path: "spec.owner", SoftOwner: true},
}

// managedClusterSecrets are the Secrets that an operator writes for a ManagedCluster
// (azure-service-operator v2, api/containerservice/v1api20240901).
var managedClusterSecrets = []Reference{
	{Path: "windowsProfile.adminPassword", To: Secret, Required: true},
	{Path: "servicePrincipalProfile.secret", To: Secret, Required: true},
}

// asoRow is the row of kinds of the Azure Service Operator. A paused resource is read from Azure,
// and its status written.
var asoRow = Row{Source: asoSource, Provenance: OnlyRead, Pause: PauseByReconcilePolicy,
	StatusWhilePaused: true, Refs: asoRefs,
	// cluster-api-provider-azure v1.26, controllers/resource_reconciler.go (Pause applies each of
	// spec.resources, and creates what is missing)
	MadeFor: []object.GroupKind{infraKind("AzureASOManagedCluster"),
		infraKind("AzureASOManagedControlPlane"), infraKind("AzureASOManagedMachinePool")},
	VolatileAnnotations: []string{annotationPolicy, annotationPrePolicy}}

// asoOwners are the kinds of resources that cluster-api-provider-azure creates, with the kind of
// their owner (cluster-api-provider-azure v1.26, azure/services).
var asoOwners = map[object.GroupKind]object.GroupKind{
	asoKind("network", "VirtualNetwork"):          asoKind("resources", "ResourceGroup"),
	asoKind("network", "VirtualNetworksSubnet"):   asoKind("network", "VirtualNetwork"),
	asoKind("network", "NatGateway"):              asoKind("resources", "ResourceGroup"),
	asoKind("network", "BastionHost"):             asoKind("resources", "ResourceGroup"),
	asoKind("network", "PrivateEndpoint"):         asoKind("resources", "ResourceGroup"),
	asoKind("containerservice", "ManagedCluster"): asoKind("resources", "ResourceGroup"),
	asoKind("containerservice", "ManagedClustersAgentPool"): asoKind("containerservice",
		"ManagedCluster"),
	asoKind("containerservice", "FleetsMember"): asoKind("containerservice", "Fleet"),
}

func asoKind(group, kind string) object.GroupKind {
	return object.GroupKind{Group: group + ".azure.com", Kind: kind}
}

// azureProviders are cluster-api-provider-azure and the Azure Service Operator.
func azureProviders() []Project {
	return []Project{
		{Name: "Azure (CAPZ)", Versions: "1.26", Rows: azureRows(),
			ByHand: "Upgrade it one minor version at a time: the target needs the version of the source, " +
				"with its Azure Service Operator. While a move takes AzureASOManaged objects off the source, " +
				"CAPZ makes resources of the Azure Service Operator there once more, without owners: they " +
				"have the policy skip, and are for you to clear away."},
		{Name: "Azure Service Operator (ASO): every kind of a group that ends with .azure.com",
			Versions: "2", Rows: asoRows(),
			ByHand: "Of the Secrets that an operator writes for a resource, only those of a " +
				"ManagedCluster and the credentials are followed: give others the label " +
				"clusterctl.cluster.x-k8s.io/move, and restore or move their whole namespace."},
	}
}

func azureRows() []Row {
	const types = "cluster-api-provider-azure v1.26, api/v1beta1"
	identity := infraKind("AzureClusterIdentity")
	ref := Reference{Path: "identityRef", To: identity, Required: true}
	resources := append([]Reference{{To: Secret, Required: true,
		Path: "resources.#.metadata.annotations[" + credentialFrom + "]"}},
		below("resources.#.spec.", managedClusterSecrets...)...)
	row := Row{Source: types, Provenance: OnAPIServer}
	rows := slices.Concat(
		withTemplate(row, infraKind("AzureCluster"), ref),
		withTemplate(row, infraKind("AzureMachine")),
		withTemplate(row, infraKind("AzureManagedCluster")),
		withTemplate(row, infraKind("AzureManagedControlPlane"), ref),
		withTemplate(row, infraKind("AzureManagedMachinePool")),
		withTemplate(row, infraKind("AzureASOManagedCluster"), resources...),
		withTemplate(row, infraKind("AzureASOManagedControlPlane"), resources...),
		withTemplate(row, infraKind("AzureASOManagedMachinePool"), resources...))
	for i := range rows {
		// They write status.ready before they look whether their Cluster is paused
		// (cluster-api-provider-azure v1.26, controllers/azureasomanagedcluster_controller.go).
		row := &rows[i]
		row.StatusWhilePaused = row.Pause == PauseWithCluster &&
			strings.HasPrefix(row.GroupKind.Kind, "AzureASOManaged")
	}
	rows = append(rows, sameRows(Row{Source: types, Provenance: OnAPIServer, Pause: PauseWithCluster},
		infraKind("AzureMachinePool"), infraKind("AzureMachinePoolMachine"))...)
	return append(rows, Row{GroupKind: identity, Source: types, Provenance: OnAPIServer,
		Pause: PauseNone, RunsCode: usesCredentials, Shared: true, UsersNamed: true,
		Refs: []Reference{{Path: "spec.clientSecret", To: Secret, Required: true}}})
}

// asoRows are the kinds whose owner is of a known kind.
func asoRows() []Row {
	kinds := slices.SortedFunc(maps.Keys(asoOwners), compareKinds)
	var rows []Row
	for _, kind := range kinds {
		row := asoRow
		row.GroupKind = kind
		row.Refs = append(slices.Clone(asoRefs[:len(asoRefs)-1]), Reference{Path: "spec.owner",
			To: asoOwners[kind], SoftOwner: true})
		if kind.Kind == "ManagedCluster" {
			row.Refs = append(row.Refs, below(inSpec, managedClusterSecrets...)...)
		}
		rows = append(rows, row)
	}
	return rows
}
