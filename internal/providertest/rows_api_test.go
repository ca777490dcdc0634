//go:build api

package providertest_test

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

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

// cluster is the Cluster of a row.
func (r row) cluster() object.Ref {
	return object.Ref{Group: "cluster.x-k8s.io", Kind: "Cluster", Namespace: r.Namespace,
		Name: r.Name}
}

// captured reports whether a snapshot has to have an object.
func (g *graph) captured(r object.Ref) bool { return !slices.Contains(g.NotCaptured, r.String()) }
