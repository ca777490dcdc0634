package capi

import (
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// The labels of the Secrets in which Helm stores a release, one Secret a revision (helm/helm v3.19,
// pkg/storage/driver/secrets.go, newSecretsObject).
const (
	LabelHelmOwner   = "owner"
	LabelHelmRelease = "name"
)

// The marks of an object that a release made: the name and the namespace of the release (helm/helm
// v3.19, pkg/action/validate.go), and the namespace of the HelmRelease of Flux that made it, where
// Flux stores the release unless the HelmRelease says otherwise (fluxcd/helm-controller v1.6.3,
// internal/postrender/common_renderer.go, api/v2/helmrelease_types.go GetStorageNamespace).
const (
	AnnotationHelmRelease   = "meta.helm.sh/release-name"
	AnnotationHelmNamespace = "meta.helm.sh/release-namespace"
	LabelFluxHelmNamespace  = "helm.toolkit.fluxcd.io/namespace"
)

// HelmStorage returns what stands for all Secrets in which the release of an object may be stored:
// their names without the revision. namespaces are those that its marks name.
func HelmStorage(release string, namespaces ...string) (refs []object.Ref) {
	for i, ns := range namespaces {
		if release != "" && ns != "" && !slices.Contains(namespaces[:i], ns) {
			refs = append(refs, object.Ref{Kind: Secret.Kind, Namespace: ns, Name: helmStorage + release})
		}
	}
	return refs
}

// HelmStorageOf returns what stands for all Secrets of the release in whose storage a Secret is, as
// HelmStorage does; ok is false for one that is in none.
func HelmStorageOf(r object.Ref) (all object.Ref, ok bool) {
	i := strings.LastIndex(r.Name, ".v")
	if r.GroupKind() != Secret || i < 0 || !strings.HasPrefix(r.Name, helmStorage) ||
		strings.Trim(r.Name[i+2:], "0123456789") != "" || r.Name[i+2:] == "" {
		return object.Ref{}, false
	}
	r.Name = r.Name[:i]
	return r, true
}

// IsHelmStorage reports whether a reference is one of HelmStorage, and no object.
func IsHelmStorage(r object.Ref) bool {
	_, secret := HelmStorageOf(r)
	return !secret && r.GroupKind() == Secret && strings.HasPrefix(r.Name, helmStorage)
}

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
