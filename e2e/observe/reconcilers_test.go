package observe

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

func cluster(isPaused bool) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": isPaused}}}
	o.SetNamespace("team")
	o.SetName("web")
	return o
}

// TestReconcilerWatchReportsConflictsAndPauses: a move from a to b is no conflict, a Cluster that
// comes back unpaused on a is one.
func TestReconcilerWatchReportsConflictsAndPauses(t *testing.T) {
	w := &ReconcilerWatch{states: map[string]map[string]state{}}
	w.record("a", watch.Added, cluster(false))
	w.record("a", watch.Modified, cluster(true))
	w.record("b", watch.Added, cluster(true))
	w.record("b", watch.Modified, cluster(false))
	w.record("a", watch.Deleted, cluster(true))
	if conflicts := w.Conflicts(); len(conflicts) > 0 {
		t.Errorf("a move is reported as a conflict: %v", conflicts)
	}
	if pauses := w.Pauses("a", "b"); len(pauses) != 1 || pauses["team/web"] <= 0 {
		t.Errorf("pauses: %v", pauses)
	}
	if pauses := w.Pauses("b", "a"); len(pauses) > 0 {
		t.Errorf("pauses of the way back: %v", pauses)
	}
	w.record("a", watch.Added, cluster(false))
	want := []string{"team/web was reconciled by b and a at once"}
	if conflicts := w.Conflicts(); !slices.Equal(conflicts, want) {
		t.Errorf("got %v, want %v", conflicts, want)
	}
}

// TestUnexplainedByMovesWantsExactlyTheMovedObjects: one move away and one back explain one
// creation and one deletion of each Machine, and nothing else.
func TestUnexplainedByMovesWantsExactlyTheMovedObjects(t *testing.T) {
	machine := Ref{Group: coreGroup, Kind: "Machine", Namespace: "team", Name: "one"}
	template := Ref{Group: infraGroup, Kind: "DevMachineTemplate", Namespace: "team", Name: "one"}
	before := Objects{machine: cluster(false), template: cluster(false)}
	for name, c := range map[string]struct {
		events []Event
		want   int
	}{
		"moved and back": {[]Event{{Ref: machine, What: Deleted}, {Ref: machine, What: Created}}, 0},
		"never":          {nil, 1},
		"twice": {[]Event{{Ref: machine, What: Deleted}, {Ref: machine, What: Created},
			{Ref: machine, What: Deleted}, {Ref: machine, What: Created}}, 1},
		"shown as being deleted": {[]Event{{Ref: machine, What: Deleting}, {Ref: machine, What: Deleted},
			{Ref: machine, What: Created}}, 1},
		"an object that was not there": {[]Event{{Ref: machine, What: Deleted},
			{Ref: machine, What: Created},
			{Ref: template, What: Created},
			{Ref: Ref{Kind: "Machine", Name: "x"}, What: Created}}, 1},
	} {
		if got := UnexplainedByMoves(c.events, before, 1, 1); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
