package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const hostile = "a\"b'<c>&#35;\\n`*_*`[x](y)\nend\x1b[31m]]>"

func owned(by *mgmtv1.Ref) *mgmtv1.GraphEdge {
	return &mgmtv1.GraphEdge{To: by, Owner: true, Field: "metadata.ownerReferences"}
}

func names(to *mgmtv1.Ref, field string) *mgmtv1.GraphEdge {
	return &mgmtv1.GraphEdge{To: to, Field: field}
}

func missing(e *mgmtv1.GraphEdge) *mgmtv1.GraphEdge {
	e.Missing = true
	return e
}

func testGraph() []*mgmtv1.GraphSnapshotResponse {
	const unit = "team-a/web"
	cluster, class := ref(capi, "Cluster", "team-a", "web"), ref(capi, "ClusterClass", "team-a",
		"small")
	machine, other := ref(capi, "Machine", "team-a", "web-0"), ref(capi, "Cluster", "team-b", "shop")
	return []*mgmtv1.GraphSnapshotResponse{
		{Ref: ref("", "Namespace", "", "team-a"), Shared: true},
		{Ref: ref("", "ConfigMap", "team-a", "nobodys")},
		{Ref: ref("", "Secret", "team-a", hostile), Unit: unit,
			Edges: []*mgmtv1.GraphEdge{owned(machine)}},
		{Ref: ref("", "Secret", "team-a", "orphan"), Unit: unit,
			Edges: []*mgmtv1.GraphEdge{missing(owned(cluster))}},
		{Ref: cluster, Unit: unit, Edges: []*mgmtv1.GraphEdge{names(class, "spec.topology.classRef"),
			names(machine, "spec.x"), names(other, "spec.y")}},
		{Ref: class, Shared: true},
		{Ref: machine, Unit: unit, Edges: []*mgmtv1.GraphEdge{owned(cluster),
			missing(names(ref("", "Secret", "team-a", "gone"), "spec.bootstrap.dataSecretName"))}},
	}
}

// testFleet is a graph of n workload clusters of ten objects each.
func testFleet(n int) []*mgmtv1.GraphSnapshotResponse {
	class := ref(capi, "ClusterClass", "fleet", "small")
	all := []*mgmtv1.GraphSnapshotResponse{{Ref: class, Shared: true},
		{Ref: ref("", "ConfigMap", "fleet", "nobodys")}}
	for i := range n {
		name := fmt.Sprintf("w-%d", i)
		cluster := ref(capi, "Cluster", "fleet", name)
		all = append(all, &mgmtv1.GraphSnapshotResponse{Ref: cluster, Unit: "fleet/" + name,
			Edges: []*mgmtv1.GraphEdge{names(class, "spec.topology.classRef")}})
		for j, kind := range []string{"Machine", "Machine", "Machine", "Machine", "MachineSet",
			"MachineDeployment", "KubeadmControlPlane", "MachineHealthCheck", "MachinePool"} {
			all = append(all, &mgmtv1.GraphSnapshotResponse{Ref: ref(capi, kind, "fleet",
				fmt.Sprint(name, "-", j)), Unit: "fleet/" + name, Edges: []*mgmtv1.GraphEdge{owned(cluster)}})
		}
	}
	return all
}

func TestSnapshotGraph(t *testing.T) {
	for _, as := range []string{"dot", "mermaid", "svg", "json"} {
		t.Run(as, func(t *testing.T) {
			f := newFake()
			f.graph = testGraph()
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
			if as == "svg" {
				wellFormed(t, r.stdout)
			}
		})
	}
}

// TestSnapshotGraphOfAFleet: what nobody could read is drawn as one node for each workload cluster,
// unless all are asked for, or a part.
func TestSnapshotGraphOfAFleet(t *testing.T) {
	const few, many = 49, 50 // two objects besides: 492, 502
	for _, tt := range []struct {
		workloads int
		flags     string
		folded    bool
	}{{few, "", false}, {many, "", true}, {many, " --all", false}, {many, " --namespace fleet", false},
		{many, " --selector a=b", false}} {
		f := newFake()
		f.graph = testFleet(tt.workloads)
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
	f.graph = testFleet(51)
	for _, as := range []string{"mermaid", "svg"} {
		r := runner{fake: f}.run(t, "snapshot graph --standalone --store s --plain -o "+as).want(t, 0)
		golden(t, "snapshot_graph_fleet_"+as, r.stdout)
	}
	runner{fake: f}.run(t, "snapshot graph --standalone --store s --plain --all -o mermaid").want(t,
		0).stderrHas(t, "510 edges: Mermaid draws at most 500")
}

// wellFormed reads a document to its end.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestGraphPlaces: no box meets another, each is in its group, groups do not meet, and all of it is
// within the picture.
func TestGraphPlaces(t *testing.T) {
	loop := testGraph()
	// they own each other
	loop[4].Edges = append(loop[4].Edges, owned(ref(capi, "Machine", "team-a", "web-0")))
	for name, d := range map[string]*drawing{"graph": draw(testGraph(), false),
		"loop": draw(loop, false), "fleet": draw(testFleet(9), false), "folded": draw(testFleet(70),
			true)} {
		p := place(d)
		var nodes []*drawnNode
		var groups []rect
		for _, g := range d.groups {
			if !inside(p.groups[g], p.all) {
				t.Errorf("%s: group %s is not within the picture", name, g.title)
			}
			groups = append(groups, p.groups[g])
			for _, n := range g.nodes {
				if !inside(p.nodes[n], p.groups[g]) {
					t.Errorf("%s: %q is not within %q", name, n.lines, g.title)
				}
				nodes = append(nodes, n)
			}
		}
		if len(nodes) < 5 {
			t.Errorf("%s: only %d nodes", name, len(nodes))
		}
		for i, n := range nodes {
			for _, m := range nodes[:i] {
				if meet(p.nodes[n], p.nodes[m]) {
					t.Errorf("%s: %q meets %q", name, n.lines, m.lines)
				}
			}
		}
		for i, r := range groups {
			for _, q := range groups[:i] {
				if meet(r, q) {
					t.Errorf("%s: groups %v and %v meet", name, q, r)
				}
			}
		}
		var first, second bytes.Buffer
		writeSVG(&first, d)
		writeSVG(&second, d)
		wellFormed(t, first.String())
		if first.String() != second.String() {
			t.Errorf("%s: another picture the second time", name)
		}
	}
}

func inside(r, of rect) bool {
	return r.w > 0 && r.h > 0 && r.x >= of.x && r.y >= of.y && r.x+r.w <= of.x+of.w &&
		r.y+r.h <= of.y+of.h
}

func meet(a, b rect) bool {
	return a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h &&
		b.y < a.y+a.h
}

func TestSnapshotGraphCompletes(t *testing.T) {
	if got := (runner{fake: newFake()}).complete(t, "snapshot graph -o"); !strings.HasPrefix(got,
		"dot\nmermaid\nsvg\njson\nyaml\n:") {
		t.Errorf("after -o: %s", got)
	}
	if got := (runner{fake: newFake()}).complete(t, "snapshot list -o"); !strings.HasPrefix(got,
		"table\njson\nyaml\n:") {
		t.Errorf("after -o of another command: %s", got)
	}
}
