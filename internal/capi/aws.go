package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// awsIdentityRef is {kind, name}, with the group of the provider.
var awsIdentityRef = Reference{Path: "identityRef", Required: true,
	To: object.GroupKind{Group: GroupInfrastructure}}

// awsProviders is cluster-api-provider-aws, with EKS, Fargate and ROSA.
func awsProviders() []Project {
	return []Project{{Name: "AWS (CAPA), with EKS, Fargate and ROSA", Versions: "2.11",
		Rows: awsRows(), ByHand: "The Secrets of static identities are in the namespace of the " +
			"provider (capa-system) and come with their identity; install the provider first. A " +
			"ROSAControlPlane or ROSARoleConfig without `spec.credentialsSecretRef` reads the Secret " +
			"`rosa-creds-secret` there, which is not captured: create it on the target by hand."}}
}

func awsRows() []Row {
	const (
		types    = "cluster-api-provider-aws v2.11, api/v1beta2"
		identity = types + "/awsidentity_types.go"
		rosa     = "cluster-api-provider-aws v2.11, exp/api/v1beta2 (rosa)"
	)
	row := Row{Source: types, Provenance: OnAPIServer}
	rows := slices.Concat(
		withTemplate(row, infraKind("AWSCluster"), awsIdentityRef),
		withTemplate(row, infraKind("AWSMachine")),
		withTemplate(row, infraKind("AWSManagedCluster")),
		withTemplate(row, controlPlaneKind("AWSManagedControlPlane"), awsIdentityRef),
		machineConfigs(Row{Source: "cluster-api-provider-aws v2.11, bootstrap/eks/api/v1beta2",
			Provenance: OnAPIServer}, "EKSConfig", "NodeadmConfig"))
	rows = append(rows, sameRows(Row{Source: types + ", exp/api/v1beta2", Provenance: OnAPIServer,
		Pause: PauseWithCluster}, infraKind("AWSMachinePool"), infraKind("AWSManagedMachinePool"),
		infraKind("ROSACluster"), infraKind("ROSAMachinePool"))...)
	return append(rows,
		// A change of its AWSManagedControlPlane reconciles a paused profile, too, and creates it in AWS
		// if it is absent. The AWSManagedControlPlane is paused with the Cluster.
		Row{GroupKind: infraKind("AWSFargateProfile"), Provenance: OnAPIServer, Pause: PauseByAnnotation,
			Source: "cluster-api-provider-aws v2.11, exp/controllers/awsfargatepool_controller.go " +
				"(ResourceNotPausedAndHasFilterLabel)",
			ByHand: "a change of its AWSManagedControlPlane reconciles a paused profile, too: one that is " +
				"gone from AWS is made again"},
		Row{GroupKind: controlPlaneKind("ROSAControlPlane"), Source: rosa, Provenance: OnAPIServer,
			Pause: PauseWithCluster, RunsCode: runsMachineCode,
			Refs: below(inSpec, awsIdentityRef,
				Reference{Path: "credentialsSecretRef", To: Secret, Required: true},
				Reference{Path: "rosaRoleConfigRef", To: infraKind("ROSARoleConfig")},
				Reference{Path: "rosaNetworkRef", To: infraKind("ROSANetwork")},
				Reference{Path: "externalAuthProviders.#.oidcClients.#.clientSecret", To: Secret},
				Reference{Path: "externalAuthProviders.#.issuer.issuerCertificateAuthority",
					To: ConfigMap})},
		// No controller of these two reads a pause.
		Row{GroupKind: infraKind("ROSARoleConfig"), Source: rosa, Provenance: OnAPIServer,
			Pause: PauseUnknown, Refs: below(inSpec, awsIdentityRef,
				Reference{Path: "credentialsSecretRef", To: Secret, Required: true})},
		Row{GroupKind: infraKind("ROSANetwork"), Source: rosa, Provenance: OnAPIServer,
			Pause: PauseUnknown, Refs: below(inSpec, awsIdentityRef)},
		Row{GroupKind: infraKind("AWSClusterControllerIdentity"), Source: identity,
			Provenance: OnAPIServer, Pause: PauseNone, RunsCode: usesCredentials},
		Row{GroupKind: infraKind("AWSClusterRoleIdentity"), Source: identity, Provenance: OnAPIServer,
			Pause: PauseNone, RunsCode: usesCredentials,
			Refs: []Reference{{Path: "spec.sourceIdentityRef", To: awsIdentityRef.To, Required: true}}},
		Row{GroupKind: infraKind("AWSClusterStaticIdentity"), Provenance: OnAPIServer, Pause: PauseNone,
			Source:   identity + "; pkg/cloud/scope/session.go (GetManagerNamespace)",
			RunsCode: usesCredentials,
			Refs: []Reference{{Path: "spec.secretRef", To: Secret, Required: true,
				Controller: "capa-system"}}})
}

// machineConfigs returns the rows of bootstrap kinds with files and users as kubeadm has them, and
// of their templates.
func machineConfigs(row Row, kinds ...string) []Row {
	row.RunsCode = runsMachineCode
	var rows []Row
	for _, kind := range kinds {
		rows = append(rows, withTemplate(row, bootstrapKind(kind),
			Reference{Path: "files.#.contentFrom.secret", To: Secret},
			Reference{Path: "users.#.passwdFrom.secret", To: Secret})...)
	}
	return rows
}
