package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// drawing is what is drawn of a graph: nodes in groups, and edges. The same objects give the same
// drawing.
type drawing struct {
	groups []*drawnGroup
	edges  []drawnEdge
}

// drawnGroup is a box around nodes.
type drawnGroup struct {
	title string
	aside bool // not the objects of a workload cluster
	sort  string
	nodes []*drawnNode
}

type drawnNode struct {
	id    int // from 1, through all groups
	lines []string
	title string // all that is to be said of it, where there is room
	look  look
	group *drawnGroup
	count map[string]int // objects by kind, of a node that stands for several
}

// look is what a node is.
type look int

const (
	lookObject  look = iota
	lookFolded       // stands for several objects
	lookOutside      // in the snapshot, but not in the selection
	lookMissing      // not in the snapshot
)

// drawnEdge leads from an owner to what it owns, or from an object to what it names.
type drawnEdge struct {
	from, to *drawnNode
	owner    bool
}

func (e drawnEdge) missing() bool { return e.from.look == lookMissing || e.to.look == lookMissing }

// drawer makes a drawing.
type drawer struct {
	fold    bool // one node for each unit
	objects map[string]*mgmtv1.GraphSnapshotResponse
	groups  map[string]*drawnGroup
	nodes   map[string]*drawnNode
	edges   map[drawnEdge]bool
}

// draw makes a drawing of objects, which are sorted by ref.
func draw(objects []*mgmtv1.GraphSnapshotResponse, fold bool) *drawing {
	d := &drawer{fold: fold, objects: map[string]*mgmtv1.GraphSnapshotResponse{},
		groups: map[string]*drawnGroup{}, nodes: map[string]*drawnNode{}, edges: map[drawnEdge]bool{}}
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
				d.edges[drawnEdge{from: to, to: from, owner: true}] = true
			} else {
				d.edges[drawnEdge{from: from, to: to}] = true
			}
		}
	}
	return d.finish()
}

// object is the node of an object.
func (d *drawer) object(o *mgmtv1.GraphSnapshotResponse) *drawnNode {
	r := o.GetRef()
	if d.fold && !o.GetShared() {
		namespace, name, _ := strings.Cut(o.GetUnit(), "/")
		if o.GetUnit() == "" {
			return d.node("rest "+r.GetNamespace(), d.asideGroup(o), lookFolded,
				"needed by no workload cluster")
		}
		return d.node("unit "+o.GetUnit(), d.groupOf("0"+namespace, namespace, false), lookFolded, name)
	}
	n := d.node(refText(r), d.detailGroup(o), lookObject, r.GetKind(), r.GetName())
	n.title = refText(r)
	return n
}

// detailGroup is the group of an object that is drawn itself.
func (d *drawer) detailGroup(o *mgmtv1.GraphSnapshotResponse) *drawnGroup {
	if o.GetUnit() != "" {
		return d.groupOf("0"+o.GetUnit(), o.GetUnit(), false)
	}
	return d.asideGroup(o)
}

// asideGroup is the group of an object outside of units.
func (d *drawer) asideGroup(o *mgmtv1.GraphSnapshotResponse) *drawnGroup {
	where := "in " + o.GetRef().GetNamespace()
	if o.GetRef().GetNamespace() == "" {
		where = "cluster-scoped"
	}
	if o.GetShared() {
		return d.groupOf("1"+o.GetRef().GetNamespace(), "shared, "+where, true)
	}
	return d.groupOf("2"+o.GetRef().GetNamespace(), "of no workload cluster, "+where, true)
}

// target is the node that an edge leads to. What is missing stands beside what misses it.
func (d *drawer) target(e *mgmtv1.GraphEdge, from *drawnNode) *drawnNode {
	r := e.GetTo()
	text := refText(r)
	switch o := d.objects[text]; {
	case e.GetMissing():
		n := d.node("missing "+text, from.group, lookMissing, r.GetKind(), r.GetName())
		n.title = text + " is missing"
		return n
	case o == nil:
		n := d.node("outside "+text, d.groupOf("3", "not selected", true), lookOutside, r.GetKind(),
			r.GetName())
		n.title = text
		return n
	default:
		return d.object(o)
	}
}

func (d *drawer) groupOf(key, title string, aside bool) *drawnGroup {
	if d.groups[key] == nil {
		d.groups[key] = &drawnGroup{sort: key, title: printable(title), aside: aside}
	}
	return d.groups[key]
}

func (d *drawer) node(key string, g *drawnGroup, l look, lines ...string) *drawnNode {
	n := d.nodes[key]
	if n == nil {
		n = &drawnNode{look: l, group: g, lines: lines}
		if l == lookFolded {
			n.count = map[string]int{}
		}
		d.nodes[key] = n
		g.nodes = append(g.nodes, n)
	}
	return n
}

// foldedKinds is how many kinds a node that stands for several objects names.
const foldedKinds = 5

// finish numbers nodes, writes what they stand for, and sorts edges.
func (d *drawer) finish() *drawing {
	out := &drawing{}
	for _, g := range d.groups {
		out.groups = append(out.groups, g)
	}
	slices.SortFunc(out.groups, func(a, b *drawnGroup) int { return strings.Compare(a.sort, b.sort) })
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
			continue // what owns an object names it, too: one arrow says it
		}
		out.edges = append(out.edges, e)
	}
	slices.SortFunc(out.edges, func(a, b drawnEdge) int {
		return cmp.Or(cmp.Compare(a.from.id, b.from.id), cmp.Compare(a.to.id, b.to.id),
			strings.Compare(fmt.Sprint(b.owner), fmt.Sprint(a.owner)))
	})
	return out
}

// countLines says how many objects of which kinds a node stands for.
func (n *drawnNode) countLines() {
	if n.count == nil {
		return
	}
	all := strings.Split(counts(n.count), ", ")
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

// printable keeps what a stranger may have put into a name from breaking out of its line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
