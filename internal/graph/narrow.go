package graph

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// UnitsWith returns the units whose Clusters a selector selects.
func (g *Graph) UnitsWith(s Selector) map[string]bool {
	units := map[string]bool{}
	for _, c := range g.Clusters() {
		if s.selects(c) {
			units[c.Key().String()] = true
		}
	}
	return units
}

// Select returns the nodes of these units, what they own together with others, those that also
// accepts, and all that these need, by ref. It is the one rule of what belongs to a selection: of a
// snapshot, a restore and a move. also may be nil, which accepts none.
func (g *Graph) Select(units map[string]bool, also func(*Node) bool) []*Node {
	var start []*Node
	for _, n := range g.Nodes {
		if n.Unit != "" && units[n.Unit] || g.sharedBy(n, units) || also != nil && also(n) {
			start = append(start, n)
		}
	}
	return g.Closure(start)
}

// sharedBy reports whether units own a shared object together with others, such as a Secret of
// credentials. Nothing may name it: it then belongs to them by its owners alone.
func (g *Graph) sharedBy(n *Node, units map[string]bool) bool {
	return n.Unit == "" && n.Shared && slices.ContainsFunc(n.Owners, func(o Owner) bool {
		owner := g.Owner(o)
		return owner != nil && owner.Unit != "" && units[owner.Unit]
	})
}

// Narrow returns the graph of these units and of what they need, and the nodes that are not in it,
// both by ref. The graph is that of a snapshot that holds nothing else. Two facts of g would be
// lost in it, so the nodes carry them: an object that units outside need too is still shared
// (Common), and an owner outside is not missing (LeftOut). Nodes are copied where these change:
// others may have the old ones.
func (g *Graph) Narrow(units map[string]bool) (narrow *Graph, left []*Node) {
	selected := g.Select(units, nil)
	in, shared := make(map[*Node]bool, len(selected)), map[object.Ref]bool{}
	for _, n := range selected {
		in[n], shared[n.Ref] = true, n.Shared
	}
	for _, n := range g.Nodes {
		if !in[n] {
			left = append(left, n.noted(false, func(Owner) bool { return false }))
		}
	}
	NewWhole(selected, g.Rows) // divides them by what they alone show
	for i, n := range selected {
		selected[i] = n.noted(shared[n.Ref] && !n.Shared, func(o Owner) bool {
			owner := g.Owner(o)
			return owner != nil && !in[owner]
		})
	}
	return New(selected, g.Rows), left
}

// noted returns n with these notes: n itself when it has them already.
func (n *Node) noted(common bool, leftOut func(Owner) bool) *Node {
	same := n.Common == common && !slices.ContainsFunc(n.Owners,
		func(o Owner) bool { return o.LeftOut != leftOut(o) })
	if same {
		return n
	}
	noted := *n
	noted.Common, noted.Owners = common, slices.Clone(n.Owners)
	for i := range noted.Owners {
		noted.Owners[i].LeftOut = leftOut(noted.Owners[i])
	}
	return &noted
}
