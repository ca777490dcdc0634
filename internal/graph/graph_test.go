package graph

import (
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// node makes a node of "Kind.group/namespace/name".
func node(t *testing.T, ref string, edges ...func(*Node)) *Node {
	t.Helper()
	r, err := object.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Ref: r, UID: "uid of " + ref}
	for _, e := range edges {
		e(n)
	}
	return n
}

func ownedBy(ref string) func(*Node) {
	return func(n *Node) {
		r, _ := object.ParseRef(ref)
		n.Owners = append(n.Owners, Owner{Ref: r, UID: "uid of " + ref})
	}
}

func needs(ref string) func(*Node) {
	return func(n *Node) {
		r, _ := object.ParseRef(ref)
		n.Needs = append(n.Needs, Need{Ref: r, Field: "spec.ref"})
	}
}

func of(cluster string) func(*Node) { return func(n *Node) { n.Cluster = cluster } }

const (
	clusterA = "Cluster.cluster.x-k8s.io/ns/a"
	clusterB = "Cluster.cluster.x-k8s.io/ns/b"
	planeA   = "KubeadmControlPlane.controlplane.cluster.x-k8s.io/ns/a"
	class    = "ClusterClass.cluster.x-k8s.io/classes/c"
	template = "DevClusterTemplate.infrastructure.cluster.x-k8s.io/classes/t"
	common   = "DevMachineTemplate.infrastructure.cluster.x-k8s.io/ns/common"
)

func fleet(t *testing.T) *Graph {
	t.Helper()
	return New([]*Node{
		node(t, "Namespace/ns"), node(t, "Namespace/classes"),
		node(t, clusterA, needs(class), needs(planeA)), node(t, clusterB, needs(class)),
		node(t, planeA, ownedBy(clusterA), needs("Secret/ns/credentials"), needs(common)),
		node(t, "Secret/ns/a-ca", of("a"), ownedBy(planeA)),
		node(t, "Secret/ns/credentials"),
		node(t, "Secret/ns/two", ownedBy(planeA), ownedBy(clusterB)), // hangs below both
		node(t, common, ownedBy(clusterA), ownedBy(clusterB)),
		node(t, class, needs(template)), node(t, template, ownedBy(class)),
		node(t, "Secret/ns/nobodys"),
		node(t, "MachineDrainRule.cluster.x-k8s.io/ns/rule"),
	}, nil)
}

func TestUnitsOfEachObject(t *testing.T) {
	g := fleet(t)
	want := map[string]string{
		clusterA: "ns/a", planeA: "ns/a", "Secret/ns/a-ca": "ns/a", "Secret/ns/credentials": "ns/a",
		clusterB:       "ns/b",
		"Namespace/ns": "shared", "Namespace/classes": "shared", class: "shared", template: "shared",
		"Secret/ns/two": "shared", common: "shared",
		"Secret/ns/nobodys": "", "MachineDrainRule.cluster.x-k8s.io/ns/rule": "",
	}
	for _, n := range g.Nodes {
		got := n.Unit
		if n.Shared {
			got = "shared"
		}
		if w, ok := want[n.Ref.String()]; !ok || got != w {
			t.Errorf("%s is in %q, want %q", n.Ref, got, w)
		}
	}
	if len(g.Missing) > 0 {
		t.Errorf("missing: %v", g.Missing)
	}
}

func TestClosureTakesNoHalfOfAnotherUnit(t *testing.T) {
	g := fleet(t)
	r, _ := object.ParseRef(clusterA)
	var start []*Node
	for _, n := range g.Nodes {
		if n.Unit == g.Node(r).Unit {
			start = append(start, n)
		}
	}
	closure := g.Closure(start)
	for _, n := range closure {
		if n.Unit == "ns/b" {
			t.Errorf("%s came along", n.Ref)
		}
	}
	for _, ref := range []string{class, template, common, "Namespace/ns"} {
		if !slices.ContainsFunc(closure, func(n *Node) bool { return n.Ref.String() == ref }) {
			t.Errorf("%s is missing", ref)
		}
	}
}

