package capi

import "github.com/mgmtd/mgmtd/internal/object"

// awsRows are the kinds of cluster-api-provider-aws that are no default rows.
func awsRows() []Row {
	return []Row{
		{GroupKind: object.GroupKind{Group: GroupInfrastructure, Kind: "AWSFargateProfile"},
			Source: "cluster-api-provider-aws, exp/controllers/awsfargatepool_controller.go",
			Pause:  PauseUnsupported},
	}
}
