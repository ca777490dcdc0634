package snapshot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompareNamesFieldsAndNoValues: Compare reports what became of each object and in which
// fields, and none of their values.
func TestCompareNamesFieldsAndNoValues(t *testing.T) {
	t.Parallel()
	st, _ := testStore(t)
	machine := func(name string, edits ...string) entry {
		return entry{kind: testMachine, body: strings.NewReplacer(edits...).Replace(machineBody(name))}
	}
	cluster := entry{kind: testCluster, body: clusterBody("a", "u-a")}
	open := func(objects ...entry) Version {
		t.Helper()
		s, err := Open(t.Context(), st, putObjects(t, st, append(objects, cluster)).Envelope, nil)
		if err != nil {
			t.Fatal(err)
		}
		return Version{Snapshot: s}
	}
	from := open(machine("same"), machine("gone"), machine("recreated"), machine("scaled"),
		machine("touched"))
	to := open(machine("same"), machine("new"), machine("recreated", "u-recreated", "other"),
		machine("scaled", `"name":"infra"`, `"name":"secret-value"`, `"8"`, `"9"`),
		machine("touched", `"8"`, `"9"`))
	list, err := Compare(t.Context(), from, to)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range list {
		got[d.Node.Name] = string(d.Kind) + " " + strings.Join(d.Paths, ",")
	}
	want := map[string]string{
		"gone": "removed ", "new": "added ", "recreated": "replaced ",
		"scaled": "changed spec.infrastructureRef.name", "touched": "touched ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(from.Graph.Nodes) != 6 || len(to.Graph.Nodes) != 6 {
		t.Errorf("%d and %d objects", len(from.Graph.Nodes), len(to.Graph.Nodes))
	}
	if list, err := Compare(t.Context(), from, from); err != nil || len(list) > 0 {
		t.Errorf("with itself: %v, %v", list, err)
	}
}
