// Package graph holds the object graph of a management cluster: nodes (objects without their
// content), the edges between them (owner references and the references of internal/capi), and
// what follows from these: units, waves, closures and missing objects. It is plain data and
// reaches nothing.
//
// A unit is one workload cluster and what only it needs. An object that several units need, or
// whose kind any workload cluster may come to use, is shared and belongs to no unit. A wave is a
// set of nodes whose owners are all in earlier waves.
package graph

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Graph is the objects of a management cluster and the edges between them. It is plain data.
type Graph struct {
	Nodes   []*Node // by ref
	Missing []Missing
	Rows    *capi.Table // what is known of their kinds
	byRef   map[object.Ref]*Node
	whole   bool // made by NewWhole
	// back are the nodes that name a node in a back reference, and the storage of its Helm release
	back map[*Node][]*Node
}

// Missing is an object that a captured one needs or is owned by, and that was not captured.
type Missing struct {
	object.Ref
	By    object.Ref `json:"by"`
	Field string     `json:"field"`
	Owner bool       `json:"owner,omitempty"` // By is owned by it
}

// New links nodes, finds what is missing and divides them into units by what rows says of their
// kinds.
func New(nodes []*Node, rows *capi.Table) *Graph { return link(nodes, rows, false) }

// NewWhole is New for all objects of a source. It ignores what Narrow noted on nodes.
func NewWhole(nodes []*Node, rows *capi.Table) *Graph { return link(nodes, rows, true) }

func link(nodes []*Node, rows *capi.Table, whole bool) *Graph {
	g := &Graph{Nodes: nodes, Rows: rows, whole: whole,
		byRef: make(map[object.Ref]*Node, len(nodes))}
	slices.SortFunc(g.Nodes, func(a, b *Node) int { return object.CompareRefs(a.Ref, b.Ref) })
	for _, n := range nodes {
		g.byRef[n.Ref] = n
	}
	g.turnBack()
	g.findMissing()
	g.divide()
	return g
}

// Distinct returns the number of different refs among the nodes. It is less than len(Nodes) only
// when two nodes are the same object.
func (g *Graph) Distinct() int { return len(g.byRef) }

// Node returns the node of that ref, or nil.
func (g *Graph) Node(r object.Ref) *Node { return g.byRef[r] }

// Owner returns the node of an owner, or nil. One of the same name but another UID is another
// object: the garbage collector compares UIDs, so an object that names the wrong UID as its owner
// is about to be deleted on the source.
func (g *Graph) Owner(o Owner) *Node {
	if n := g.byRef[o.Ref]; n != nil && n.UID == o.UID {
		return n
	}
	return nil
}

// turnBack collects the back references of all nodes, by the node that is named, and the Secrets in
// which Helm stores the releases of nodes.
func (g *Graph) turnBack() {
	g.back = map[*Node][]*Node{}
	storage := map[object.Ref][]*Node{}
	for _, n := range g.Nodes {
		if release, ok := capi.HelmStorageOf(n.Ref); ok {
			storage[release] = append(storage[release], n)
		}
	}
	for _, n := range g.Nodes {
		for _, need := range n.Needs {
			if secrets := storage[need.Ref]; len(secrets) > 0 {
				g.back[n] = append(g.back[n], secrets...)
			}
			if named := g.byRef[need.Ref]; need.Back && named != nil && named != n {
				g.back[named] = append(g.back[named], n)
			}
		}
	}
}

// findMissing follows every edge to an object that has to be there.
func (g *Graph) findMissing() {
	g.Missing = nil
	for _, n := range g.Nodes {
		if g.CapturedOnly(n) {
			continue
		}
		for _, o := range n.Owners {
			if g.Owner(o) == nil && (g.whole || !o.LeftOut) {
				g.Missing = append(g.Missing, Missing{Ref: o.Ref, By: n.Ref, Field: "metadata.ownerReferences",
					Owner: true})
			}
		}
		for _, need := range n.Needs {
			if g.byRef[need.Ref] == nil && !need.Optional && !need.Back {
				g.Missing = append(g.Missing, Missing{Ref: need.Ref, By: n.Ref, Field: need.Field})
			}
		}
	}
}

// WithoutRelated returns the graph of the nodes that are not Related, which it takes over.
func (g *Graph) WithoutRelated() *Graph {
	nodes := slices.DeleteFunc(slices.Clone(g.Nodes), func(n *Node) bool { return n.Related })
	return link(nodes, g.Rows, g.whole)
}

