package providertest_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/mgmtd/mgmtd/internal/object"
)

// graph is the objects that the controllers of one provider leave on a management cluster, and the
// rules of the provider that a copy of them must keep.
type graph struct {
	name string
	// Rows are the workload clusters: those of the table.
	Rows []row
	// Switches say by kind ("Kind.group") what keeps the controllers from working on a copy.
	Switches map[string]string
	// Before are pairs of objects: the first has to be there before the second.
	Before [][2]string
	// NotCaptured are objects that no workload cluster needs.
	NotCaptured []string
	// NotRestored are objects that are captured and stay out of the target, with the reason.
	NotRestored map[string]string
	// Stays are objects that a move leaves on the source, where others need them.
	Stays []string
	// DeletedAtWork are objects that a move deletes on the source while their switch is not set.
	DeletedAtWork []string
	// Needed are the Secrets and identities without which a workload cluster must not be released,
	// each as "code row row": the finding of a plan without it, and the rows that it blocks. Those of
	// a kubeadm control plane need not be named. No other one blocks anything.
	Needed map[string]string
	// Findings are those of the plan of a restore besides those that every plan has, each as
	// "code ref" or "code unit".
	Findings []string
	// MoveFindings are those of the plan of a move.
	MoveFindings []string

	objects []*unstructured.Unstructured
}

// readGraphs reads the files of testdata.
func readGraphs(t *testing.T) []*graph {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	core, err := template.New("core.yaml.tmpl").Funcs(template.FuncMap{
		"kind":  func(s string) string { kind, _, _ := strings.Cut(s, "."); return kind },
		"group": func(s string) string { _, group, _ := strings.Cut(s, "."); return group },
		"indent": func(n int, s string) string {
			return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n"+strings.Repeat(" ", n))
		},
	}).ParseFiles("testdata/core.yaml.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	ca := newCertificate(t)
	var graphs []*graph
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := bytes.Cut(text, []byte("\n---\n"))
		g := &graph{name: strings.TrimSuffix(filepath.Base(path), ".yaml")}
		if err := yaml.UnmarshalStrict(head, g); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, r := range g.Rows {
			var made bytes.Buffer
			if err := core.Execute(&made, r.workload(ca)); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			g.objects = append(g.objects, documents(t, r.Name, made.Bytes())...)
		}
		g.objects = append(g.objects, documents(t, path, rest)...)
		graphs = append(graphs, g)
	}
	return graphs
}

func documents(t *testing.T, name string, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}

func refOf(u *unstructured.Unstructured) object.Ref {
	gvk := u.GroupVersionKind()
	return object.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(),
		Name: u.GetName()}
}

// refs are all objects of a graph.
func (g *graph) refs() []object.Ref {
	all := make([]object.Ref, len(g.objects))
	for i, u := range g.objects {
		all[i] = refOf(u)
	}
	return all
}

// own replaces the owners of an object, which are written as [+]Kind.group/name, by references. It
// returns the first that is not there.
func own(t *testing.T, u *unstructured.Unstructured, made map[object.Ref]*unstructured.Unstructured,
	namespaced func(object.GroupKind) bool) (missing string) {
	t.Helper()
	meta := u.Object["metadata"].(map[string]any)
	texts, _ := meta["ownerReferences"].([]any)
	var owners []any
	for _, text := range texts {
		name, controller := strings.CutPrefix(text.(string), "+")
		r, err := object.ParseRef(name)
		if err != nil {
			t.Fatal(err)
		}
		if namespaced(r.GroupKind()) {
			r.Namespace = u.GetNamespace()
		}
		owner := made[r]
		if owner == nil {
			return r.String()
		}
		o := map[string]any{"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(),
			"name": owner.GetName(), "uid": string(owner.GetUID())}
		if controller {
			maps.Copy(o, map[string]any{"controller": true, "blockOwnerDeletion": true})
		}
		owners = append(owners, o)
	}
	if owners != nil {
		meta["ownerReferences"] = owners
	}
	return ""
}

// installed are the providers of both management clusters, as clusterctl leaves them.
var installed = []struct{ label, kind, namespace string }{
	{"cluster-api", "CoreProvider", "capi-system"},
	{"bootstrap-kubeadm", "BootstrapProvider", "capi-kubeadm-bootstrap-system"},
	{"control-plane-kubeadm", "ControlPlaneProvider", "capi-kubeadm-control-plane-system"},
	{"infrastructure-openstack", "InfrastructureProvider", "capo-system"},
	{"infrastructure-aws", "InfrastructureProvider", "capa-system"},
	{"infrastructure-azure", "InfrastructureProvider", "capz-system"},
	{"infrastructure-vsphere", "InfrastructureProvider", "capv-system"},
	{"infrastructure-gcp", "InfrastructureProvider", "capg-system"},
	{"infrastructure-metal3", "InfrastructureProvider", "capm3-system"},
	{"infrastructure-packet", "InfrastructureProvider", "cluster-api-provider-packet-system"},
	{"infrastructure-k0sproject-k0smotron", "InfrastructureProvider", "k0smotron"},
	{"ipam-in-cluster", "IPAMProvider", "capi-ipam-in-cluster-system"},
	{"ipam-metal3", "IPAMProvider", "metal3-ipam-system"},
	{"addon-helm", "AddonProvider", "caaph-system"},
	{"bootstrap-rke2", "BootstrapProvider", "rke2-bootstrap-system"},
	{"control-plane-rke2", "ControlPlaneProvider", "rke2-control-plane-system"},
	{"bootstrap-k3s", "BootstrapProvider", "capi-k3s-bootstrap-system"},
	{"control-plane-k3s", "ControlPlaneProvider", "capi-k3s-control-plane-system"},
	{"bootstrap-talos", "BootstrapProvider", "cabpt-system"},
	{"control-plane-talos", "ControlPlaneProvider", "cacppt-system"},
	{"control-plane-kamaji", "ControlPlaneProvider", "kamaji-system"},
}
