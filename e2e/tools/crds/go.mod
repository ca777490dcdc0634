// The modules whose CRDs the provider tier of test-api installs, with their checksums in go.sum.
// "make lab" downloads them and builds nothing of them, so their own requirements are not here.
// CRDs of providers that the module proxy does not have are in by-hand.yaml.
module github.com/mgmtd/mgmtd/e2e/tools/crds

go 1.26.0

require (
	github.com/fluxcd/helm-controller v1.6.3
	github.com/fluxcd/kustomize-controller v1.9.4
	github.com/k-orc/openstack-resource-controller/v2 v2.6.0
	github.com/metal3-io/baremetal-operator v0.13.2
	sigs.k8s.io/cluster-api-addon-provider-helm v0.6.4
	sigs.k8s.io/cluster-api-ipam-provider-in-cluster v1.0.3
	sigs.k8s.io/cluster-api-provider-aws/v2 v2.13.0
	sigs.k8s.io/cluster-api-provider-azure v1.26.0
	sigs.k8s.io/cluster-api-provider-gcp v1.12.0
	sigs.k8s.io/cluster-api-provider-openstack v0.14.7
	sigs.k8s.io/cluster-api-provider-vsphere v1.16.1
)
