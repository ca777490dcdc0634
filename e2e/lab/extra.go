package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The controllers that AddProviders starts. Build makes them with BuildOptions.Providers.
const (
	// BareMetal is the Baremetal Operator with its fixture provisioner: it provisions BareMetalHosts
	// without Ironic. All hosts of a process share one state of a machine.
	BareMetal = "baremetal-operator"
	// InClusterIPAM gives addresses of InClusterIPPools and GlobalInClusterIPPools to IPAddressClaims.
	InClusterIPAM = "ipam-in-cluster"
	// HelmAddon makes HelmReleaseProxies of HelmChartProxies.
	HelmAddon = "addon-helm"
	// FluxSource fetches sources, such as Buckets.
	FluxSource = "flux-source"
	// FluxKustomize applies Kustomizations. It needs FluxSource.
	FluxKustomize = "flux-kustomize"
)

// extra is a controller that a management cluster runs beside those of Cluster API.
type extra struct {
	// Its label is empty when clusterctl does not install it.
	provider
	version string
	tools   string // folder of its go.mod, below e2e/
	crds    string // folder of its CRDs, in its config
	hooks   string // file of its webhooks, in its config; empty for none
	// crdLabels are the labels that its kustomization puts on CRDs, by the name of the CRD.
	crdLabels map[string]map[string]string
	// args of its process. It gets KUBECONFIG and a TMPDIR of its own.
	args func(extraPorts) []string
	// program is its name in its image, which is in managedFields.
	program string
}

// extraPorts is where the process of an extra listens.
type extraPorts struct {
	health, other int // other is that of its webhooks or of its files
	certs         string
	dir           string // for its files
}

// extras is in the order of their ports.
func extras() []extra {
	moveHierarchy := func(value string) map[string]string {
		return map[string]string{"clusterctl.cluster.x-k8s.io/move-hierarchy": value}
	}
	return []extra{{
		provider: provider{namespace: "baremetal-operator-system", prefix: "baremetal-operator-",
			role: BareMetal, module: "github.com/metal3-io/baremetal-operator", config: "config/base"},
		version: "v0.13.2", tools: "tools/capi113", crds: "crds/bases", hooks: "webhook/manifests.yaml",
		program: "baremetal-operator",
		args: func(p extraPorts) []string {
			return []string{"--test-mode", "--metrics-addr=0", p.flag("health-addr", p.health),
				fmt.Sprintf("--webhook-port=%d", p.other)}
		},
	}, {
		provider: provider{"ipam-in-cluster", "in-cluster", "IPAMProvider",
			"capi-ipam-in-cluster-system", "capi-ipam-in-cluster-", InClusterIPAM,
			"sigs.k8s.io/cluster-api-ipam-provider-in-cluster", "config"},
		version: "v1.0.3", tools: "tools/capi110", crds: "crd/bases", hooks: "webhook/manifests.yaml",
		crdLabels: map[string]map[string]string{
			"inclusterippools.ipam.cluster.x-k8s.io":       moveHierarchy(""),
			"globalinclusterippools.ipam.cluster.x-k8s.io": moveHierarchy("")},
		program: managerName,
		args: func(p extraPorts) []string {
			return []string{"--metrics-bind-address=0", p.flag("health-probe-bind-address", p.health),
				fmt.Sprintf("--webhook-port=%d", p.other), "--webhook-cert-dir=" + p.certs}
		},
	}, {
		provider: provider{"addon-helm", "helm", "AddonProvider", "caaph-system", "caaph-", HelmAddon,
			"sigs.k8s.io/cluster-api-addon-provider-helm", "config"},
		version: "v0.6.4", tools: "tools/capi113", crds: "crd/bases", hooks: "webhook/manifests.yaml",
		crdLabels: map[string]map[string]string{
			"helmchartproxies.addons.cluster.x-k8s.io": moveHierarchy("true")},
		program: managerName,
		args: func(p extraPorts) []string {
			return []string{"--sync-period=" + syncPeriod.String(), "--diagnostics-address=0",
				"--insecure-diagnostics", p.flag("health-addr", p.health),
				fmt.Sprintf("--webhook-port=%d", p.other), "--webhook-cert-dir=" + p.certs}
		},
	}, {
		provider: provider{namespace: fluxNamespace, role: FluxSource, config: "config",
			module: "github.com/fluxcd/source-controller"},
		version: "v1.9.1", tools: "tools/flux", crds: "crd/bases", program: "source-controller",
		args: func(p extraPorts) []string {
			return []string{"--metrics-addr=0", p.flag("health-addr", p.health),
				p.flag("storage-addr", p.other), p.flag("storage-adv-addr", p.other),
				"--storage-path=" + p.dir}
		},
	}, {
		provider: provider{namespace: fluxNamespace, role: FluxKustomize, config: "config",
			module: "github.com/fluxcd/kustomize-controller"},
		version: "v1.9.4", tools: "tools/flux", crds: "crd/bases", program: "kustomize-controller",
		args: func(p extraPorts) []string {
			return []string{"--metrics-addr=0", p.flag("health-addr", p.health),
				"--requeue-dependency=2s"}
		},
	}}
}

const fluxNamespace = "flux-system"

func (p extraPorts) flag(name string, port int) string {
	return fmt.Sprintf("--%s=127.0.0.1:%d", name, port)
}

func (e extra) target() target {
	return target{name: e.role, module: e.tools, pkg: e.module}
}

func (h Home) extra(e extra, name string) string {
	return filepath.Join(string(h), "providers", e.role, name)
}

