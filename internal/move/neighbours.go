package move

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// neighbours are what the namespaces of a group had before its pause. What is read of the source
// then leaves out what belongs to other workload clusters than its units, so that its cost
// does not depend on how many share a namespace: what has the label with the name of another one,
// and their Clusters. What has no such label is read.
type neighbours struct {
	graph *graph.Graph
	// names are the workload clusters of which a namespace has objects, and of are those of which a
	// unit has, or needs, some: its own name, and perhaps others.
	names map[object.Key]bool
	of    map[string]map[object.Key]bool
	// owners are objects that may be left out, and own what may be read all the same.
	owners []*graph.Node
	users  *users
	// wide: it was not enough for a batch of the group (complete), and its others leave out nothing.
	wide bool
}

// mostLabels is how long a label selector that leaves out names is at most, in bytes: it is a part
// of a URL, and proxies accept no long ones.
const mostLabels = 2048

// lookAround notes the neighbours of the units of a group that are locked, and returns the capture
// that shows them. When it cannot, the snapshots of the group leave out nothing.
func (m *run) lookAround(ctx context.Context, of *readyGroup, units []string) *sourceCapture {
	if len(units) == 0 {
		return nil
	}
	namespaces := m.namespacesOf(units[0]) // they go together
	v, err := of.captures.graphOf(ctx, of.since, namespaces)
	if err != nil {
		return nil
	}
	of.around = neighboursOf(v.graph, units, namespaces)
	of.around.users = usersIn(v.graph, of.before, v.namespaces)
	return v
}

// look is through what units are looked at on the source: a capture of these that began after
// since.
type look struct {
	captures *captureCache
	since    time.Time
	before   *graph.Graph // that has the neighbours; nil when captures read them
}

// neighboursAge is how old a capture may be of which a group has its neighbours. What these have
// come to use of a unit since is found after its hand-over, before it is retired (lateUse).
const neighboursAge = 2 * time.Minute

// lookFor returns through what units that go together are looked at before they are paused. A
// capture of their namespaces is shared by all groups, so that a move does not read a namespace
// once more for each group that shares it: of each group what belongs to its units is read, and the
// rest is as it was then.
func (m *run) lookFor(ctx context.Context, units []string) look {
	from := look{captures: m.captures, since: time.Now()}
	namespaces := m.namespacesOf(units[0])
	if len(namespaces) > kube.ManyNamespaces {
		return from
	}
	v, err := m.captures.graphOf(ctx, from.since.Add(-neighboursAge), namespaces)
	if err == nil && v.began.Before(from.since) {
		from.captures = m.narrowed(neighboursOf(v.graph, units, namespaces), units)
		from.before = v.graph
	}
	return from
}

// pausedLook returns through what units of a group are looked at while they are paused.
func (m *run) pausedLook(of *readyGroup, units []string) look {
	from := look{captures: m.captures, since: time.Now()}
	if of.around != nil && !of.around.wide {
		from.captures = m.narrowed(of.around, units)
	}
	return from
}

// narrowed returns a cache of captures of units without their neighbours.
func (m *run) narrowed(around *neighbours, units []string) *captureCache {
	captures := capturesOf(m.Source, around.narrow(units))
	captures.wide = m.captures
	captures.prepare = func(g *graph.Graph) (*graph.Graph, bool) {
		g, enough := around.complete(g, units)
		m.keepShared(g)
		return g, enough
	}
	return captures
}

// neighboursOf returns the neighbours of units in a graph of these namespaces and perhaps others.
func neighboursOf(g *graph.Graph, units, namespaces []string) *neighbours {
	n := &neighbours{graph: g, names: map[object.Key]bool{}, of: map[string]map[object.Key]bool{}}
	owners := map[*graph.Node]bool{}
	for _, node := range g.Nodes {
		if !slices.Contains(namespaces, node.Namespace) {
			continue
		}
		of := clusterNames(node)
		for _, key := range of {
			n.names[key] = true
		}
		for _, o := range node.Owners {
			owner := g.Owner(o)
			if owner != nil && !owners[owner] && !slices.Equal(of, clusterNames(owner)) {
				owners[owner] = true
				n.owners = append(n.owners, owner)
			}
		}
	}
	for _, unit := range units {
		key, _ := object.ParseKey(unit)
		n.names[key], n.of[unit] = true, map[object.Key]bool{key: true}
		for _, node := range g.Select(map[string]bool{unit: true}, nil) {
			for _, key := range clusterNames(node) {
				n.of[unit][key] = true
			}
		}
	}
	return n
}

