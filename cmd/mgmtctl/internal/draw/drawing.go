// Package draw draws the graph of a snapshot: for Graphviz, for Mermaid, and as SVG.
//
// New puts objects into groups and finds the edges between them. DOT, Mermaid and SVG write that
// drawing. The same objects always give the same bytes. Names come from a snapshot, which is
// untrusted: each format escapes what could break out of its text.
package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// Drawing is what is drawn of a graph: nodes in groups, and edges.
type Drawing struct {
	groups []*group
	edges  []edge
}

// group is a box around nodes: a workload cluster, or objects outside of one.
type group struct {
	title string
	aside bool // holds no objects of a workload cluster; drawn on the right
	sort  string
	nodes []*node
}

type node struct {
	id    int // from 1, through all groups
	lines []string
	title string // the full text, for tooltips
	role  role
	group *group
	count map[string]int // objects by kind, nil unless the node is folded
}

// role says what a node stands for.
type role int

const (
	single  role = iota // one object
	folded              // several objects
	outside             // an object of the snapshot that is not selected
	absent              // an object that is not in the snapshot
)

// edge leads from an owner to what it owns, or from an object to what it names.
type edge struct {
	from, to *node
	owner    bool
}

func (e edge) missing() bool { return e.from.role == absent || e.to.role == absent }

// drawer collects the nodes and edges of a drawing.
type drawer struct {
	fold    bool // one node for each unit
	objects map[string]*mgmtv1.GraphSnapshotResponse
	groups  map[string]*group
	nodes   map[string]*node
	edges   map[edge]bool
}

// New makes a drawing of objects, which are sorted by ref. With fold, each workload cluster is one
// node that counts its objects.
func New(objects []*mgmtv1.GraphSnapshotResponse, fold bool) *Drawing {
	d := &drawer{fold: fold, objects: map[string]*mgmtv1.GraphSnapshotResponse{},
		groups: map[string]*group{}, nodes: map[string]*node{}, edges: map[edge]bool{}}
	for _, o := range objects {
		d.objects[refText(o.GetRef())] = o
		if n := d.object(o); n.count != nil {
			n.count[o.GetRef().GetKind()]++
		}
	}
	for _, o := range objects {
		from := d.object(o)
		for _, e := range o.GetEdges() {
			to := d.target(e, from)
			if e.GetOwner() {
				d.edges[edge{from: to, to: from, owner: true}] = true
			} else {
				d.edges[edge{from: from, to: to}] = true
			}
		}
	}
	return d.finish()
}

// Edges returns the number of edges.
func (d *Drawing) Edges() int { return len(d.edges) }

// object returns the node of an object.
func (d *drawer) object(o *mgmtv1.GraphSnapshotResponse) *node {
	r := o.GetRef()
	if d.fold && !o.GetShared() {
		namespace, name, _ := strings.Cut(o.GetUnit(), "/")
		if o.GetUnit() == "" {
			return d.node("rest "+r.GetNamespace(), d.asideGroup(o), folded,
				"needed by no workload cluster")
		}
		return d.node("unit "+o.GetUnit(), d.groupOf("0"+namespace, namespace, false), folded, name)
	}
	n := d.node(refText(r), d.detailGroup(o), single, r.GetKind(), r.GetName())
	n.title = refText(r)
	return n
}

// detailGroup returns the group of an object that has a node of its own.
func (d *drawer) detailGroup(o *mgmtv1.GraphSnapshotResponse) *group {
	if o.GetUnit() != "" {
		return d.groupOf("0"+o.GetUnit(), o.GetUnit(), false)
	}
	return d.asideGroup(o)
}

// asideGroup returns the group of an object that belongs to no workload cluster.
func (d *drawer) asideGroup(o *mgmtv1.GraphSnapshotResponse) *group {
	where := "in " + o.GetRef().GetNamespace()
	if o.GetRef().GetNamespace() == "" {
		where = "cluster-scoped"
	}
	if o.GetShared() {
		return d.groupOf("1"+o.GetRef().GetNamespace(), "shared, "+where, true)
	}
	return d.groupOf("2"+o.GetRef().GetNamespace(), "of no workload cluster, "+where, true)
}

// target returns the node that an edge leads to. A missing object is drawn in the group of the
// object that needs it.
func (d *drawer) target(e *mgmtv1.GraphEdge, from *node) *node {
	r := e.GetTo()
	text := refText(r)
	switch o := d.objects[text]; {
	case e.GetMissing():
		n := d.node("missing "+text, from.group, absent, r.GetKind(), r.GetName())
		n.title = text + " is missing"
		return n
	case o == nil:
		n := d.node("outside "+text, d.groupOf("3", "not selected", true), outside, r.GetKind(),
			r.GetName())
		n.title = text
		return n
	default:
		return d.object(o)
	}
}

func (d *drawer) groupOf(key, title string, aside bool) *group {
	if d.groups[key] == nil {
		d.groups[key] = &group{sort: key, title: printable(title), aside: aside}
	}
	return d.groups[key]
}

func (d *drawer) node(key string, g *group, l role, lines ...string) *node {
	n := d.nodes[key]
	if n == nil {
		n = &node{role: l, group: g, lines: lines}
		if l == folded {
			n.count = map[string]int{}
		}
		d.nodes[key] = n
		g.nodes = append(g.nodes, n)
	}
	return n
}

// foldedKinds is how many kinds the text of a folded node names.
const foldedKinds = 5

// finish sorts groups and edges, numbers the nodes, and completes their texts.
func (d *drawer) finish() *Drawing {
	out := &Drawing{}
	for _, g := range d.groups {
		out.groups = append(out.groups, g)
	}
	slices.SortFunc(out.groups, func(a, b *group) int { return strings.Compare(a.sort, b.sort) })
	id := 0
	for _, g := range out.groups {
		for _, n := range g.nodes {
			id++
			n.id = id
			n.countLines()
			for i, line := range n.lines {
				n.lines[i] = printable(line)
			}
			n.title = printable(n.title)
		}
	}
	for e := range d.edges {
		owned := e
		owned.owner = true
		if e.from == e.to || !e.owner && d.edges[owned] {
			continue // an owner that also names its object gets one arrow
		}
		out.edges = append(out.edges, e)
	}
	slices.SortFunc(out.edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.from.id, b.from.id), cmp.Compare(a.to.id, b.to.id),
			strings.Compare(fmt.Sprint(b.owner), fmt.Sprint(a.owner)))
	})
	return out
}

// countLines adds to a folded node how many objects of which kinds it stands for.
func (n *node) countLines() {
	if n.count == nil {
		return
	}
	all := countKinds(n.count)
	total := 0
	for _, c := range n.count {
		total += c
	}
	objects := fmt.Sprintf("%d objects", total)
	if total == 1 {
		objects = "1 object"
	}
	n.title = n.lines[0] + ": " + objects + ": " + strings.Join(all, ", ")
	n.lines = append(n.lines, objects)
	if len(all) > foldedKinds {
		all = append(all[:foldedKinds-1], fmt.Sprintf("and %d more kinds", len(all)-foldedKinds+1))
	}
	n.lines = append(n.lines, all...)
}

// countKinds returns texts like "12 Machine", the most frequent kind first.
func countKinds(count map[string]int) []string {
	kinds := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", count[kind], kind)
	}
	return kinds
}

func refText(r *mgmtv1.Ref) string {
	return object.Ref{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(),
		Name: r.GetName()}.String()
}

// printable replaces control characters, which could break out of a line or reach a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
