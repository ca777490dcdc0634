package graph

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

func labelled(labels ...string) func(*Node) {
	return func(n *Node) { n.Labels = labels }
}

// labelledFleet is two workload clusters that share a class, a template that both own, and a
// Secret that both name.
func labelledFleet(t *testing.T) []*Node {
	t.Helper()
	return []*Node{
		node(t, "Namespace/ns"), node(t, "Namespace/classes"),
		node(t, clusterA, needs(class), needs(planeA), labelled("tier=gold")),
		node(t, clusterB, needs(class), needs("Secret/ns/credentials"), labelled("tier=bronze")),
		node(t, planeA, ownedBy(clusterA), needs("Secret/ns/credentials"), needs(common),
			ownedBy("Secret/ns/never-there")),
		node(t, "Secret/ns/a-ca", of("a"), ownedBy(planeA)), node(t, "Secret/ns/b-ca", of("b")),
		node(t, "Secret/ns/credentials"),
		node(t, common, ownedBy(clusterA), ownedBy(clusterB)),
		node(t, class, needs(template)), node(t, template, ownedBy(class)),
		node(t, "Secret/ns/nobodys"),
	}
}

func refs(nodes []*Node) (list []string) {
	for _, n := range nodes {
		list = append(list, n.Ref.String())
	}
	return list
}

func narrowed(t *testing.T, nodes []*Node, text string) (*Graph, []*Node) {
	t.Helper()
	s, err := ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	whole := NewWhole(nodes, nil)
	return whole.Narrow(whole.UnitsWith(s))
}

// TestSelectHasWhatAUnitOwnsTogetherWithOthers: nothing names the Secret, and each of its owners
// would miss it. It is in no selection without one of them.
func TestSelectHasWhatAUnitOwnsTogetherWithOthers(t *testing.T) {
	cluster := func(name string) *Node {
		return &Node{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: "ns",
			Name: name}, UID: "uid-" + name}
	}
	a, b, c := cluster("a"), cluster("b"), cluster("c")
	secret := &Node{Ref: object.Ref{Kind: "Secret", Namespace: "ns", Name: "s"}, UID: "uid-s",
		Owners: []Owner{{Ref: a.Ref, UID: a.UID}, {Ref: b.Ref, UID: b.UID}}}
	g := NewWhole([]*Node{a, b, c, secret}, nil)
	for unit, want := range map[string][]string{
		"ns/a": {a.Ref.String(), "Secret/ns/s"},
		"ns/b": {b.Ref.String(), "Secret/ns/s"},
		"ns/c": {c.Ref.String()},
	} {
		got := refs(g.Select(map[string]bool{unit: true}, nil))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", unit, got, want)
		}
	}
}

// TestNarrowKeepsWholeUnitsAndWhatTheyShare: and nothing of another workload cluster. What both
// need is shared still, and the owner that is left out is not missing.
func TestNarrowKeepsWholeUnitsAndWhatTheyShare(t *testing.T) {
	g, left := narrowed(t, labelledFleet(t), "tier=gold")
	want := []string{"Secret/ns/b-ca", "Secret/ns/nobodys", clusterB}
	if got := refs(left); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if len(g.Nodes) != 9 {
		t.Errorf("narrowed to %v", refs(g.Nodes))
	}
	for _, ref := range []string{common, "Secret/ns/credentials", class} {
		r, _ := object.ParseRef(ref)
		if n := g.Node(r); n == nil || !n.Shared || n.Unit != "" || n.Common != (ref != class) {
			t.Errorf("%s: %+v", ref, n)
		}
	}
	if len(g.Missing) != 1 || g.Missing[0].Name != "never-there" {
		t.Errorf("missing: %v", g.Missing)
	}
	// what was noted is all that a reader has
	again := New(slices.Clone(g.Nodes), nil)
	if !slices.Equal(refs(again.Nodes), refs(g.Nodes)) || len(again.Missing) != 1 {
		t.Errorf("read as %v, missing %v", refs(again.Nodes), again.Missing)
	}
}

// TestNarrowAgainDependsOnNothingBefore: notes of an earlier selection do not count, nodes whose
// notes are right already are the same ones, and others are copied.
func TestNarrowAgainDependsOnNothingBefore(t *testing.T) {
	first, left := narrowed(t, labelledFleet(t), "tier=gold")
	before := slices.Clone(first.Nodes)
	all := slices.Concat(first.Nodes, left)
	second, _ := narrowed(t, slices.Clone(all), "tier=gold")
	for i, n := range second.Nodes {
		if n != before[i] {
			t.Errorf("%s was copied", n.Ref)
		}
	}
	both, _ := narrowed(t, slices.Clone(all), "tier")
	for _, n := range both.Nodes {
		if n.Common || slices.ContainsFunc(n.Owners, func(o Owner) bool { return o.LeftOut }) {
			t.Errorf("%s has a note although nothing is left out", n.Ref)
		}
	}
	if len(both.Nodes) != len(all)-1 {
		t.Errorf("both workload clusters have %v", refs(both.Nodes))
	}
	if r, _ := object.ParseRef(common); !second.Node(r).Common {
		t.Error("the node of the earlier graph was changed")
	}
	none, left := narrowed(t, slices.Clone(all), "tier=silver")
	if len(none.Nodes) != 0 || len(left) != len(all) ||
		slices.ContainsFunc(left, func(n *Node) bool { return n.Common }) {
		t.Errorf("nothing selected: %v", refs(none.Nodes))
	}
}
