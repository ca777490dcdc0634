package capi

import "github.com/mgmtd/mgmtd/internal/object"

// devRows are the kinds of the provider with which Cluster API tests itself. They say what the
// default rows say; its template fields name in-memory things of the test provider.
func devRows() []Row {
	const source = "cluster-api v1.14, test/infrastructure/docker/api/v1beta2"
	var rows []Row
	for _, kind := range []string{"DevCluster", "DevMachine", "DevMachinePool", "DockerCluster",
		"DockerMachine", "DockerMachinePool"} {
		rows = append(rows, Row{GroupKind: object.GroupKind{Group: GroupInfrastructure, Kind: kind},
			Source: source, Pause: PauseWithCluster},
			Row{GroupKind: object.GroupKind{Group: GroupInfrastructure, Kind: kind + "Template"},
				Source: source, Pause: PauseNone, UsersNamed: true})
	}
	return rows
}