// writeManifests copies its CRDs and webhook configurations out of the module cache.
func (e extra) writeManifests(ctx context.Context, home Home) error {
	if err := os.RemoveAll(home.extra(e, "")); err != nil {
		return fmt.Errorf("remove old manifests: %w", err)
	}
	if err := os.MkdirAll(home.extra(e, "crds"), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	module, err := moduleDir(ctx, home, e.tools, e.module)
	if err != nil {
		return err
	}
	config := filepath.Join(module, e.config)
	if err := writeCRDs(home.extra(e, "crds"), filepath.Join(config, e.crds), e.labels()); err != nil {
		return err
	}
	if e.hooks == "" {
		return nil
	}
	return writeWebhooks(home.extra(e, "webhooks.yaml"), filepath.Join(config, e.hooks), e.prefix,
		e.labels())
}

// labels are on everything that is installed for it.
func (e extra) labels() map[string]string {
	if e.label == "" {
		return map[string]string{}
	}
	return e.clusterctlLabels()
}

// extraProcess is an extra of a management cluster.
type extraProcess struct {
	extra
	ports   extraPorts
	process *process
}

// AddProviders installs and starts further controllers, and waits until they are ready. They are
// killed and restarted with the management cluster. It needs the programs that Build makes with
// BuildOptions.Providers.
func (m *Mgmt) AddProviders(ctx context.Context, roles ...string) error {
	config, err := m.RESTConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, role := range roles {
		i := slices.IndexFunc(extras(), func(e extra) bool { return e.role == role })
		if i < 0 {
			return fmt.Errorf("add provider %s: there is none of that name", role)
		}
		p := m.extraProcess(i)
		if err := m.installExtra(ctx, c, p); err != nil {
			return fmt.Errorf("add provider %s: %w", role, err)
		}
		m.extras = append(m.extras, p)
	}
	return m.startExtras(ctx)
}

func (m *Mgmt) extraProcess(i int) *extraProcess {
	e := extras()[i]
	port := m.port + portFirstExtra + 2*i
	p := &extraProcess{extra: e, ports: extraPorts{health: port, other: port + 1,
		certs: m.pkiDir(), dir: filepath.Join(m.dir, e.role)}}
	p.process = m.process(e.role, e.args(p.ports))
	p.process.name = e.program
	p.process.env = []string{"KUBECONFIG=" + m.Kubeconfig(), "TMPDIR=" + p.ports.dir,
		"POD_NAMESPACE=" + e.namespace, "RUNTIME_NAMESPACE=" + e.namespace}
	return p
}

// installExtra creates what its manifests would leave on the management cluster, but for the
// Deployment.
func (m *Mgmt) installExtra(ctx context.Context, c client.Client, e *extraProcess) error {
	crds, err := filepath.Glob(m.lab.home.extra(e.extra, "crds/*.yaml"))
	if err != nil || len(crds) == 0 {
		return fmt.Errorf("find its CRDs: run `lab build --providers` first: %w", os.ErrNotExist)
	}
	if err := m.makeFolder(e); err != nil {
		return err
	}
	objects, err := m.objectsOf(e)
	if err != nil {
		return err
	}
	for _, path := range crds {
		published, err := readObjects(path)
		if err != nil {
			return err
		}
		for _, crd := range published {
			labels := crd.GetLabels()
			for key, value := range e.crdLabels[crd.GetName()] {
				labels = withLabel(labels, key, value)
			}
			crd.SetLabels(labels)
			if e.hooks != "" {
				m.convertAt(crd, e.ports.other)
			}
			if err := createCRD(ctx, c, crd); err != nil {
				return err
			}
		}
	}
	for _, o := range objects {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, o)); err != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return m.waitCRDs(ctx, c)
}

// makeFolder makes the folder for the files of an extra. One with webhooks looks there for its
// certificate when no flag names another folder.
func (m *Mgmt) makeFolder(e *extraProcess) error {
	certs := filepath.Join(e.ports.dir, "k8s-webhook-server")
	if e.hooks == "" {
		return os.MkdirAll(e.ports.dir, 0o755)
	}
	if err := os.MkdirAll(certs, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Symlink(m.pkiDir(), filepath.Join(certs, "serving-certs")); err != nil {
		return fmt.Errorf("link certificates: %w", err)
	}
	return nil
}

// objectsOf are its namespace, its place in the inventory and its webhooks.
func (m *Mgmt) objectsOf(e *extraProcess) ([]*unstructured.Unstructured, error) {
	objects := []*unstructured.Unstructured{object("v1", "Namespace", "", e.namespace, e.labels())}
	if e.label != "" {
		objects = append(objects, e.inventory(e.version))
	}
	if e.hooks == "" {
		return objects, nil
	}
	hooks, err := readObjects(m.lab.home.extra(e.extra, "webhooks.yaml"))
	if err != nil {
		return nil, err
	}
	for _, hook := range hooks {
		if err := m.pointHere(hook, e.ports.other); err != nil {
			return nil, err
		}
	}
	return append(objects, hooks...), nil
}

// startExtras starts the extras that do not run, and waits until all are ready and their webhooks
// or files are served.
func (m *Mgmt) startExtras(ctx context.Context) error {
	for _, e := range m.extras {
		if err := m.lab.spawner.start(e.process); err != nil {
			return err
		}
	}
	for _, e := range m.extras {
		if err := e.process.wait(ctx, e.role, func(ctx context.Context) error {
			if err := get(ctx, http.DefaultClient,
				fmt.Sprintf("http://127.0.0.1:%d/readyz", e.ports.health)); err != nil {
				return err
			}
			if e.hooks == "" && e.role != FluxSource {
				return nil
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp",
				fmt.Sprintf("127.0.0.1:%d", e.ports.other))
			if err != nil {
				return err
			}
			return conn.Close()
		}); err != nil {
			return err
		}
	}
	return m.lab.writeState()
}
