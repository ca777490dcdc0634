package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const providerLabel = "cluster.x-k8s.io/provider"

// clusterctlLabels are on everything that clusterctl installs for a provider.
func (p provider) clusterctlLabels() map[string]string {
	return map[string]string{"clusterctl.cluster.x-k8s.io": "", providerLabel: p.label}
}

// writeManifests copies the CRDs and webhook configurations out of the module
// cache, with the labels that kustomize and clusterctl would add.
func writeManifests(ctx context.Context, home Home, r release) error {
	for _, dir := range []string{home.crds(r), home.webhooks(r)} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove old manifests: %w", err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	for _, p := range r.providers {
		module, err := moduleDir(ctx, home, r.module, p.module)
		if err != nil {
			return err
		}
		if err := writeProvider(home, r, p, filepath.Join(module, p.config)); err != nil {
			return err
		}
	}
	module, err := moduleDir(ctx, home, r.module, capiModule)
	if err != nil {
		return err
	}
	return writeCRDs(home.crds(r), filepath.Join(module, "cmd/clusterctl/config/manifest"), nil)
}

func writeProvider(home Home, r release, p provider, config string) error {
	labels := p.clusterctlLabels()
	if p.role != roleCore {
		for _, contract := range r.contracts {
			labels["cluster.x-k8s.io/"+contract] = contract
		}
	}
	if err := writeCRDs(home.crds(r), filepath.Join(config, "crd/bases"), labels); err != nil {
		return err
	}
	return writeWebhooks(filepath.Join(home.webhooks(r), p.label+".yaml"),
		filepath.Join(config, "webhook/manifests.yaml"), p.prefix, p.clusterctlLabels())
}

// writeWebhooks writes published webhook configurations with names and labels as installed.
func writeWebhooks(to, from, prefix string, labels map[string]string) error {
	hooks, err := readObjects(from)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, hook := range hooks {
		hook.SetName(prefix + hook.GetName())
		hook.SetLabels(labels)
		text, err := yaml.Marshal(hook.Object)
		if err != nil {
			return fmt.Errorf("marshal %s: %w", hook.GetName(), err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

func writeCRDs(to, from string, labels map[string]string) error {
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
			if err := os.WriteFile(filepath.Join(to, crd.GetName()+".yaml"), text,
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
	return templates(ctx, home, current())
}

// OldTemplates is Templates of Cluster API 1.10.
func OldTemplates(ctx context.Context, home Home) (string, error) {
	return templates(ctx, home, old())
}

func templates(ctx context.Context, home Home, r release) (string, error) {
	dir, err := moduleDir(ctx, home, r.module, capiTestModule)
	return filepath.Join(dir, "infrastructure/docker/templates"), err
}

// moduleDir returns the folder of a module that the go.mod in a folder below e2e/ requires. It
// downloads the module where needed.
func moduleDir(ctx context.Context, home Home, from, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(home.source(), from)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	var download struct{ Dir string }
	if err := json.Unmarshal(out, &download); err != nil || download.Dir == "" {
		return "", fmt.Errorf("find module %s: %w", module, errors.Join(err, os.ErrNotExist))
	}
	return download.Dir, nil
}
