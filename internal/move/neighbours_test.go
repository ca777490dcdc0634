package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
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
			around := neighboursOf(g, []string{namespace + "/w-0"}, []string{namespace})
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
			for _, set := range []labels.Set{{"a": "b"}, {capi.LabelClusterName: ""}} {
				if got := read(set); got != 1 {
					t.Errorf("objects with labels %v are read %d times", set, got)
				}
			}
			if got := narrow.Clusters[namespace]; !slices.Equal(got, []string{"w-0"}) {
				t.Errorf("the Clusters %q are read", got)
			}
			if narrow.Owners[last.Ref] != last.UID {
				t.Errorf("%s would be a missing owner", last.Ref)
			}
		})
	}
}

// TestGraphHasTheNeighboursThatWereNotRead: to whom an object belongs is decided with the
// neighbours as they were, also when a workload cluster has come to name something of them.
func TestGraphHasTheNeighboursThatWereNotRead(t *testing.T) {
	const mine, other = "team/mine", "team/other"
	template := func(name string) object.Ref {
		return object.Ref{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachineTemplate",
			Namespace: "team", Name: name}
	}
	type fleet map[string]*graph.Node
	// build returns a fleet in which both workload clusters name "both", which one of other owns.
	build := func() fleet {
		f := fleet{}
		add := func(name, label string, ref object.Ref, owner string, names ...string) {
			n := &graph.Node{Ref: ref, UID: name, Cluster: label}
			if owner != "" {
				n.Owners = []graph.Owner{{Ref: f[owner].Ref, UID: owner}}
			}
			for _, named := range names {
				n.Needs = append(n.Needs, graph.Need{Ref: template(named), Field: "spec"})
			}
			f[name] = n
		}
		cluster := func(name string) object.Ref {
			ref, _ := clusterRef("team/" + name)
			return ref
		}
		add("mine", "", cluster("mine"), "", "own", "both")
		add("other", "", cluster("other"), "", "both", "free")
		add("plane", "other", template("plane"), "other")
		add("own", "mine", template("own"), "mine")
		add("both", "other", template("both"), "plane")
		add("free", "", template("free"), "")
		add("labelled", "third", template("labelled"), "")
		return f
	}
	link := func(f fleet, without ...string) *graph.Graph {
		var nodes []*graph.Node
		for name, n := range f {
			if !slices.Contains(without, name) {
				nodes = append(nodes, n)
			}
		}
		return graph.New(nodes, nil)
	}
	names := func(n *graph.Node, refs ...object.Ref) {
		for _, ref := range refs {
			n.Needs = append(n.Needs, graph.Need{Ref: ref, Field: "spec"})
		}
	}
	owned := func(n *graph.Node, ref object.Ref) {
		n.Owners = append(n.Owners, graph.Owner{Ref: ref, UID: "new"})
	}
	newcomer, _ := clusterRef("team/newcomer")
	for _, tt := range []struct {
		name   string
		then   func(f fleet)
		shared []string
		enough bool
	}{
		{"nothing changed", func(fleet) {}, []string{"both"}, true},
		{"it names what another one uses", func(f fleet) { names(f["mine"], template("free")) },
			[]string{"both", "free"}, false},
		{"it has got what was of another one", func(f fleet) {
			f["free"].Cluster = "mine"
			names(f["mine"], template("free"))
		}, []string{"both", "free"}, false},
		{"what they share names something new", func(f fleet) {
			f["new"] = &graph.Node{Ref: template("new"), UID: "new"}
			names(f["both"], template("new"))
		}, []string{"both", "new"}, false},
		{"it names what was not read", func(f fleet) { names(f["mine"], template("labelled")) },
			[]string{"both"}, false},
		{"what they share has got an owner that was not read",
			func(f fleet) { owned(f["both"], newcomer) }, []string{"both"}, false},
		{"a workload cluster came", func(f fleet) {
			f["plane of it"] = &graph.Node{Ref: template("its"), UID: "its", Cluster: "newcomer"}
		}, []string{"both"}, false},
		{"it misses something", func(f fleet) { names(f["mine"], template("gone")) },
			[]string{"both"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			around := neighboursOf(link(build()), []string{mine}, []string{"team"})
			now := build()
			tt.then(now)
			g, enough := around.complete(link(now, "other", "labelled"), []string{mine})
			if enough != tt.enough {
				t.Errorf("it is enough: %v", enough)
			}
			for name, n := range now {
				got := g.Node(n.Ref)
				want := map[bool]string{true: mine, false: other}[name == "mine" || name == "own"]
				if name == "labelled" && tt.enough {
					want = ""
				}
				switch shared := slices.Contains(tt.shared, name); {
				case got == nil:
					t.Errorf("%s is not there", name)
				case got.Shared != shared, !shared && tt.enough && got.Unit != want:
					t.Errorf("%s belongs to %q, shared: %v", name, got.Unit, got.Shared)
				}
			}
		})
	}
	now := build()
	now["unused"] = &graph.Node{Ref: template("unused"), UID: "unused"}
	names(now["unused"], template("labelled"))
	around := neighboursOf(link(build()), []string{mine}, []string{"team"})
	for _, also := range [][]object.Ref{nil, {template("unused")}} {
		_, enough := around.complete(link(now, "other", "labelled"), []string{mine}, also...)
		if enough != (also == nil) {
			t.Errorf("what was not read is needed by %v, which moves with it; it is enough: %v", also, enough)
		}
	}
}

