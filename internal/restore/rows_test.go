package restore

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestRowsOfTheConfigurationPauseTheirKinds: objects of a kind that only the configuration knows
// are created paused, before the release, and unpaused before their Cluster.
func TestRowsOfTheConfigurationPauseTheirKinds(t *testing.T) {
	ref := object.Ref{Group: "acme.example.org", Kind: "Pool", Namespace: "n", Name: "a"}
	rows, err := capi.New([]capi.Row{{GroupKind: ref.GroupKind(), Source: "a test",
		Pause: capi.PauseByAnnotation}})
	if err != nil {
		t.Fatal(err)
	}
	n := &graph.Node{Ref: ref}
	for late, table := range map[bool]*capi.Table{true: nil, false: rows} {
		if got := isLate(graph.New([]*graph.Node{n}, table), n); got != late {
			t.Errorf("late %v, want %v", got, late)
		}
	}
	r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Rows: rows})
	o := Object{Ref: ref, Action: Create}
	u := decoded(t, `{"apiVersion":"acme.example.org/v1","kind":"Pool","metadata":{"name":"a","namespace":"n"},"spec":{}}`)
	if err := r.prepare(u, o, "", false); err != nil {
		t.Fatal(err)
	}
	if _, paused := u.GetAnnotations()[capi.AnnotationPaused]; !paused || !capi.PausedByUs(u.Object) {
		t.Errorf("it is created with annotations %v", u.GetAnnotations())
	}
	cluster := Object{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: "n",
		Name:      "w"}, Action: Create}
	got := r.switched(Unit{Objects: []Object{cluster, o}})
	if len(got) != 2 || got[0].Ref != ref || got[1].Ref != cluster.Ref {
		t.Errorf("released in the order %v", got)
	}
}
