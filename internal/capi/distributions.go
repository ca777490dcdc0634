package capi

import "slices"

// distributionProviders bootstrap machines with another distribution than kubeadm.
func distributionProviders() []Project {
	return []Project{{Name: "RKE2", Versions: "0.25", Rows: rke2Rows(),
		ByHand: "The Secrets with credentials and certificates of private registries " +
			"(`privateRegistriesConfig.configs`) are not followed: give them the label " +
			"clusterctl.cluster.x-k8s.io/move, and restore or move their whole namespace."},
		{Name: "k3s", Versions: "0.3", Rows: k3sRows()},
		{Name: "Talos", Versions: "bootstrap 0.7, control plane 0.5", Rows: talosRows()}}
}

func rke2Rows() []Row {
	row := Row{RunsCode: runsMachineCode,
		Source: "cluster-api-provider-rke2 v0.25, bootstrap/api/v1beta2, controlplane/api/v1beta2; " +
			"controlplane/internal/controllers (IsPaused of its Cluster)"}
	config := []Reference{
		{Path: "files.#.contentFrom.secret", To: Secret},
		{Path: "files.#.contentFrom.configMap", To: ConfigMap},
		{Path: "agentConfig.imageCredentialProviderConfigMap", To: ConfigMap},
		{Path: "agentConfig.resolvConf", To: ConfigMap},
	}
	controlPlane := append(slices.Clone(config),
		Reference{Path: "machineTemplate.spec.infrastructureRef"},
		Reference{Path: "machineTemplate.infrastructureRef"}, // v1beta1
		Reference{Path: "infrastructureRef"},                 // v1alpha1
		Reference{Path: "manifestsConfigMapReference", To: ConfigMap},
		Reference{Path: "serverConfig.auditPolicySecret", To: Secret},
		Reference{Path: "serverConfig.cloudProviderConfigMap", To: ConfigMap},
		Reference{Path: "serverConfig.externalDatastoreSecret", To: Secret},
		Reference{Path: "serverConfig.secretsEncryption.encryptionKeySecret", To: Secret},
		Reference{Path: "serverConfig.etcd.backupConfig.s3.endpointCAsecret", To: Secret},
		Reference{Path: "serverConfig.etcd.backupConfig.s3.s3CredentialSecret", To: Secret})
	rows := slices.Concat(withTemplate(row, bootstrapKind("RKE2Config"), config...),
		withTemplate(row, controlPlaneKind("RKE2ControlPlane"), controlPlane...))
	// pkg/secret/certificates.go. The Secret "<cluster>-token" has the label of its Cluster. As a
	// suffix, "token" would take Secrets that belong to no workload cluster, such as one of a
	// ClusterResourceSet.
	rows[2].SecretSuffixes = []string{"cca", "peer-etcd"}
	rows[2].Certificates = []string{"ca", "cca"} // pkg/secret/certificates.go, LookupOrGenerate
	// bootstrap/internal/controllers/rke2config_controller.go: no machine joins without it, and the
	// first one of a control plane makes it (getRegistrationTokenFromSecretValue,
	// generateAndStoreToken).
	rows[2].Keys = []Key{{Suffix: "token"}}
	// pkg/rke2/machine_filters.go, control_plane.go: what of the control plane its Machines are
	// compared with
	rows[0].Compared = []ComparedField{{Path: "spec", Label: labelControlPlane}}
	for _, field := range []string{"serverConfig", "machineTemplate", "version", "files",
		"preRKE2Commands", "postRKE2Commands", "agentConfig", "privateRegistriesConfig",
		"gzipUserData"} {
		rows[2].Compared = append(rows[2].Compared, ComparedField{Path: inSpec + field})
	}
	return rows
}

func k3sRows() []Row {
	row := Row{RunsCode: runsMachineCode,
		Source: "cluster-api-k3s v0.3, bootstrap/api/v1beta2, controlplane/api/v1beta2; " +
			"controlplane/controllers/kthreescontrolplane_controller.go (IsPaused of its Cluster)"}
	files := Reference{Path: "files.#.contentFrom.secret", To: Secret}
	rows := slices.Concat(withTemplate(row, bootstrapKind("KThreesConfig"), files),
		withTemplate(row, controlPlaneKind("KThreesControlPlane"),
			slices.Concat(below("kthreesConfigSpec.", files),
				[]Reference{{Path: "machineTemplate.infrastructureRef"}})...))
	// pkg/secret/const.go, certificates.go (LookupOrGenerate). The token has a label, as above.
	rows[2].SecretSuffixes = []string{"cca"}
	rows[2].Certificates = []string{"ca", "cca"}
	rows[2].Keys = []Key{{Suffix: "token"}} // pkg/token/token.go (Reconcile makes another one)
	// pkg/machinefilters/machine_filters.go
	rows[0].Compared = []ComparedField{{Path: "spec", Label: labelControlPlane}}
	rows[2].Compared = []ComparedField{{Path: "spec.kthreesConfigSpec"}, {Path: "spec.version"},
		{Path: "spec.machineTemplate.infrastructureRef"}}
	return rows
}

func talosRows() []Row {
	row := Row{RunsCode: runsMachineCode,
		Source: "cluster-api-bootstrap-provider-talos v0.7, controllers/talosconfig_controller.go; " +
			"cluster-api-control-plane-provider-talos v0.5, controllers/taloscontrolplane_controller.go " +
			"(IsPaused of its Cluster)"}
	rows := withTemplate(row, bootstrapKind("TalosConfig"))
	// The Secret "<cluster>-talos" has the keys of the cluster. Without it the next TalosConfig makes
	// others, unless the operator wrote the configuration (cluster-api-bootstrap-provider-talos
	// v0.7.0-alpha.2, controllers/secrets.go getSecretsBundle, talosconfig_controller.go genConfigs,
	// userConfigs). "<cluster>-talosconfig" and "<cluster>-ca" are made of it again.
	rows[0].SecretSuffixes = []string{"talos", "talosconfig"}
	rows[0].Keys = []Key{{Suffix: "talos", Path: "spec.generateType", NotWith: "none"}}
	controlPlane := withTemplate(row, controlPlaneKind("TalosControlPlane"),
		Reference{Path: "infrastructureTemplate"})[0]
	controlPlane.Compared = []ComparedField{{Path: "spec.version"},
		{Path: "spec.infrastructureTemplate"}} // controllers/controlplane.go
	return append(rows, controlPlane)
}
