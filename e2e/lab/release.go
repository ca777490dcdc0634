package lab

import "path/filepath"

// release is a version of Cluster API that a management cluster runs.
type release struct {
	version string
	// folder of the go.mod that names it, below e2e/
	module string
	// suffix of its programs in bin/ and of its folders of manifests
	suffix string
	// api is the version of its kinds that clients write.
	api string
	// contracts are the labels that a provider's kustomization puts on its CRDs: without them the
	// topology controller finds no version to use. The core provider's CRDs have none since 1.11.
	contracts []string
	// hooks are the webhooks to wait for: one kind of each provider.
	probes []probe
	// providers are what `clusterctl init --infrastructure docker` installs.
	providers []provider
}

// probe is a kind that a webhook of a provider handles.
type probe struct{ group, kind string }

// provider is one Cluster API provider as clusterctl would install it.
type provider struct {
	label     string // value of cluster.x-k8s.io/provider, and name of its inventory object
	name      string // as clusterctl calls it
	kind      string // type in the inventory
	namespace string
	prefix    string // of the names of its cluster-wide objects
	role      string // of its process; the cloud runs in its own
	module    string
	config    string // folder of its manifests in that module
}

const (
	capiModule     = "sigs.k8s.io/cluster-api"
	capiTestModule = "sigs.k8s.io/cluster-api/test"
)

// current is the release that management clusters run unless they are old.
func current() release {
	return release{
		version: "v1.14.0", module: ".", api: "v1beta2",
		contracts: []string{"v1beta1", "v1beta2"},
		probes:    probes(),
		providers: providers(roleCloud, "core/config"),
	}
}

// old is the last release that stores its objects at v1beta1. Its infrastructure provider is a
// process of each management cluster: it reads other types than the cloud does.
func old() release {
	return release{
		version: "v1.10.7", module: "tools/capi110", suffix: "-1.10", api: "v1beta1",
		contracts: []string{"v1beta1"},
		probes:    probes(),
		providers: providers(roleInMemory, "config"),
	}
}

func probes() []probe {
	return []probe{{"cluster.x-k8s.io", "Cluster"}, {"bootstrap.cluster.x-k8s.io", "KubeadmConfig"},
		{"controlplane.cluster.x-k8s.io", "KubeadmControlPlaneTemplate"},
		{"infrastructure.cluster.x-k8s.io", "DevMachineTemplate"}}
}

func providers(infrastructure, core string) []provider {
	return []provider{
		{"cluster-api", "cluster-api", "CoreProvider", "capi-system", "capi-", roleCore, capiModule,
			core},
		{"bootstrap-kubeadm", "kubeadm", "BootstrapProvider", "capi-kubeadm-bootstrap-system",
			"capi-kubeadm-bootstrap-", roleBootstrap, capiModule, "bootstrap/kubeadm/config"},
		{"control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", "capi-kubeadm-control-plane-system",
			"capi-kubeadm-control-plane-", roleControlPlane, capiModule, "controlplane/kubeadm/config"},
		{"infrastructure-docker", "docker", "InfrastructureProvider", "capd-system", "capd-",
			infrastructure, capiTestModule, "infrastructure/docker/config"},
	}
}

// targets are the programs of a release.
func (r release) targets() []target {
	flags := versionFlags(capiModule+"/version", r.version)
	core := capiModule + "/core"
	if r.suffix != "" {
		core = capiModule // its core manager is the root package
	}
	targets := []target{
		{name: roleCore + r.suffix, module: r.module, pkg: core, ldflags: flags},
		{name: roleBootstrap + r.suffix, module: r.module, pkg: capiModule + "/bootstrap/kubeadm",
			ldflags: flags},
		{name: roleControlPlane + r.suffix, module: r.module, pkg: capiModule + "/controlplane/kubeadm",
			ldflags: flags},
	}
	if r.suffix != "" {
		targets = append(targets, target{name: roleInMemory + r.suffix, module: r.module,
			pkg: "./cloud", ldflags: flags, sources: []string{r.module + "/cloud"}})
	}
	return targets
}

func (h Home) crds(r release) string     { return filepath.Join(string(h), "crds"+r.suffix) }
func (h Home) webhooks(r release) string { return filepath.Join(string(h), "webhooks"+r.suffix) }
