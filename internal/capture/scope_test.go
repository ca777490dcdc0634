package capture

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestOwnersInNamespacesThatAreNotListedAreNotMissing: of a Secret that a workload cluster of
// another namespace owns nothing but its name is known.
func TestOwnersInNamespacesThatAreNotListedAreNotMissing(t *testing.T) {
	owner := func(namespace, name string) graph.Owner {
		return graph.Owner{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: namespace, Name: name}, UID: name}
	}
	for _, listed := range [][]string{nil, {"here"}} {
		secret := &graph.Node{Ref: object.Ref{Kind: capi.Secret.Kind, Namespace: "there", Name: "keys"},
			Owners: []graph.Owner{owner("there", "web")}}
		mine := &graph.Node{Ref: object.Ref{Kind: capi.Secret.Kind, Namespace: "here", Name: "keys"},
			Owners: []graph.Owner{owner("here", "gone")}}
		s := &selection{listed: listed, scope: Scope{Namespaces: listed},
			nodes: []*graph.Node{secret, mine}, index: map[object.Ref]*graph.Node{}}
		s.leaveOutOwners()
		if got := secret.Owners[0].LeftOut; got != (listed != nil) {
			t.Errorf("%v is listed: the owner there is left out: %t", listed, got)
		}
		if mine.Owners[0].LeftOut {
			t.Errorf("%v is listed: the owner here is left out", listed)
		}
	}
}
