package capture

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
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

// TestARelatedKindWithoutAnEndPreventsNoSnapshot: nothing is known of its objects. What is captured
// for itself is different.
func TestARelatedKindWithoutAnEndPreventsNoSnapshot(t *testing.T) {
	report := kube.Kind{GroupKind: object.GroupKind{Group: "acme.example.org", Kind: "Report"}}
	cluster := kube.Kind{GroupKind: capi.Cluster}
	r := newRelation([]kube.Kind{cluster}, []kube.Kind{report})
	err := fmt.Errorf("list: %w", kube.ErrUnbounded)
	if !r.skips(report, err) || r.skips(cluster, err) || r.skips(report, errors.New("it broke off")) {
		t.Error("it is not the related kind alone that is not read")
	}
	if unread := r.notRead(); len(unread) != 1 || !strings.HasPrefix(unread[0].Reason, "it has too many") {
		t.Errorf("not read: %v", unread)
	}
}
