package move

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestTheStorageOfAHelmReleaseStaysOnTheSource though nothing in the graph needs it: the release
// may have made objects that are not captured. Any other Secret of its namespace goes.
func TestTheStorageOfAHelmReleaseStaysOnTheSource(t *testing.T) {
	m := &run{}
	g := graph.New(nil, nil)
	for name, want := range map[string]bool{"sh.helm.release.v1.platform.v7": true,
		"credentials": false} {
		ref := object.Ref{Kind: capi.Secret.Kind, Namespace: "platform", Name: name}
		if got := m.mayHaveUsers(g, ref); got != want {
			t.Errorf("%s may have users: %v", name, got)
		}
	}
}
