//go:build api

package providertest_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// captured reports whether a snapshot has to have an object.
func (g *graph) captured(r object.Ref) bool { return !slices.Contains(g.NotCaptured, r.String()) }

// restored reports whether a restore has to bring an object.
func (g *graph) restored(r object.Ref) bool {
	_, left := g.NotRestored[r.String()]
	return g.captured(r) && !left
}

// isLate reports whether an object comes after the release.
func (g *graph) isLate(t *testing.T, r object.Ref) bool {
	return g.switchOf(t, r.GroupKind()) == late
}

// blocked reports whether no row of a graph gets to the target in a restore, or in a move.
func (g *graph) blocked(moved bool) bool {
	return !slices.ContainsFunc(g.Rows, func(r row) bool {
		return r.Blocked == "" && (!moved || r.MoveBlocked == "")
	})
}

// kinds are the kinds of all graphs, as "Kind.group".
func kinds(graphs []*graph) []string {
	seen := map[string]bool{}
	var all []string
	for _, g := range graphs {
		for _, r := range g.refs() {
			if gk := r.GroupKind().String(); !seen[gk] {
				seen[gk] = true
				all = append(all, gk)
			}
		}
	}
	return all
}
