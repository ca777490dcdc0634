package capi

import "github.com/mgmtd/mgmtd/internal/object"

// openstackRows are the kinds of cluster-api-provider-openstack that are no default rows.
func openstackRows() []Row {
	return []Row{
		// Restored without its status, a pool hands out addresses that are in use.
		{GroupKind: object.GroupKind{Group: GroupInfrastructure, Kind: "OpenStackFloatingIPPool"},
			Source: "cluster-api-provider-openstack, controllers/openstackfloatingippool_controller.go",
			Pause:  PauseUnsupported},
	}
}