// NotRestorable returns the owners and needs of captured objects that are in the graph and cannot
// be restored (CapturedOnly).
func (g *Graph) NotRestorable() []Missing {
	var list []Missing
	for _, n := range g.Nodes {
		if g.CapturedOnly(n) {
			continue
		}
		for _, o := range n.Owners {
			if m := g.Owner(o); m != nil && g.CapturedOnly(m) {
				list = append(list, Missing{Ref: o.Ref, By: n.Ref, Field: "metadata.ownerReferences",
					Owner: true})
			}
		}
		for _, need := range n.Needs {
			if m := g.byRef[need.Ref]; m != nil && g.CapturedOnly(m) && !need.Optional && !need.Back {
				list = append(list, Missing{Ref: need.Ref, By: n.Ref, Field: need.Field})
			}
		}
	}
	return list
}

// before returns the nodes that have to exist before n: owners, soft owners and the namespace.
func (g *Graph) before(n *Node) []*Node {
	var nodes []*Node
	add := func(r object.Ref) {
		if o := g.byRef[r]; o != nil {
			nodes = append(nodes, o)
		}
	}
	for _, o := range n.Owners {
		add(o.Ref)
	}
	for _, need := range n.Needs {
		if need.Owner {
			add(need.Ref)
		}
	}
	if n.Cluster != "" && !g.alwaysShared(n) {
		add(clusterOf(n))
	}
	if n.Namespace != "" {
		add(object.Ref{Kind: capi.Namespace.Kind, Name: n.Namespace})
	}
	return nodes
}

// CapturedOnly reports whether n is of a kind of which nothing is known: it was captured since it
// is related to another object, and cannot be restored. It belongs to the unit of its relatives and
// brings nothing along: it needs no other node, and no claim passes through it.
func (g *Graph) CapturedOnly(n *Node) bool { return n.Related && !g.Rows.Known(n.GroupKind()) }

// needed returns all nodes that n needs: those before it, and those of a reference from or to it.
func (g *Graph) needed(n *Node) []*Node {
	if g.CapturedOnly(n) {
		return nil
	}
	return append(g.before(n), g.named(n)...)
}

// named returns the nodes that n names, those that name it in a back reference, and the storage of
// its Helm release.
func (g *Graph) named(n *Node) []*Node {
	nodes := slices.Clone(g.back[n])
	for _, need := range n.Needs {
		if m := g.byRef[need.Ref]; m != nil && !need.Back {
			nodes = append(nodes, m)
		}
	}
	return nodes
}

// alwaysShared reports whether another workload cluster may come to use n at any time, whichever
// use it now. So it is with the storage of a Helm release that is not named after a workload
// cluster: such a release may have made more than one, and objects that are not captured.
func (g *Graph) alwaysShared(n *Node) bool {
	if _, ok := capi.HelmStorageOf(n.Ref); ok && g.byRef[clusterOf(n)] == nil {
		return true
	}
	return n.Namespace == "" || g.Rows.Row(n.GroupKind()).Shared
}

// clusterOf is the Cluster that n names by its label or by its own name.
func clusterOf(n *Node) object.Ref {
	return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: n.Namespace,
		Name: n.Cluster}
}

// claim is how many units have a claim on a node: none, one, or many.
type claim struct {
	unit string
	many bool
}

// join adds a claim and reports whether that changed c.
func (c *claim) join(o claim) bool {
	switch {
	case c.many || o == (claim{}) || *c == o:
		return false
	case *c == (claim{}):
		*c = o
	default:
		*c = claim{many: true}
	}
	return true
}

