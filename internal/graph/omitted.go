package graph

import (
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Omitted is an object that a capture left out, and a unit that is incomplete without it.
type Omitted struct {
	object.Ref
	Unit string // empty when no unit is known to need it
}

// Omit returns the units that are incomplete without these nodes, which are not in the graph: those
// that they belong to, by the name of their workload cluster or by an owner, and those that need
// them, whether themselves or through shared objects. The list is sorted by ref and unit.
func (g *Graph) Omit(nodes []*Node) []Omitted {
	if len(nodes) == 0 {
		return nil
	}
	users := map[object.Ref][]*Node{}
	for _, n := range g.Nodes {
		for _, o := range n.Owners {
			users[o.Ref] = append(users[o.Ref], n)
		}
		for _, need := range n.Needs {
			if !need.Back {
				users[need.Ref] = append(users[need.Ref], n)
			}
		}
	}
	var list []Omitted
	for _, n := range nodes {
		units := map[string]bool{}
		if c := g.byRef[object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: n.Namespace, Name: n.Cluster}]; c != nil {
			units[c.Unit] = true
		}
		for _, o := range n.Owners {
			if owner := g.Owner(o); owner != nil {
				units[owner.Unit] = true
			}
		}
		for _, need := range n.Needs {
			if m := g.byRef[need.Ref]; m != nil && need.Back {
				units[m.Unit] = true
			}
		}
		unitsThatUse(n.Ref, users, units)
		if delete(units, ""); len(units) == 0 {
			units[""] = true
		}
		for unit := range units {
			list = append(list, Omitted{Ref: n.Ref, Unit: unit})
		}
	}
	slices.SortFunc(list, func(a, b Omitted) int {
		if c := object.CompareRefs(a.Ref, b.Ref); c != 0 {
			return c
		}
		return strings.Compare(a.Unit, b.Unit)
	})
	return list
}

// unitsThatUse adds the units that use an object. It goes on from users without a unit to theirs.
func unitsThatUse(ref object.Ref, users map[object.Ref][]*Node, units map[string]bool) {
	seen := map[object.Ref]bool{ref: true}
	work := []object.Ref{ref}
	for len(work) > 0 {
		ref, work = work[len(work)-1], work[:len(work)-1]
		for _, u := range users[ref] {
			switch {
			case u.Unit != "":
				units[u.Unit] = true
			case !seen[u.Ref]:
				seen[u.Ref] = true
				work = append(work, u.Ref)
			}
		}
	}
}
