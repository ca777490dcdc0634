package capi

import (
	"maps"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// groupORC is the group of the OpenStack Resource Controller.
const groupORC = "openstack.k-orc.cloud"

const usesCredentials = "lets workload clusters of the target use its credentials for the " +
	"infrastructure"

var (
	openstackPool     = infraKind("OpenStackFloatingIPPool")
	openstackIdentity = infraKind("OpenStackClusterIdentity")
	// openstackIdentityRef is {type, name, cloudName}. Before 0.11 it had no type.
	openstackIdentityRef = Reference{Path: "identityRef", To: Secret, Required: true,
		Types: map[string]object.GroupKind{"Secret": Secret, "ClusterIdentity": openstackIdentity}}
)

// openstackProviders are cluster-api-provider-openstack and the OpenStack Resource Controller.
func openstackProviders() []Project {
	return []Project{
		{Name: "OpenStack (CAPO)", Versions: "0.14, 0.15", Rows: openstackRows()},
		{Name: "OpenStack Resource Controller (ORC)", Versions: "2.6", Rows: orcRows(),
			ByHand: "There is no pause. Before a move, scale its controller on the source to zero, and " +
				"force `pause-unknown`."},
	}
}

func openstackRows() []Row {
	const types = "cluster-api-provider-openstack v0.15, api/v1beta2/types.go, api/v1alpha1"
	identity := openstackIdentityRef
	server := []Reference{identity,
		{Path: "image.imageRef", To: object.GroupKind{Group: groupORC, Kind: "Image"}},
		{Path: "floatingIPPoolRef", To: openstackPool}}
	cluster := slices.Concat([]Reference{identity}, below("bastion.spec.", server...))
	row := Row{Source: types, Provenance: OnAPIServer}
	rows := withTemplate(row, infraKind("OpenStackCluster"), cluster...)
	rows = append(rows, withTemplate(row, infraKind("OpenStackMachine"), server...)...)
	return append(rows,
		Row{GroupKind: infraKind("OpenStackServer"), Provenance: OnAPIServer, Pause: PauseWithCluster,
			StatusWhilePaused: true,
			Source: types + "; controllers/openstackserver_controller.go (IsPaused of its Cluster, and " +
				"the status of a login before that)",
			ByHand: "one without the label cluster.x-k8s.io/cluster-name is paused by nothing: leave it " +
				"out, and create it by hand",
			Refs: below(inSpec, append(slices.Clone(server),
				Reference{Path: "userDataRef", To: Secret})...)},
		Row{GroupKind: openstackIdentity, Source: types, Provenance: OnAPIServer, Pause: PauseNone,
			RunsCode: usesCredentials,
			Refs:     []Reference{{Path: "spec.secretRef", To: Secret, Required: true}}},
		// It knows the addresses in use by their IPAddresses, and reserves one for each claim without,
		// so it comes after both (Late). On the source of a move it would go on; when it is deleted
		// there, it gives its free addresses back to OpenStack.
		Row{GroupKind: openstackPool, Provenance: OnAPIServer,
			Source: "cluster-api-provider-openstack v0.14.7, controllers/openstackfloatingippool_" +
				"controller.go (no pause; reconcileIPAddresses, reconcileDelete)",
			Pause: PauseUnknown, AddressPool: true, Refs: below(inSpec, identity),
			ByHand: "a restore creates it after its IPAddressClaims and IPAddresses. For a move scale " +
				"capo-controller-manager on the source to zero, and force `pause-unknown`: a pool at work " +
				"deletes its free floating IPs in OpenStack when it is deleted"})
}

// orcRefs are the fields of kinds of the OpenStack Resource Controller that name another one of
// them, or a Secret. Its kinds are in them by the path of the field below spec.
var orcRefs = map[string]map[string]string{
	"AddressScope": {"resource.projectRef": "Project"},
	"ApplicationCredential": {"resource.accessRules.#.serviceRef": "Service",
		"resource.roleRefs": "Role", "resource.secretRef": "Secret", "resource.userRef": "User"},
	"Domain":   {},
	"Endpoint": {"resource.serviceRef": "Service"},
	"Flavor":   {},
	"FloatingIP": {"resource.floatingNetworkRef": "Network", "resource.floatingSubnetRef": "Subnet",
		"resource.portRef": "Port", "resource.projectRef": "Project"},
	"Group":   {"resource.domainRef": "Domain"},
	"Image":   {},
	"KeyPair": {},
	"Network": {"resource.projectRef": "Project"},
	"Port": {"resource.addresses.#.subnetRef": "Subnet", "resource.hostID.serverRef": "Server",
		"resource.networkRef": "Network", "resource.projectRef": "Project",
		"resource.securityGroupRefs": "SecurityGroup"},
	"Project": {"resource.domainRef": "Domain"},
	"Role":    {},
	"RoleAssignment": {"resource.domainRef": "Domain", "resource.groupRef": "Group",
		"resource.projectRef": "Project", "resource.roleRef": "Role", "resource.userRef": "User"},
	"Router": {"resource.externalGateways.#.networkRef": "Network",
		"resource.projectRef": "Project"},
	"RouterInterface": {"routerRef": "Router", "subnetRef": "Subnet"},
	"SecurityGroup":   {"resource.projectRef": "Project"},
	"Server": {"resource.bootVolume.volumeRef": "Volume", "resource.flavorRef": "Flavor",
		"resource.imageRef": "Image", "resource.keypairRef": "KeyPair",
		"resource.ports.#.portRef":                        "Port",
		"resource.serverGroupRef":                         "ServerGroup",
		"resource.schedulerHints.differentHostServerRefs": "Server",
		"resource.schedulerHints.sameHostServerRefs":      "Server",
		"resource.schedulerHints.serverGroupRef":          "ServerGroup",
		"resource.userData.secretRef":                     "Secret",
		"resource.volumes.#.volumeRef":                    "Volume",
	},
	"ServerGroup":  {},
	"Service":      {},
	"ShareNetwork": {"resource.networkRef": "Network", "resource.subnetRef": "Subnet"},
	"Subnet": {"resource.networkRef": "Network", "resource.projectRef": "Project",
		"resource.routerRef": "Router"},
	"Trunk": {"resource.portRef": "Port", "resource.projectRef": "Project",
		"resource.subports.#.portRef": "Port"},
	"User": {"resource.defaultProjectRef": "Project", "resource.domainRef": "Domain",
		"resource.passwordRef": "Secret"},
	"Volume":     {"resource.imageRef": "Image", "resource.volumeTypeRef": "VolumeType"},
	"VolumeType": {},
}

// orcRows are the kinds of the OpenStack Resource Controller. Nothing stops it: managementPolicy
// says what it may change, and is no pause.
func orcRows() []Row {
	var rows []Row
	for _, kind := range slices.Sorted(maps.Keys(orcRefs)) {
		row := Row{GroupKind: object.GroupKind{Group: groupORC, Kind: kind}, Provenance: OnAPIServer,
			Source: "openstack-resource-controller v2.6, api/v1alpha1/" + strings.ToLower(kind) +
				"_types.go",
			Pause:  PauseUnknown,
			ByHand: "scale its controller on the source to zero for the time of the move",
			Refs: []Reference{{Path: "spec.cloudCredentialsRef.secretName", To: Secret,
				Required: true}}}
		for _, field := range slices.Sorted(maps.Keys(orcRefs[kind])) {
			to := object.GroupKind{Group: groupORC, Kind: orcRefs[kind][field]}
			if to.Kind == Secret.Kind {
				to = Secret
			}
			row.Refs = append(row.Refs, Reference{Path: inSpec + field, To: to})
		}
		rows = append(rows, row)
	}
	return rows
}
