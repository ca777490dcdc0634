package move

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// TestWhatAFreeHostNamesStaysOnTheSource: a free host and one of a workload cluster have always
// named one Secret, which belongs to the workload cluster in the graph. It stays when that leaves,
// for a first run and for a resume, unless the free host is gone. A host of the workload cluster
// that is left behind alone does not count.
func TestWhatAFreeHostNamesStaysOnTheSource(t *testing.T) {
	host := func(name string) object.Ref {
		return object.Ref{Group: "metal3.io", Kind: "BareMetalHost", Namespace: "team-a", Name: name}
	}
	secret := object.Ref{Kind: capi.Secret.Kind, Namespace: "team-a", Name: "net"}
	cluster := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: "team-a",
		Name: "w"}
	nodes := func(free, removed bool) []*graph.Node {
		needs := []graph.Need{{Ref: secret, Field: "spec"}}
		used := &graph.Node{Ref: host("used"), UID: "used", Needs: needs}
		all := []*graph.Node{used, {Ref: secret, UID: "net"}}
		if !removed {
			used.Cluster = "w"
			all = append(all, &graph.Node{Ref: cluster, UID: "w"})
		}
		if free {
			all = append(all, &graph.Node{Ref: host("free"), UID: "free", Needs: needs})
		}
		return all
	}
	unit := restore.Unit{Name: "team-a/w"}
	b := &batch{Source: map[string]objectState{}}
	for _, n := range nodes(false, false) {
		unit.Objects = append(unit.Objects, restore.Object{Ref: n.Ref, Action: restore.Create})
		b.Source[n.Ref.String()] = objectState{Unit: unit.Name, UID: n.UID}
	}
	b.Copy.Units = []restore.Unit{unit}
	for name, tt := range map[string]struct {
		free, resumed, removed bool
		kept                   string
	}{
		"it stays":                       {free: true, kept: host("free").String()},
		"it is gone":                     {},
		"it stays, and the move resumes": {free: true, resumed: true, kept: host("free").String()},
		"it is gone, and a move resumes": {resumed: true},
		"one of the unit is left behind": {resumed: true, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &run{Plan: &Plan{}, captures: &captureCache{capture: func(context.Context, []string) (
				*snapshot.Snapshot, *snapshot.Contents, error) {
				return &snapshot.Snapshot{Graph: graph.New(nodes(tt.free, tt.removed), nil)}, nil, nil
			}}}
			b.users = usersIn(graph.New(nodes(true, false), nil), nil, []string{"team-a"})
			if tt.resumed {
				b.users = nil
			}
			list := &versions{of: b.Source, units: map[string]bool{unit.Name: true}, users: b.users,
				seen: map[string]string{}, alone: map[object.Ref][]graph.Need{}}
			for _, n := range nodes(tt.free, tt.removed) {
				list.note(n.Ref, n.Ref.String(), gjson.Parse(fmt.Sprintf(`{"uid":%q}`, n.UID)))
			}
			uses, err := m.lateUsers(t.Context(), b, []restore.Unit{unit}, list)
			if err != nil {
				t.Fatal(err)
			}
			want := map[object.Ref]string{}
			if tt.kept != "" {
				want[secret] = tt.kept
			}
			if !maps.Equal(uses[unit.Name], want) {
				t.Errorf("used by what stays: %v, want %v", uses[unit.Name], want)
			}
		})
	}
}

// TestWhatAnotherUsesStaysOnceTheClusterIsGone: an attempt to remove a unit has died once its
// Cluster was gone. Its Secret, which another workload cluster has come to use, and alone uses by
// then, stays; what nobody uses goes.
func TestWhatAnotherUsesStaysOnceTheClusterIsGone(t *testing.T) {
	secret := func(name string) object.Ref {
		return object.Ref{Kind: capi.Secret.Kind, Namespace: "team-a", Name: name}
	}
	unit := restore.Unit{Name: "team-a/w"}
	b := &batch{Source: map[string]objectState{}}
	nodes := []*graph.Node{{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: "team-a", Name: "other"}, Needs: []graph.Need{{Ref: secret("used"), Field: "spec"}}}}
	for _, name := range []string{"used", "unused"} {
		unit.Objects = append(unit.Objects, restore.Object{Ref: secret(name), Action: restore.Create})
		b.Source[secret(name).String()] = objectState{Unit: unit.Name, UID: name}
		nodes = append(nodes, &graph.Node{Ref: secret(name), UID: name})
	}
	m := &run{Plan: &Plan{}, captures: &captureCache{capture: func(context.Context, []string) (
		*snapshot.Snapshot, *snapshot.Contents, error) {
		return &snapshot.Snapshot{Graph: graph.New(nodes, nil)}, nil, nil
	}}}
	uses, err := m.lateUsers(t.Context(), b, []restore.Unit{unit}, &versions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := uses[unit.Name]; len(got) != 1 || got[secret("used")] == "" {
		t.Errorf("used by what stays: %v", got)
	}
}