// TestNamespaceIsReadWholeOnceForManyGroups: what is known of the neighbours is read again when it
// is old, and where it says nothing of a namespace. There may be too many namespaces to list.
func TestNamespaceIsReadWholeOnceForManyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listed [][]string
		m := &run{namespaces: map[string][]string{}, together: map[string][]string{}}
		m.captures = &captureCache{capture: func(_ context.Context, namespaces []string) (
			*snapshot.Snapshot, *snapshot.Contents, error) {
			listed = append(listed, namespaces)
			time.Sleep(time.Second)
			return &snapshot.Snapshot{Graph: graph.New(nil, nil)}, &snapshot.Contents{}, nil
		}}
		for i := range kube.ManyNamespaces + 1 {
			m.namespaces["a/spread"] = append(m.namespaces["a/spread"], fmt.Sprint("n-", i))
		}
		for _, group := range []struct {
			unit   string
			narrow bool
			after  time.Duration
		}{
			{"a/first", false, 0},
			{"a/second", true, time.Minute},
			{"a/third", true, neighboursAge - time.Minute - 2*time.Second},
			{"a/late", false, 2 * time.Second},
			{"b/elsewhere", false, 0},
			{"b/second", true, 0},
			{"a/spread", false, 0},
		} {
			time.Sleep(group.after)
			before := len(listed)
			from := m.lookFor(t.Context(), []string{group.unit})
			if narrow := from.captures != m.captures; narrow != group.narrow ||
				narrow && len(listed) > before {
				t.Errorf("%s is looked at without its neighbours: %v, after %v", group.unit, narrow,
					listed[before:])
			}
			m.captures.dropContents(m.captures.latest)
		}
		if want := [][]string{{"a"}, {"a"}, {"b"}}; !slices.EqualFunc(listed, want, slices.Equal) {
			t.Errorf("listed %v, want %v", listed, want)
		}
	})
}