func TestWavesPutOwnersFirst(t *testing.T) {
	g := fleet(t)
	wave := map[object.Ref]int{}
	waves := g.Waves(g.Nodes)
	for i, nodes := range waves {
		for _, n := range nodes {
			wave[n.Ref] = i
		}
	}
	if len(wave) != len(g.Nodes) {
		t.Fatalf("%d of %d nodes are in a wave", len(wave), len(g.Nodes))
	}
	for _, n := range g.Nodes {
		for _, o := range n.Owners {
			if wave[o.Ref] >= wave[n.Ref] {
				t.Errorf("%s is not before %s", o.Ref, n.Ref)
			}
		}
	}
	cycle := New([]*Node{node(t, "A.x/ns/a", ownedBy("B.x/ns/b")),
		node(t, "B.x/ns/b", ownedBy("A.x/ns/a"))}, nil)
	if n := len(slices.Concat(cycle.Waves(cycle.Nodes)...)); n != 2 {
		t.Errorf("a cycle leaves %d of 2 nodes", n)
	}
}

func TestMissingListsReferencesWithoutObject(t *testing.T) {
	g := New([]*Node{
		node(t, clusterA, needs("Secret/ns/gone")),
		node(t, planeA, func(n *Node) {
			r, _ := object.ParseRef(clusterA)
			n.Owners = []Owner{{Ref: r, UID: "of an earlier object"}}
		}),
	}, nil)
	var got []string
	for _, m := range g.Missing {
		got = append(got, m.Ref.String())
	}
	if strings.Join(got, " ") != "Secret/ns/gone "+clusterA {
		t.Errorf("missing %v", got)
	}
}

// TestABackReferenceIsAnEdgeOfTheNamedObject: a host that names its consumer belongs to the unit of
// the consumer, comes with it, and needs nothing itself.
func TestABackReferenceIsAnEdgeOfTheNamedObject(t *testing.T) {
	const host, idle = "BareMetalHost.metal3.io/ns/h", "BareMetalHost.metal3.io/ns/idle"
	const machine = "Metal3Machine.infrastructure.cluster.x-k8s.io/ns/m"
	back := func(ref string) func(*Node) {
		return func(n *Node) {
			needs(ref)(n)
			n.Needs[len(n.Needs)-1].Back = true
		}
	}
	g := New([]*Node{node(t, clusterA), node(t, machine, ownedBy(clusterA)),
		node(t, host, back(machine), needs("Secret/ns/bmc")), node(t, "Secret/ns/bmc"),
		node(t, idle, back("Metal3Machine.infrastructure.cluster.x-k8s.io/ns/gone"))}, nil)
	if len(g.Missing) != 0 {
		t.Errorf("missing %v", g.Missing)
	}
	for _, ref := range []string{host, "Secret/ns/bmc"} {
		r, _ := object.ParseRef(ref)
		if n := g.Node(r); n.Unit != "ns/a" {
			t.Errorf("%s is of unit %q", ref, n.Unit)
		}
	}
	r, _ := object.ParseRef(clusterA)
	m, _ := object.ParseRef(machine)
	var closure []string
	for _, n := range g.Closure([]*Node{g.Node(r), g.Node(m)}) {
		closure = append(closure, n.Ref.String())
	}
	if !slices.Contains(closure, host) || slices.Contains(closure, idle) {
		t.Errorf("the closure is %v", closure)
	}
	omitted := g.Omit([]*Node{node(t, "BareMetalHost.metal3.io/ns/other", back(machine))})
	if len(omitted) != 1 || omitted[0].Unit != "ns/a" {
		t.Errorf("omitted %v", omitted)
	}
}

// TestAnOptionalReferenceMissesNothing: the object that has it is complete without the named one.
func TestAnOptionalReferenceMissesNothing(t *testing.T) {
	optional := func(n *Node) { n.Needs[len(n.Needs)-1].Optional = true }
	g := New([]*Node{node(t, clusterA, needs("Secret/ns/x"), optional, needs("Secret/ns/y"),
		needs("Secret/ns/there"), optional), node(t, "Secret/ns/there")}, nil)
	if len(g.Missing) != 1 || g.Missing[0].Name != "y" {
		t.Errorf("missing %v", g.Missing)
	}
	if r, _ := object.ParseRef("Secret/ns/there"); g.Node(r).Unit != "ns/a" {
		t.Error("an optional object that is there is not of the unit")
	}
}