// divide gives each node to a unit, or marks it shared, or leaves it without a unit. Claims go
// down from a Cluster to what it owns and up to what its objects need; a node that two units
// claim, or whose kind always is, is shared. What hangs below a shared node and nobody claims is
// shared with it.
func (g *Graph) divide() {
	claims := make(map[*Node]*claim, len(g.Nodes))
	below := map[*Node][]*Node{}
	var work []*Node
	for _, n := range g.Nodes {
		claims[n] = &claim{}
		if n.GroupKind() == capi.Cluster {
			claims[n].unit = n.Key().String()
			work = append(work, n)
		}
		for _, o := range g.before(n) {
			if o.GroupKind() != capi.Namespace {
				below[o] = append(below[o], n)
			}
		}
	}
	g.spread(work, claims, func(n *Node) []*Node { return below[n] })
	work = work[:0]
	member := map[*Node]bool{} // hangs below a Cluster
	for _, n := range g.Nodes {
		if *claims[n] != (claim{}) {
			work = append(work, n)
			member[n] = true
		}
	}
	g.spread(work, claims, func(n *Node) []*Node { return g.claimable(n, member) })
	for _, n := range g.Nodes {
		n.Unit, n.Shared = "", false
		switch c := *claims[n]; {
		case c.many, n.Common && !g.whole, c.unit != "" && g.alwaysShared(n):
			n.Shared = true
		default:
			n.Unit = c.unit
		}
	}
	g.shareBelow(below)
}

// claimable returns the objects that n needs and can have a claim on. An owner of an object stays
// in its unit when it is below a Cluster itself: a Secret that two workload clusters use does not
// move the control plane that owns it out of its unit.
func (g *Graph) claimable(n *Node, member map[*Node]bool) []*Node {
	var nodes []*Node
	for _, o := range g.before(n) {
		if !member[o] {
			nodes = append(nodes, o)
		}
	}
	return append(nodes, g.named(n)...)
}

// spread carries the claims of nodes along edges until nothing changes. Claims never leave a
// Cluster for another one, nor pass through a kind that is always shared: all users of a class
// would claim each other's objects.
func (g *Graph) spread(work []*Node, claims map[*Node]*claim, next func(*Node) []*Node) {
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		c := *claims[n]
		if g.CapturedOnly(n) {
			continue
		}
		if g.alwaysShared(n) {
			c = claim{many: true}
		}
		for _, m := range next(n) {
			if m.GroupKind() == capi.Cluster && m != n {
				continue
			}
			if claims[m].join(c) {
				work = append(work, m)
			}
		}
	}
}

// shareBelow marks as shared what only a shared node owns.
func (g *Graph) shareBelow(below map[*Node][]*Node) {
	var work []*Node
	for _, n := range g.Nodes {
		if n.Shared {
			work = append(work, n)
		}
	}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if g.CapturedOnly(n) {
			continue
		}
		for _, m := range below[n] {
			if m.Unit == "" && !m.Shared {
				m.Shared = true
				work = append(work, m)
			}
		}
	}
}

// Clusters returns the Cluster nodes, by namespace and name.
func (g *Graph) Clusters() []*Node {
	var clusters []*Node
	for _, n := range g.Nodes {
		if n.GroupKind() == capi.Cluster {
			clusters = append(clusters, n)
		}
	}
	return clusters
}

// Closure returns start and all that it needs, by ref. It enters no unit but those of which start
// has objects: half of a workload cluster is worse than none.
func (g *Graph) Closure(start []*Node) []*Node {
	units := map[string]bool{"": true}
	for _, n := range start {
		units[n.Unit] = true
	}
	in := map[*Node]bool{}
	work := slices.Clone(start)
	var nodes []*Node
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if in[n] || !units[n.Unit] {
			continue
		}
		in[n] = true
		nodes = append(nodes, n)
		work = append(work, g.needed(n)...)
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return object.CompareRefs(a.Ref, b.Ref) })
	return nodes
}

// Waves orders nodes so that each stands after what has to exist before it, as far as that is
// among the nodes too. A cycle of owners, which the API server allows, ends in the last wave.
func (g *Graph) Waves(nodes []*Node) [][]*Node {
	in := make(map[*Node]bool, len(nodes))
	for _, n := range nodes {
		in[n] = true
	}
	depth := make(map[*Node]int, len(nodes))
	var visit func(n *Node) int
	visit = func(n *Node) int {
		if d, ok := depth[n]; ok {
			return d // also cuts a cycle: a node being visited counts as depth 0
		}
		depth[n] = 0
		d := 0
		for _, o := range g.before(n) {
			if in[o] && o != n {
				d = max(d, visit(o)+1)
			}
		}
		depth[n] = d
		return d
	}
	var waves [][]*Node
	for _, n := range nodes {
		d := visit(n)
		for len(waves) <= d {
			waves = append(waves, nil)
		}
		waves[d] = append(waves[d], n)
	}
	return waves
}