// TestWhatOthersHaveComeToUse: only what an object has come to name counts, also by way of others.
func TestWhatOthersHaveComeToUse(t *testing.T) {
	template := object.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "DevMachineTemplate"}
	class := object.GroupKind{Group: capi.Cluster.Group, Kind: "ClusterClass"}
	ref := func(gk object.GroupKind, name string) object.Ref {
		return object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: "team", Name: name}
	}
	mine, old, between := ref(template, "mine"), ref(template, "old"), ref(class, "between")
	cluster := ref(capi.Cluster, "unit")
	need := func(refs ...object.Ref) (needs []graph.Need) {
		for _, r := range refs {
			needs = append(needs, graph.Need{Ref: r})
		}
		return needs
	}
	back := []graph.Need{{Ref: mine, Back: true}}
	for _, tt := range []struct {
		name   string
		user   *graph.Node
		uses   int
		follow []object.Ref
	}{
		{"it names it now", &graph.Node{Ref: ref(class, "user"), UID: "new", Needs: need(mine)}, 1, nil},
		{"it named it before", &graph.Node{Ref: ref(class, "user"), UID: "old", Needs: need(old)}, 0,
			nil},
		{"it named another one before",
			&graph.Node{Ref: ref(class, "user"), UID: "old", Needs: need(old, mine)}, 1, nil},
		{"one that it names may", &graph.Node{Ref: ref(class, "user"), UID: "new",
			Needs: need(between)}, 0, []object.Ref{between}},
		{"it is of the unit", &graph.Node{Ref: ref(class, "own"), UID: "new", Needs: need(mine)}, 0,
			nil},
		{"it names the Cluster", &graph.Node{Ref: ref(class, "user"), UID: "new",
			Needs: need(cluster)}, 0, nil},
		{"it is needed by it", &graph.Node{Ref: ref(class, "user"), UID: "new", Needs: back}, 0, nil},
	} {
		l := &lateUse{run: &run{}, uses: map[string]map[object.Ref]string{"team/unit": {}},
			removed: map[object.Ref]string{mine: "team/unit", old: "team/unit"},
			own: map[string]map[object.Ref]bool{"team/unit": {mine: true, old: true,
				ref(class, "own"): true}}}
		var before []graph.Need
		if tt.user.UID == "old" {
			before = need(old)
		}
		follow := l.follow(tt.user, before)
		if got := len(l.uses["team/unit"]); got != tt.uses || !slices.Equal(follow, tt.follow) {
			t.Errorf("%s: %d uses, and %v is followed", tt.name, got, follow)
		}
	}
}

// TestOnlyASecretCanStay: the garbage collector would take one that has an owner along.
func TestOnlyASecretCanStay(t *testing.T) {
	secret := func(name string) object.Ref {
		return object.Ref{Kind: "Secret", Namespace: "team", Name: name}
	}
	pool := object.Ref{Group: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool",
		Namespace: "team", Name: "pool"}
	u := restore.Unit{Name: "team/unit", Objects: []restore.Object{{Ref: secret("alone")},
		{Ref: secret("owned"), Owners: []object.Ref{secret("owns")}}, {Ref: secret("owns")},
		{Ref: pool}}}
	for ref, want := range map[object.Ref]bool{secret("alone"): true, secret("owned"): false,
		secret("owns"): false, pool: false} {
		if got := canStay(u, ref); got != want {
			t.Errorf("%s can stay: %v", ref, got)
		}
	}
}

// TestUsersThatCameOrChangedAreLookedAt: by their UID, and by what changes with the fields that
// name others, in the namespaces that are known.
func TestUsersThatCameOrChangedAreLookedAt(t *testing.T) {
	u := &users{known: map[string]user{"a": {version: "2"}, "b": {version: "70"}},
		namespaces: []string{"team"}}
	row := (*capi.Table)(nil).Row(capi.Cluster)
	for _, tt := range []struct {
		namespace, metadata string
		want                bool
	}{
		{"team", `{"uid":"a","generation":2,"resourceVersion":"71"}`, false},
		{"team", `{"uid":"a","generation":3,"resourceVersion":"71"}`, true},
		{"team", `{"uid":"b","resourceVersion":"70"}`, false},
		{"team", `{"uid":"b","resourceVersion":"71"}`, true},
		{"team", `{"uid":"c","generation":1}`, true},
		{"other", `{"uid":"c","generation":1}`, false},
	} {
		if got := u.changed(row, tt.namespace, gjson.Parse(tt.metadata)); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	u.namespaces = nil
	if !u.changed(row, "other", gjson.Parse(`{"uid":"c"}`)) {
		t.Error("no namespace is named: all of them are known")
	}
}
