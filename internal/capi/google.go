package capi

import "slices"

// googleProviders is cluster-api-provider-gcp, with GKE.
func googleProviders() []Project {
	const types = "cluster-api-provider-gcp v1.12, api/v1beta1, exp/api/v1beta1"
	row := Row{Source: types, Provenance: OnAPIServer}
	credentials := Reference{Path: "credentialsRef", To: Secret, Required: true}
	rows := slices.Concat(
		withTemplate(row, infraKind("GCPCluster"), credentials),
		withTemplate(row, infraKind("GCPMachine")),
		withTemplate(row, infraKind("GCPManagedCluster"), credentials),
		withTemplate(row, infraKind("GCPManagedControlPlane")),
		withTemplate(row, infraKind("GCPManagedMachinePool")))
	// It holds nothing, and makes no bootstrap data.
	rows = append(rows, Row{GroupKind: bootstrapKind("GKEConfig"), Provenance: OnAPIServer,
		Source: "cluster-api-provider-gcp v1.12, exp/bootstrap/gke/controllers/gkeconfig_controller.go " +
			"(no pause: it writes status.ready alone)",
		Pause: PauseNone, StatusWhilePaused: true},
		Row{GroupKind: bootstrapKind("GKEConfigTemplate"), Provenance: OnAPIServer,
			Source: "cluster-api-provider-gcp v1.12, exp/bootstrap/gke/api/v1beta1",
			Pause:  PauseNone, UsersNamed: true})
	rows = append(rows, sameRows(Row{Source: types, Provenance: OnAPIServer, Pause: PauseWithCluster},
		infraKind("GCPMachinePool"))...)
	return []Project{{Name: "Google Cloud (CAPG), with GKE", Versions: "1.12", Rows: rows}}
}
