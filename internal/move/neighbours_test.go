package move

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestNeighboursAreNotRead: of a namespace with many workload clusters a pause reads what belongs
// to the units of its batch, what they need although it has another label, what has no label, and
// what came since; nothing else.
func TestNeighboursAreNotRead(t *testing.T) {
	const namespace = "team"
	template := object.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachineTemplate"}
	node := func(gk object.GroupKind, name, label string) *graph.Node {
		ref := object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: namespace, Name: name}
		return &graph.Node{Ref: ref, UID: ref.String(), Cluster: label}
	}
	for _, tt := range []struct {
		workloads, lists int
	}{{1, 0}, {3, 1}, {400, 2}} {
		t.Run(fmt.Sprintf("%d workload clusters", tt.workloads), func(t *testing.T) {
			var nodes, clusters []*graph.Node
			for i := range tt.workloads {
				name := fmt.Sprintf("w-%d", i)
				cluster := node(capi.Cluster, name, "")
				mine := node(template, name, name)
				mine.Owners = []graph.Owner{{Ref: cluster.Ref, UID: cluster.UID}}
				cluster.Needs = []graph.Need{{Ref: mine.Ref, Field: "spec"}}
				clusters, nodes = append(clusters, cluster), append(nodes, cluster, mine)
			}
			borrowed, both := node(template, "borrowed", "template-maker"), node(template, "both", "")
			clusters[0].Needs = append(clusters[0].Needs, graph.Need{Ref: borrowed.Ref, Field: "spec"})
			for _, cluster := range clusters {
				cluster.Needs = append(cluster.Needs, graph.Need{Ref: both.Ref, Field: "spec"})
			}
			last := clusters[len(clusters)-1]
			both.Owners = []graph.Owner{{Ref: last.Ref, UID: last.UID}}
			odd := node(template, "odd", "no label: longer than any, "+strings.Repeat("x", 60))
			g := graph.New(append(nodes, borrowed, both, odd), nil)
			around := neighboursOf(g, []string{namespace + "/w-0"})
			narrow := around.narrow([]string{namespace + "/w-0"})
			selectors := narrow.Labels[namespace]
			if len(selectors) != tt.lists {
				t.Fatalf("%d LISTs: %q", len(selectors), selectors)
			}
			if tt.lists == 0 {
				return // there is nothing to leave out
			}
			read := func(set labels.Set) (times int) {
				for _, text := range selectors {
					s, err := labels.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					if len(text) > mostLabels {
						t.Errorf("a selector has %d bytes", len(text))
					}
					if s.Matches(set) {
						times++
					}
				}
				return times
			}
			for name, want := range map[string]int{"w-0": 1, "template-maker": 1, "w-1": 0,
				fmt.Sprintf("w-%d", tt.workloads-1): 0} {
				if got := read(labels.Set{capi.LabelClusterName: name}); got != want {
					t.Errorf("objects of %s are read %d times, want %d", name, got, want)
				}
			}
			if got := read(labels.Set{"a": "b"}); got != 1 {
				t.Errorf("objects without the label are read %d times", got)
			}
			if !narrow.Owners[last.Ref] {
				t.Errorf("%s would be a missing owner", last.Ref)
			}
			alone := graph.New([]*graph.Node{node(capi.Cluster, "w-0", ""), both}, nil)
			alone.Node(clusters[0].Ref).Needs = clusters[0].Needs
			alone = graph.New(alone.Nodes, nil)
			if n := alone.Node(both.Ref); n.Shared {
				t.Fatal("it is shared without its neighbours")
			}
			around.keepShared(alone)
			if n := alone.Node(both.Ref); !n.Shared || n.Unit != "" {
				t.Errorf("%s is not shared any more", n.Ref)
			}
		})
	}
}

// TestWhatCameOrChangedIsLookedAt: by its UID and generation, in the namespaces that are known.
func TestWhatCameOrChangedIsLookedAt(t *testing.T) {
	n := &neighbours{generations: map[string]int64{"a": 2}, namespaces: []string{"team"}}
	for _, tt := range []struct {
		namespace, uid string
		generation     int64
		want           bool
	}{
		{"team", "a", 2, false}, {"team", "a", 3, true}, {"team", "b", 1, true},
		{"other", "b", 1, false},
	} {
		if got := n.isChanged(tt.namespace, tt.uid, tt.generation); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	n.namespaces = nil
	if !n.isChanged("other", "b", 1) {
		t.Error("no namespace is named: all of them are known")
	}
	n = nil
	if n.isChanged("team", "b", 1) {
		t.Error("nothing is known")
	}
}
