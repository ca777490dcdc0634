package move

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
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
	unused := []object.Ref{{Kind: "Secret", Namespace: "a", Name: "unused"}}
	for _, all := range []restore.Selection{
		{},
		{Namespaces: []string{"a", "b", "classes"}},
		{Selector: "tier=gold"},
	} {
		m := &run{Plan: &Plan{Spec: Spec{Selection: all}}}
		got := m.specIn(g, []string{"a/x", "a/gone"}, unused)
		want := restore.Selection{Workloads: []object.Key{{Namespace: "a", Name: "x"}}}
		if !reflect.DeepEqual(got.Selection, want) || !slices.Equal(got.Also, unused) {
			t.Errorf("%+v: %+v and %v", all, got.Selection, got.Also)
		}
	}
	m := &run{Plan: &Plan{}}
	if got := m.specIn(g, []string{"a/gone"}, nil).Selection; len(got.Workloads) != 1 {
		t.Errorf("all are gone: %+v", got)
	}
}

// TestWhatNobodyUsesMovesWithItsNamespace: with the first batch of its namespace, so that no pause
// is longer because of others. What has no such namespace moves with the next batch, since the
// target may need it, and so does what stays paused on the source until it is moved.
func TestWhatNobodyUsesMovesWithItsNamespace(t *testing.T) {
	shared := func(kind, namespace, name string, action restore.Action,
		users ...string) restore.Object {
		return restore.Object{Ref: object.Ref{Kind: kind, Namespace: namespace, Name: name},
			Action: action, Users: users}
	}
	host := shared("BareMetalHost", "b", "host", restore.Create)
	host.Group = "metal3.io"
	m := &run{Plan: &Plan{Copy: restore.Plan{
		Shared: restore.Unit{Objects: []restore.Object{
			shared("Namespace", "", "a", restore.Create), shared("Secret", "a", "unused", restore.Create),
			shared("Secret", "a", "left-out", restore.Skip),
			shared("Secret", "a", "used", restore.Create, "a/1"),
			shared("Secret", "b", "unused", restore.Create), host,
			shared("Secret", "credentials", "unused", restore.Create),
			shared("ClusterClass", "classes", "unused", restore.Create),
			shared("Identity", "", "cluster-scoped", restore.Create)}},
		Units: []restore.Unit{{Name: "a/1"}, {Name: "a/2"}, {Name: "b/1"}}}},
		namespaces: map[string][]string{"a/1": {"a"}, "b/1": {"b", "credentials"}},
		together:   map[string][]string{"a/1": {"a/1", "a/2"}}}
	for unit, want := range map[string][]string{
		"a/1": {"a/unused", "b/host", "classes/unused", "/cluster-scoped"},
		"b/1": {"b/unused", "b/host", "credentials/unused", "classes/unused", "/cluster-scoped"},
	} {
		refs, err := m.unused(t.Context(), []string{unit})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range refs {
			got = append(got, r.Namespace+"/"+r.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %s: %v, want %v", unit, got, want)
		}
	}
	// A batch has left out a Secret and the host: the next one tries the host again.
	_, m.Journal = newJournal(t, catalog.Options{})
	if err := m.Journal.Do(t.Context(), handOverStep("a/1"), func(context.Context,
		*catalog.StepHandle) error {
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out := shared("Secret", "b", "unused", restore.Skip)
	left := host
	left.Action = restore.Skip
	m.batches = []*batch{{Copy: restore.Plan{Units: []restore.Unit{{Name: "a/1"}},
		Shared: restore.Unit{Objects: []restore.Object{out, left}}}}}
	again, err := m.unused(t.Context(), []string{"b/1"})
	if err != nil || slices.Contains(again, out.Ref) || !slices.Contains(again, host.Ref) {
		t.Errorf("after a batch that left out the Secret and the host: %v, %v", again, err)
	}
	m.batches = nil
	m.Units = map[string]catalog.UnitState{"b/1": catalog.UnitRolledBack}
	refs, err := m.unused(t.Context(), []string{"a/1"})
	if err != nil || !slices.Contains(refs, object.Ref{Kind: "Secret", Namespace: "b", Name: "unused"}) {
		t.Errorf("once nothing of b is to come: %v, %v", refs, err)
	}
}