// clusterNames returns the values that the label with the name of a workload cluster may have on an
// object: what a node knows of it may also be from its spec, or its name.
func clusterNames(n *graph.Node) (names []object.Key) {
	add := func(name string) {
		if n.Namespace != "" && name != "" && len(validation.IsValidLabelValue(name)) == 0 {
			names = append(names, object.Key{Namespace: n.Namespace, Name: name})
		}
	}
	add(n.Cluster)
	for _, label := range n.Labels { // of a Cluster
		if name, ok := strings.CutPrefix(label, capi.LabelClusterName+"="); ok {
			add(name)
		}
	}
	return names
}

// narrow returns what a capture of some of the units leaves out. Of an object with an empty label
// nobody knows to which workload cluster it belongs: it is read.
func (n *neighbours) narrow(units []string) capture.Narrow {
	mine := n.mine(units)
	read, left := map[string][]string{}, map[string][]string{}
	for key := range n.names {
		if mine[key] {
			read[key.Namespace] = append(read[key.Namespace], key.Name)
		} else {
			left[key.Namespace] = append(left[key.Namespace], key.Name)
		}
	}
	narrow := capture.Narrow{Labels: map[string][]string{}, Clusters: map[string][]string{},
		Owners: map[object.Ref]string{}}
	for _, unit := range units {
		namespace, name, _ := strings.Cut(unit, "/")
		narrow.Clusters[namespace] = append(narrow.Clusters[namespace], name)
	}
	for namespace, names := range left {
		labels := []string{setOf("notin", names)}
		if len(labels[0]) > mostLabels {
			labels = []string{"!" + capi.LabelClusterName, setOf("in", append(read[namespace], ""))}
		}
		narrow.Labels[namespace] = labels
	}
	for _, owner := range n.owners {
		if isLeftOut(owner, narrow, mine) {
			narrow.Owners[owner.Ref] = owner.UID
		}
	}
	return narrow
}

// isLeftOut reports whether a narrow capture does not read an object. What is known of it may also
// be from its spec, or its name: then it is read all the same, if it is still there.
func isLeftOut(n *graph.Node, narrow capture.Narrow, mine map[object.Key]bool) bool {
	names := clusterNames(n)
	switch {
	case len(narrow.Labels[n.Namespace]) == 0:
		return false
	case n.GroupKind() == capi.Cluster:
		return !slices.Contains(narrow.Clusters[n.Namespace], n.Name)
	}
	return len(names) > 0 && !slices.ContainsFunc(names,
		func(key object.Key) bool { return mine[key] })
}

// mine returns the workload clusters of which units have, or need, objects.
func (n *neighbours) mine(units []string) map[object.Key]bool {
	mine := map[object.Key]bool{}
	for _, unit := range units {
		maps.Copy(mine, n.of[unit])
	}
	return mine
}

func setOf(operator string, names []string) string {
	slices.Sort(names)
	return capi.LabelClusterName + " " + operator + " (" + strings.Join(names, ",") + ")"
}

// complete returns the graph of a capture of units with what it left out, as that was before: whom
// an object belongs to, and who shares it, depends on all that need it. It is not enough when the
// units need something by now that was left out, or share something that they did not, which those
// that were left out may not need any more, or miss something that may be there, or when a workload
// cluster came since, of which not all is read; nor when what also moves needs something that was
// left out.
func (n *neighbours) complete(g *graph.Graph, units []string, also ...object.Ref) (
	whole *graph.Graph, enough bool) {
	narrow, mine := n.narrow(units), n.mine(units)
	nodes, old := slices.Clone(g.Nodes), map[object.Ref]bool{}
	for _, node := range n.graph.Nodes {
		if g.Node(node.Ref) == nil && isLeftOut(node, narrow, mine) {
			copied := *node // a graph writes to its nodes
			nodes, old[node.Ref] = append(nodes, &copied), true
		}
	}
	came := slices.ContainsFunc(g.Nodes, func(node *graph.Node) bool {
		return len(narrow.Labels[node.Namespace]) > 0 && slices.ContainsFunc(clusterNames(node),
			func(key object.Key) bool { return !n.names[key] })
	})
	whole = graph.New(nodes, g.Rows)
	selected, missed := map[string]bool{}, map[graph.Missing]bool{}
	for _, unit := range units {
		selected[unit] = true
	}
	for _, missing := range n.graph.Missing {
		missed[missing] = true
	}
	needs := map[object.Ref]bool{}
	for _, node := range whole.Select(selected, nil) {
		needs[node.Ref] = true
		was := n.graph.Node(node.Ref)
		if old[node.Ref] || node.Shared && (was == nil || !was.Shared) {
			return whole, false
		}
	}
	for _, node := range whole.Select(nil, func(node *graph.Node) bool {
		return slices.Contains(also, node.Ref)
	}) {
		if old[node.Ref] {
			return whole, false
		}
	}
	return whole, !came && !slices.ContainsFunc(whole.Missing, func(missing graph.Missing) bool {
		return needs[missing.By] && !missed[missing]
	})
}
