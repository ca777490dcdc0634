package capi

import "strings"

// The labels of the Secrets in which Helm stores a release, one Secret a revision (helm/helm v3.19,
// pkg/storage/driver/secrets.go, newSecretsObject).
const (
	LabelHelmOwner   = "owner"
	LabelHelmRelease = "name"
)

// helmStorage is the beginning of the names of these Secrets (helm/helm v3.19,
// pkg/storage/storage.go, makeKey).
const helmStorage = "sh.helm.release.v1."

// ClusterOfHelmStorage returns the name of the workload cluster to which a Secret of Helm's storage
// belongs, or "". A chart of a workload cluster names it after the release, unless its values set
// another name (azimuth-cloud/capi-helm-charts 2c557a9a,
// charts/openstack-cluster/templates/_helpers.tpl; azimuth-capi-operator 0.23,
// azimuth_capi/operator.py). Without its storage, Helm and the tools that use it take the release
// on the target for one that is not installed yet.
func ClusterOfHelmStorage(name, owner, release string) string {
	if owner != "helm" || release == "" || !strings.HasPrefix(name, helmStorage+release+".v") {
		return ""
	}
	return release
}
