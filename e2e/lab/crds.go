package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// crdModule is the module of e2e/tools/crds: its go.mod names the modules with CRDs of providers.
const crdModule = "tools/crds"

// conversionCA is the annotation by which cert-manager puts the CA of a conversion webhook into a
// CRD: "<namespace>/<certificate>".
const conversionCA = "cert-manager.io/inject-ca-from"

// crdSource is where the CRDs of a provider are.
type crdSource struct {
	// provider is the name of the folder in crds-providers.
	provider string
	// module is the path of its module.
	module string
	// configs are the folders of the module with a kustomization of CRDs.
	configs []string
	// label is the value of cluster.x-k8s.io/provider; empty for what clusterctl does not install.
	label string
	// namespace is that of its controllers; empty for what clusterctl does not install.
	namespace string
}

// crdSources are the providers whose CRDs are in modules. The labels and namespaces are those of
// config/default/kustomization.yaml.
func crdSources() []crdSource {
	const kubernetes = "sigs.k8s.io/cluster-api-"
	standard := []string{"config/crd"}
	return []crdSource{
		{"openstack", kubernetes + "provider-openstack", standard, "infrastructure-openstack",
			"capo-system"},
		{"orc", "github.com/k-orc/openstack-resource-controller/v2", standard, "", ""},
		{"aws", kubernetes + "provider-aws/v2", standard, "infrastructure-aws", "capa-system"},
		{"azure", kubernetes + "provider-azure", standard, "infrastructure-azure", "capz-system"},
		{"vsphere", kubernetes + "provider-vsphere", []string{"config/default/crd",
			"config/supervisor/crd"}, "infrastructure-vsphere", "capv-system"},
		{"google", kubernetes + "provider-gcp", standard, "infrastructure-gcp", "capg-system"},
		{"bmo", "github.com/metal3-io/baremetal-operator", []string{"config/base/crds"}, "", ""},
		{"ipam-in-cluster", kubernetes + "ipam-provider-in-cluster", standard, "ipam-in-cluster",
			"capi-ipam-in-cluster-system"},
		{"helm", kubernetes + "addon-provider-helm", standard, "addon-helm", "caaph-system"},
		{"flux", "github.com/fluxcd/kustomize-controller", standard, "", ""},
		{"flux", "github.com/fluxcd/helm-controller", standard, "", ""},
	}
}

func (h Home) providerCRDs() string { return filepath.Join(string(h), "crds-providers") }

// writeProviderCRDs writes the CRDs of providers into crds-providers/<provider>: those of modules,
// and those that are written by hand.
func writeProviderCRDs(ctx context.Context, home Home) error {
	if err := os.RemoveAll(home.providerCRDs()); err != nil {
		return fmt.Errorf("remove old CRDs: %w", err)
	}
	folder := filepath.Join(home.source(), crdModule)
	versions, err := requirements(ctx, folder)
	if err != nil {
		return err
	}
	for _, source := range crdSources() {
		dir, err := moduleDir(ctx, home, crdModule, source.module+"@"+versions[source.module])
		if err != nil {
			return err
		}
		for _, config := range source.configs {
			if err := source.write(home, filepath.Join(dir, config)); err != nil {
				return err
			}
		}
	}
	return writeCRDsByHand(home, filepath.Join(folder, "by-hand.yaml"))
}

// requirements are the versions of the modules that the go.mod of a folder requires.
func requirements(ctx context.Context, folder string) (map[string]string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read go.mod of %s: %w", folder, err)
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return nil, fmt.Errorf("read go.mod of %s: %w", folder, err)
	}
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Path] = r.Version
	}
	return versions, nil
}

