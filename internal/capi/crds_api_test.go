//go:build api

package capi_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/object"
)

// looksLikeRef are names of fields that name another object.
var looksLikeRef = regexp.MustCompile(
	`(Ref|Refs|SecretName|ConfigMapName|secretName|configMapName|clusterName|ClassName|NamespacedName)$`)

// noEdge are fields that seem to be references and are none that a snapshot has to follow, with the
// reason.
var noEdge = map[string]string{
	"* spec.clusterName": "makes the object a part of that " +
		"workload cluster's unit",
	"* spec.template.spec.clusterName":                    "the same as spec.clusterName of the object",
	"* spec.*extraEnvs*":                                  "of the static pods of the workload cluster",
	"* spec.*nodeRef":                                     "a Node of the workload cluster",
	"* spec.*docker*TemplateRef":                          "of Cluster API's own test provider",
	"* spec.*loadBalancer.customHAProxyConfigTemplateRef": "of Cluster API's own test provider",
	"ExtensionConfig spec.clientConfig.service": "a Service of the extension's " +
		"deployment, which belongs to the provider",
	"ClusterResourceSetBinding spec.bindings.resources": "what the ClusterResourceSet names in " +
		"spec.resources",
}

// notOurs are groups of kinds of which nothing is captured.
var notOurs = map[string]bool{"kustomize.toolkit.fluxcd.io": true,
	"helm.toolkit.fluxcd.io": true, "argoproj.io": true}

// TestAPIEveryKindIsKnown walks every installed CRD of Cluster API and its providers. It fails for
// a kind without a row or a default row, for a kind without a decision how it is paused, and for a
// spec field that seems to be a reference and is neither among the Refs of the row nor an
// exception.
//
// The CRDs of other providers are not installed: of these it reads the files that "make lab"
// collects, and checks the kinds alone.
func TestAPIEveryKindIsKnown(t *testing.T) {
	var rows *capi.Table
	others, err := kubetest.ProviderCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range others {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		if gk := (object.GroupKind{Group: group, Kind: kind}); !rows.Has(gk) && !notOurs[group] &&
			rows.Row(gk).Pause == capi.PauseUnknown {
			t.Errorf("%s has no row: how is it paused?", gk)
		}
	}
	m := servers.Connect(t, 0)
	crd := kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
		Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}
	kinds, fields := 0, 0
	_, err = m.Reader().List(t.Context(), crd, kube.ListOptions{}, func(raw []byte) error {
		var c struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name    string
					Storage bool
					Schema  struct{ OpenAPIV3Schema schema }
				}
			}
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		kinds++
		gk := object.GroupKind{Group: c.Spec.Group, Kind: c.Spec.Names.Kind}
		row := rows.Row(gk)
		if !rows.Has(gk) && row.Pause == capi.PauseUnknown {
			t.Errorf("%s has neither a row nor a default row: how is it paused?", gk)
		}
		covered := map[string]bool{}
		for _, ref := range row.Refs {
			covered[strings.ReplaceAll(ref.Path, ".#", "")] = true
		}
		for _, v := range c.Spec.Versions {
			spec, ok := v.Schema.OpenAPIV3Schema.Properties["spec"]
			if !v.Storage || !ok {
				continue
			}
			for _, path := range spec.refs("spec") {
				fields++
				if !covered[path] && !excepted(gk.Kind, path) {
					t.Errorf("%s: field %s seems to be a reference and is neither among the refs of its row "+
						"nor an exception", gk, path)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if kinds < 20 || fields < 30 {
		t.Errorf("only %d kinds and %d fields that seem to be references: the walk is broken", kinds,
			fields)
	}
}

type schema struct {
	Properties map[string]schema
	Items      *schema
}

// refs returns the paths of fields that seem to be references. A field named "secret" with a name
// inside counts too.
func (s schema) refs(path string) []string {
	var found []string
	for name, p := range s.Properties {
		here := path + "." + name
		inner := p
		if p.Items != nil {
			inner = *p.Items
		}
		_, named := inner.Properties["name"]
		switch {
		case (name == "secret" || name == "configMap") && named:
			found = append(found, here+".name")
		case looksLikeRef.MatchString(name), name == "resources" && named:
			found = append(found, here)
		default:
			found = append(found, inner.refs(here)...)
		}
	}
	slices.Sort(found)
	return found
}

func excepted(kind, path string) bool {
	for key := range noEdge {
		k, p, _ := strings.Cut(key, " ")
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*") + "$"
		if (k == "*" || k == kind) && regexp.MustCompile(pattern).MatchString(path) {
			return true
		}
	}
	return false
}
