//go:build api

package snapshot_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// looksLikeRef are names of fields that name another object.
var looksLikeRef = regexp.MustCompile(
	`(Ref|Refs|SecretName|ConfigMapName|secretName|configMapName|clusterName|ClassName|NamespacedName)$`)

// noEdge are fields that look like references and are none that a snapshot has to follow, with the
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

// TestAPIRulesCoverEveryReference walks the schema of every installed CRD of Cluster API and fails
// for a spec field that looks like a reference and is neither in the edge table nor among the
// exceptions.
func TestAPIRulesCoverEveryReference(t *testing.T) {
	m := servers.Connect(t, 0)
	covered := map[string]bool{}
	for _, r := range capi.Rules {
		covered[r.From.Kind+" "+strings.ReplaceAll(r.Path, ".#", "")] = true
	}
	crd := kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
		Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}
	checked := 0
	_, err := m.Reader().List(context.Background(), crd, kube.ListOptions{}, func(raw []byte) error {
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
		for _, v := range c.Spec.Versions {
			spec, ok := v.Schema.OpenAPIV3Schema.Properties["spec"]
			if !v.Storage || !ok {
				continue
			}
			for _, path := range spec.refs("spec") {
				checked++
				if !covered[c.Spec.Names.Kind+" "+path] && !excepted(c.Spec.Names.Kind, path) {
					t.Errorf("%s.%s: field %s looks like a reference and is in neither table", c.Spec.Names.Kind,
						c.Spec.Group, path)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 30 {
		t.Errorf("only %d fields that look like references: the walk is broken", checked)
	}
}

type schema struct {
	Properties map[string]schema
	Items      *schema
}

// refs returns the paths of fields that look like references. A field named "secret" with a name
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
