package move

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestABatchSelectsWhatItsSnapshotHas: a plan may select namespaces that the snapshot of a batch
// does not list, and a unit may be gone by then.
func TestABatchSelectsWhatItsSnapshotHas(t *testing.T) {
	cluster := object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: "a", Name: "x"}
	g := graph.New([]*graph.Node{{Ref: cluster}, {Ref: object.Ref{Kind: "Namespace", Name: "a"}},
		{Ref: object.Ref{Kind: "Namespace", Name: "classes"}}}, nil)
	units := []string{"a/x", "a/gone"}
	there := []object.Key{{Namespace: "a", Name: "x"}}
	for _, tt := range []struct {
		name   string
		all    restore.Selection
		unused bool
		want   restore.Selection
	}{
		{name: "everything", want: restore.Selection{Workloads: there}},
		{name: "everything, with what nobody uses", unused: true},
		{name: "namespaces", all: restore.Selection{Namespaces: []string{"a", "b", "classes"}},
			want: restore.Selection{Workloads: there}},
		{name: "namespaces, with what nobody uses", unused: true,
			all:  restore.Selection{Namespaces: []string{"a", "b", "classes"}},
			want: restore.Selection{Workloads: there, Namespaces: []string{"a", "classes"}}},
		{name: "a selector", all: restore.Selection{Selector: "tier=gold"},
			want: restore.Selection{Workloads: there}},
	} {
		m := &run{Plan: &Plan{Spec: Spec{Selection: tt.all}}}
		got := m.specIn(g, units, tt.unused).Selection
		if !slices.Equal(got.Workloads, tt.want.Workloads) || got.Selector != tt.want.Selector ||
			!slices.Equal(got.Namespaces, tt.want.Namespaces) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	m := &run{Plan: &Plan{}}
	if got := m.specIn(g, []string{"a/gone"}, false).Selection; len(got.Workloads) != 1 {
		t.Errorf("all are gone: %+v", got)
	}
}
