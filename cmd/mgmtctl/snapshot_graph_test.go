package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/cmd/mgmtctl/internal/draw/drawtest"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func TestSnapshotGraphDrawsTheSelection(t *testing.T) {
	for _, as := range []string{"dot", "mermaid", "svg", "json"} {
		t.Run(as, func(t *testing.T) {
			f := newFake()
			f.graph = drawtest.Graph()
			r := runner{fake: f}.run(t, "snapshot graph 1a2b --namespace team-a --workload team-a/web "+
				"--standalone --store s --plain -o "+as).want(t, 0)
			golden(t, "snapshot_graph_"+as, r.stdout)
			if r.stderr != "" {
				t.Errorf("stderr: %s", r.stderr)
			}
			if strings.ContainsAny(r.stdout, "\x1b\a") {
				t.Error("an escape sequence reaches the terminal")
			}
			req := requestOf[*mgmtv1.GraphSnapshotRequest](t, f)
			if s := req.GetSelection(); req.GetId() != "1a2b" ||
				fmt.Sprint(s.GetNamespaces(), s.GetWorkloads()) != "[team-a] [team-a/web]" {
				t.Errorf("request %v", req)
			}
		})
	}
}

// TestSnapshotGraphFoldsLargeFleets: beyond graphLimit objects each workload cluster is one node,
// unless --all or a selection is given.
func TestSnapshotGraphFoldsLargeFleets(t *testing.T) {
	const few, many = 49, 50 // two objects besides: 492, 502
	for _, tt := range []struct {
		workloads int
		flags     string
		folded    bool
	}{{few, "", false}, {many, "", true}, {many, " --all", false}, {many, " --namespace fleet", false},
		{many, " --selector a=b", false}} {
		f := newFake()
		f.graph = drawtest.Fleet(tt.workloads)
		r := runner{fake: f}.run(t, "snapshot graph --standalone --store s --plain"+tt.flags).want(t, 0)
		if nodes, want := strings.Count(r.stdout, "tooltip="), map[bool]int{true: many + 2,
			false: len(f.graph)}[tt.folded]; nodes != want {
			t.Errorf("%d workload clusters%s: %d nodes, want %d", tt.workloads, tt.flags, nodes, want)
		}
		if said := strings.Contains(r.stderr, "502 objects: each workload cluster is drawn as one; "+
			"--all draws them all"); said != tt.folded {
			t.Errorf("%d workload clusters%s: stderr: %s", tt.workloads, tt.flags, r.stderr)
		}
		if requestOf[*mgmtv1.GraphSnapshotRequest](t, f).GetId() != "latest" {
			t.Error("not the newest")
		}
	}
	f := newFake()
	f.graph = drawtest.Fleet(51)
	for _, as := range []string{"mermaid", "svg"} {
		r := runner{fake: f}.run(t, "snapshot graph --standalone --store s --plain -o "+as).want(t, 0)
		golden(t, "snapshot_graph_fleet_"+as, r.stdout)
	}
	runner{fake: f}.run(t, "snapshot graph --standalone --store s --plain --all -o mermaid").want(t,
		0).stderrHas(t, "510 edges: Mermaid draws at most 500")
}

func TestSnapshotGraphCompletesItsOwnFormats(t *testing.T) {
	if got := (runner{fake: newFake()}).complete(t, "snapshot graph -o"); !strings.HasPrefix(got,
		"dot\nmermaid\nsvg\njson\nyaml\n:") {
		t.Errorf("after -o: %s", got)
	}
	if got := (runner{fake: newFake()}).complete(t, "snapshot list -o"); !strings.HasPrefix(got,
		"table\njson\nyaml\n:") {
		t.Errorf("after -o of another command: %s", got)
	}
}
