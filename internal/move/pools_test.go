package move

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestPoolsThatAMovePauses: what only blocked units use stays at work with them, and so do pools
// whose ranges the operator has answered for, and pools that honour no pause.
func TestPoolsThatAMovePauses(t *testing.T) {
	pool := func(group, kind, name string, users ...string) restore.Object {
		return restore.Object{Ref: object.Ref{Group: group, Kind: kind, Namespace: "ns", Name: name},
			Action: restore.Create, Users: users}
	}
	const ipam, metal3 = "ipam.cluster.x-k8s.io", "ipam.metal3.io"
	plan := restore.Plan{Units: []restore.Unit{{Name: "ns/a"}, {Name: "ns/b", Blocked: true}},
		Shared: restore.Unit{Objects: []restore.Object{
			pool(ipam, "InClusterIPPool", "both", "ns/a", "ns/b"),
			pool(ipam, "GlobalInClusterIPPool", "one", "ns/a"),
			pool(ipam, "InClusterIPPool", "blocked", "ns/b"), pool(ipam, "InClusterIPPool", "unused"),
			pool(metal3, "IPPool", "metal3", "ns/a"), pool("", "Secret", "s", "ns/a")}}}
	for want, force := range map[string]object.Forced{"both one": nil,
		"": {object.CodePoolShared: ""}} {
		m := &run{Plan: &Plan{Spec: Spec{Force: force}, Copy: plan}}
		var names []string
		for _, o := range m.pools() {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("with %v it pauses %q, want %q", force, got, want)
		}
	}
}
