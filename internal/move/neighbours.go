package move

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// neighbours are what the namespaces of a group had besides its units when it was made ready.
// What a pause reads of the source leaves it out, so that its cost does not depend on how many
// workload clusters share a namespace. What has no label with the name of a workload cluster, or
// that of one which came since, is read.
type neighbours struct {
	// names are the workload clusters of which a namespace has objects, and of are those of which a
	// unit has, or needs, some: its own name, and perhaps others.
	names map[object.Key]bool
	of    map[string]map[object.Key]bool
	// owners are objects that own one of another workload cluster, or one without a label.
	owners map[object.Ref]bool
	// shared are the objects that several units need.
	shared map[object.Ref]bool
	// generations are those of the objects that name others, by UID, in these namespaces, or in all
	// when there are none.
	generations map[string]int64
	namespaces  []string
}

// mostLabels is how long a label selector is at most, in bytes: it is a part of a URL, and proxies
// accept no long ones.
const mostLabels = 2048

// lookAround notes the neighbours of the units of a group that are locked. When it cannot, what is
// read of the source later leaves out nothing.
func (m *run) lookAround(ctx context.Context, of *readyGroup, units []string) {
	if len(units) == 0 {
		return
	}
	v, err := m.captures.of(ctx, of.since, m.namespacesOf(units[0])) // they go together
	if err == nil {
		of.around = neighboursOf(v.graph, units)
		of.around.namespaces = v.namespaces
	}
}

// narrowed returns a cache of captures of units of a group, without their neighbours.
func (m *run) narrowed(of *readyGroup, units []string) *captureCache {
	around := of.around
	captures := capturesOf(m.Source, around.narrow(units))
	captures.seen = func(g *graph.Graph) {
		m.keepShared(g)
		around.keepShared(g)
	}
	return captures
}

// neighboursOf returns the neighbours of units in a graph of their namespaces.
func neighboursOf(g *graph.Graph, units []string) *neighbours {
	n := &neighbours{names: map[object.Key]bool{}, of: map[string]map[object.Key]bool{},
		owners: map[object.Ref]bool{}, shared: map[object.Ref]bool{},
		generations: map[string]int64{}}
	for _, node := range g.Nodes {
		of := clusterNames(node)
		for _, key := range of {
			n.names[key] = true
		}
		for _, o := range node.Owners {
			if owner := g.Owner(o); owner != nil && !slices.Equal(of, clusterNames(owner)) {
				n.owners[o.Ref] = true
			}
		}
		if node.Shared {
			n.shared[node.Ref] = true
		}
		if namesOthers(g.Rows, node.GroupKind()) {
			n.generations[node.UID] = node.Generation
		}
	}
	for _, unit := range units {
		n.of[unit] = map[object.Key]bool{}
		for _, node := range g.Select(map[string]bool{unit: true}, nil) {
			for _, key := range clusterNames(node) {
				n.of[unit][key] = true
			}
		}
	}
	return n
}

// namesOthers reports whether objects of a kind name others.
func namesOthers(rows *capi.Table, gk object.GroupKind) bool { return len(rows.Row(gk).Refs) > 0 }

// isChanged reports whether an object that names others came since, or got another spec.
func (n *neighbours) isChanged(namespace, uid string, generation int64) bool {
	if n == nil || len(n.namespaces) > 0 && !slices.Contains(n.namespaces, namespace) {
		return false
	}
	was, known := n.generations[uid]
	return !known || was != generation
}

// clusterNames returns the values that the label with the name of a workload cluster may have on an
// object: what a node knows of it may also be from its spec, or its name.
func clusterNames(n *graph.Node) (names []object.Key) {
	add := func(name string) {
		if name != "" && len(validation.IsValidLabelValue(name)) == 0 {
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

// narrow returns what a capture of some of the units leaves out; nil leaves out nothing.
func (n *neighbours) narrow(units []string) capture.Narrow {
	if n == nil {
		return capture.Narrow{}
	}
	mine := map[object.Key]bool{}
	for _, unit := range units {
		maps.Copy(mine, n.of[unit])
	}
	read, left := map[string][]string{}, map[string][]string{}
	for key := range n.names {
		if mine[key] {
			read[key.Namespace] = append(read[key.Namespace], key.Name)
		} else {
			left[key.Namespace] = append(left[key.Namespace], key.Name)
		}
	}
	narrow := capture.Narrow{Labels: map[string][]string{}, Clusters: map[string][]string{},
		Owners: n.owners}
	for _, unit := range units {
		namespace, name, _ := strings.Cut(unit, "/")
		narrow.Clusters[namespace] = append(narrow.Clusters[namespace], name)
	}
	for namespace, names := range left {
		labels := []string{setOf("notin", names)}
		if len(labels[0]) > mostLabels {
			labels = []string{"!" + capi.LabelClusterName}
			if len(read[namespace]) > 0 {
				labels = append(labels, setOf("in", read[namespace]))
			}
		}
		narrow.Labels[namespace] = labels
	}
	return narrow
}

func setOf(operator string, names []string) string {
	slices.Sort(names)
	return capi.LabelClusterName + " " + operator + " (" + strings.Join(names, ",") + ")"
}

// keepShared marks the objects of a graph without the neighbours as shared that these need, too.
func (n *neighbours) keepShared(g *graph.Graph) {
	if n == nil {
		return
	}
	for ref := range n.shared {
		share(g, ref)
	}
}

// share marks an object of a graph as shared.
func share(g *graph.Graph, ref object.Ref) {
	if n := g.Node(ref); n != nil && n.Unit != "" {
		n.Unit, n.Shared = "", true
	}
}
