package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

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

// providers are what `clusterctl init --infrastructure docker` installs.
func providers() []provider {
	const capi, test = "sigs.k8s.io/cluster-api", "sigs.k8s.io/cluster-api/test"
	return []provider{
		{"cluster-api", "cluster-api", "CoreProvider", "capi-system", "capi-", roleCore, capi,
			"core/config"},
		{"bootstrap-kubeadm", "kubeadm", "BootstrapProvider", "capi-kubeadm-bootstrap-system",
			"capi-kubeadm-bootstrap-", roleBootstrap, capi, "bootstrap/kubeadm/config"},
		{"control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", "capi-kubeadm-control-plane-system",
			"capi-kubeadm-control-plane-", roleControlPlane, capi, "controlplane/kubeadm/config"},
		{"infrastructure-docker", "docker", "InfrastructureProvider", "capd-system", "capd-", roleCloud,
			test, "infrastructure/docker/config"},
	}
}

const providerLabel = "cluster.x-k8s.io/provider"

// clusterctlLabels are on everything that clusterctl installs for a provider.
func (p provider) clusterctlLabels() map[string]string {
	return map[string]string{"clusterctl.cluster.x-k8s.io": "", providerLabel: p.label}
}

// writeManifests copies the CRDs and webhook configurations out of the module
// cache, with the labels that kustomize and clusterctl would add.
func writeManifests(ctx context.Context, home Home) error {
	for _, dir := range []string{home.crds(), home.webhooks()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove old manifests: %w", err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	for _, p := range providers() {
		module, err := moduleDir(ctx, home, p.module)
		if err != nil {
			return err
		}
		if err := writeProvider(home, p, filepath.Join(module, p.config)); err != nil {
			return err
		}
	}
	module, err := moduleDir(ctx, home, "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	return writeCRDs(home, filepath.Join(module, "cmd/clusterctl/config/manifest"), nil)
}

func writeProvider(home Home, p provider, config string) error {
	labels := p.clusterctlLabels()
	// The contract versions that a provider's kustomization puts on its CRDs:
	// without them the topology controller finds no version to use. The core
	// provider's CRDs carry none.
	if p.role != roleCore {
		labels["cluster.x-k8s.io/v1beta1"] = "v1beta1"
		labels["cluster.x-k8s.io/v1beta2"] = "v1beta2"
	}
	if err := writeCRDs(home, filepath.Join(config, "crd/bases"), labels); err != nil {
		return err
	}
	hooks, err := readObjects(filepath.Join(config, "webhook/manifests.yaml"))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, hook := range hooks {
		hook.SetName(p.prefix + hook.GetName())
		hook.SetLabels(p.clusterctlLabels())
		text, err := yaml.Marshal(hook.Object)
		if err != nil {
			return fmt.Errorf("marshal %s: %w", hook.GetName(), err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return os.WriteFile(filepath.Join(home.webhooks(), p.label+".yaml"), out.Bytes(), 0o644)
}

func writeCRDs(home Home, from string, labels map[string]string) error {
	paths, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("find CRDs in %s: %w", from, errors.Join(err, os.ErrNotExist))
	}
	for _, path := range paths {
		crds, err := readObjects(path)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			all := crd.GetLabels()
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, labels)
			crd.SetLabels(all)
			text, err := yaml.Marshal(crd.Object)
			if err != nil {
				return fmt.Errorf("marshal %s: %w", crd.GetName(), err)
			}
			if err := os.WriteFile(filepath.Join(home.crds(), crd.GetName()+".yaml"), text,
				0o644); err != nil {
				return fmt.Errorf("write CRD: %w", err)
			}
		}
	}
	return nil
}

// readObjects reads a file of YAML documents.
func readObjects(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", path, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Templates is the folder of the templates that Cluster API publishes for its in-memory provider.
// It is in the module cache: nothing of it is in this repository.
func Templates(ctx context.Context, home Home) (string, error) {
	dir, err := moduleDir(ctx, home, "sigs.k8s.io/cluster-api/test")
	return filepath.Join(dir, "infrastructure/docker/templates"), err
}

func moduleDir(ctx context.Context, home Home, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = home.source()
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