// write writes the CRDs below a folder with a kustomization.
func (s crdSource) write(home Home, config string) error {
	common, patches, err := readKustomization(config)
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(config, "bases", "*.yaml"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("find CRDs in %s: %w", config, errors.Join(err, os.ErrNotExist))
	}
	for _, path := range paths {
		crds, err := readObjects(path)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			s.complete(crd, common, patches)
			if err := writeCRD(home, s.provider, crd); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete adds the labels and the annotation with which an installer leaves a CRD. The conversion
// webhook itself is left out: nothing answers it.
func (s crdSource) complete(crd *unstructured.Unstructured, common map[string]string,
	patches []*unstructured.Unstructured) {
	labels := map[string]string{}
	maps.Copy(labels, crd.GetLabels())
	maps.Copy(labels, common)
	converted := false
	for _, patch := range patches {
		if patch.GetName() != crd.GetName() {
			continue
		}
		maps.Copy(labels, patch.GetLabels())
		_, webhook, _ := unstructured.NestedMap(patch.Object, "spec", "conversion")
		converted = converted || webhook || patch.GetAnnotations()[conversionCA] != ""
	}
	if s.label != "" {
		labels["clusterctl.cluster.x-k8s.io"], labels[providerLabel] = "", s.label
	}
	crd.SetLabels(labels)
	crd.SetAnnotations(nil)
	if converted && s.namespace != "" {
		crd.SetAnnotations(map[string]string{conversionCA: s.namespace + "/serving-cert"})
	}
	withoutDescriptions(crd.Object)
}

// readKustomization returns the labels that a kustomization puts on all CRDs, and its patches of
// CRDs.
func readKustomization(config string) (map[string]string, []*unstructured.Unstructured, error) {
	data, err := os.ReadFile(filepath.Join(config, "kustomization.yaml"))
	if err != nil {
		return nil, nil, fmt.Errorf("read kustomization: %w", err)
	}
	var file struct {
		CommonLabels map[string]string
		Labels       []struct{ Pairs map[string]string }
		Patches      []struct{ Path string }
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, nil, fmt.Errorf("read kustomization of %s: %w", config, err)
	}
	common := map[string]string{}
	maps.Copy(common, file.CommonLabels)
	for _, l := range file.Labels {
		maps.Copy(common, l.Pairs)
	}
	var patches []*unstructured.Unstructured
	for _, p := range file.Patches {
		if p.Path == "" {
			continue
		}
		objects, err := readObjects(filepath.Join(config, p.Path))
		if err != nil {
			return nil, nil, err
		}
		patches = append(patches, objects...)
	}
	return common, patches, nil
}

// withoutDescriptions removes the descriptions of a schema: they are most of it, and an API server
// takes seconds for them. A field of this name has a schema as its value, not a text.
func withoutDescriptions(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for key, inner := range v {
			if key != "default" && key != "enum" {
				withoutDescriptions(inner)
			}
		}
	case []any:
		for _, inner := range v {
			withoutDescriptions(inner)
		}
	}
}

// byHand are kinds of a provider whose CRDs are in no module.
type byHand struct {
	Provider  string            // name of the folder
	Source    string            // project, version and file
	Label     string            // of clusterctl; empty for what it does not install
	Namespace string            // of its controllers, when they have a conversion webhook
	Labels    map[string]string // of the contract
	Group     string
	Version   string
	Kinds     []string
	Cluster   []string // those of Kinds that are cluster-scoped
	NoStatus  []string // those of Kinds without a status subresource
	// Plurals are the names of resources that are not the kind with an s.
	Plurals map[string]string
}

func writeCRDsByHand(home Home, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read CRDs: %w", err)
	}
	var all []byHand
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return fmt.Errorf("read CRDs of %s: %w", path, err)
	}
	for _, h := range all {
		for _, kind := range h.Kinds {
			if err := writeCRD(home, h.Provider, h.crd(kind)); err != nil {
				return err
			}
		}
	}
	return nil
}

// crd is a CRD that accepts every field.
func (h byHand) crd(kind string) *unstructured.Unstructured {
	has := func(list []string) bool {
		return strings.Contains(" "+strings.Join(list, " ")+" ",
			" "+kind+" ")
	}
	scope := "Namespaced"
	if has(h.Cluster) {
		scope = "Cluster"
	}
	plural := h.Plurals[kind]
	if plural == "" {
		plural = strings.ToLower(kind) + "s"
	}
	version := map[string]any{"name": h.Version, "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
			"x-kubernetes-preserve-unknown-fields": true}}}
	if !has(h.NoStatus) {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+h.Group, nil)
	crd.Object["spec"] = map[string]any{"group": h.Group, "scope": scope,
		"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural,
			"singular": strings.ToLower(kind)},
		"versions": []any{version}}
	labels := map[string]string{}
	maps.Copy(labels, h.Labels)
	if h.Label != "" {
		labels["clusterctl.cluster.x-k8s.io"], labels[providerLabel] = "", h.Label
	}
	crd.SetLabels(labels)
	if h.Namespace != "" {
		crd.SetAnnotations(map[string]string{conversionCA: h.Namespace + "/serving-cert"})
	}
	return crd
}

func writeCRD(home Home, provider string, crd *unstructured.Unstructured) error {
	dir := filepath.Join(home.providerCRDs(), provider)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	if err := encoder.Encode(crd.Object); err != nil {
		return fmt.Errorf("marshal %s: %w", crd.GetName(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, crd.GetName()+".json"), text.Bytes(),
		0o644); err != nil {
		return fmt.Errorf("write CRD: %w", err)
	}
	return nil
}
