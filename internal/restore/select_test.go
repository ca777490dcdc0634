package restore

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestASpecMaySelectObjectsBesides: as far as the snapshot has them. An object of a unit that is
// not planned stays out.
func TestASpecMaySelectObjectsBesides(t *testing.T) {
	cluster := func(name string) *graph.Node {
		return &graph.Node{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: "a", Name: name}}
	}
	secret := func(name, of string) *graph.Node {
		return &graph.Node{Ref: object.Ref{Kind: "Secret", Namespace: "a", Name: name}, Cluster: of}
	}
	namespace := &graph.Node{Ref: object.Ref{Kind: "Namespace", Name: "a"}}
	unused, other, theirs := secret("unused", ""), secret("other", ""), secret("theirs", "two")
	g := graph.New([]*graph.Node{cluster("one"), cluster("two"), namespace, unused, other, theirs},
		nil)
	theirs.Unit = "a/two"
	spec := Spec{Selection: Selection{Workloads: []object.Key{{Namespace: "a", Name: "one"}}},
		Only: []string{"a/one"}, Also: []object.Ref{unused.Ref, theirs.Ref,
			{Kind: "Secret", Namespace: "a", Name: "gone"}}}
	nodes, err := selectNodes(g, spec)
	if err != nil {
		t.Fatal(err)
	}
	has := func(ref object.Ref) bool {
		return slices.ContainsFunc(nodes, func(n *graph.Node) bool { return n.Ref == ref })
	}
	if !has(unused.Ref) || !has(cluster("one").Ref) || has(other.Ref) || has(theirs.Ref) ||
		has(cluster("two").Ref) {
		t.Errorf("selected: %v", nodes)
	}
}
