package graph

import (
	"slices"
	"testing"
)

// TestOmitNamesTheUnitsThatAreIncomplete: those of the label, of an owner, and of users, whether
// these need the object themselves or through a shared one.
func TestOmitNamesTheUnitsThatAreIncomplete(t *testing.T) {
	g := fleet(t)
	for _, tt := range []struct {
		n     *Node
		units []string
	}{
		{node(t, "Secret/ns/x", of("a")), []string{"ns/a"}},
		{node(t, "Secret/ns/x", of("deleted")), []string{""}},
		{node(t, "Secret/ns/x", ownedBy(planeA), ownedBy(clusterB)), []string{"ns/a", "ns/b"}},
		{node(t, "Secret/ns/credentials"), []string{"ns/a"}},
		{node(t, template), []string{"ns/a", "ns/b"}},
		{node(t, "Secret/ns/x"), []string{""}},
	} {
		var units []string
		for _, o := range g.Omit([]*Node{tt.n}) {
			units = append(units, o.Unit)
		}
		if !slices.Equal(units, tt.units) {
			t.Errorf("%+v: units %q, want %q", tt.n, units, tt.units)
		}
	}
}
