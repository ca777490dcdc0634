package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Sizes in the SVG's units. The font is monospaced, so that the width of a text is known without
// measuring fonts.
const (
	fontSize   = 11
	charWidth  = 6.7 // of one letter of that size
	lineHeight = 14.0
	pad        = 8.0
	rowGap     = 10.0
	columnGap  = 46.0
	groupGap   = 22.0
	asideGap   = 140.0 // between workload clusters and what they share
	titleSpace = 24.0
	maxLetters = 44 // of a line; the tooltip has the rest
	gridWidth  = 6  // boxes in a row of nodes without an edge inside their group
)

type rect struct{ x, y, w, h float64 }

// layout has the positions of all nodes and groups of a drawing.
type layout struct {
	nodes   map[*node]rect
	groups  map[*group]rect
	parents map[*node]*node // within a group
	all     rect
}

// place computes the layout. In each group, a node is one column right of its parent: the node
// that owns it, else one that names it. The children of a node use the rows from its own row on,
// so no two boxes overlap. Groups are placed below each other, those of workload clusters on the
// left.
func place(d *Drawing) *layout {
	p := &layout{nodes: map[*node]rect{}, groups: map[*group]rect{}, parents: parents(d)}
	left, right, wide := groupGap, groupGap, 0.0
	for _, g := range d.groups {
		if !g.aside {
			r := p.placeGroup(g, groupGap, left)
			left, wide = left+r.h+groupGap, max(wide, r.w)
		}
	}
	x := groupGap
	if wide > 0 {
		x += wide + asideGap
	}
	p.all = rect{w: groupGap + wide + groupGap, h: left}
	for _, g := range d.groups {
		if g.aside {
			r := p.placeGroup(g, x, right)
			right += r.h + groupGap
			p.all.w, p.all.h = max(p.all.w, r.x+r.w+groupGap), max(p.all.h, right)
		}
	}
	return p
}

// parents returns the parent of each node: the first node of its group that owns it, else the
// first that names it. Owner cycles are cut: no node is its own ancestor.
func parents(d *Drawing) map[*node]*node {
	parent := map[*node]*node{}
	for _, owner := range []bool{true, false} {
		for _, e := range d.edges {
			if e.owner != owner || e.from.group != e.to.group || parent[e.to] != nil {
				continue
			}
			above := e.from
			for above != nil && above != e.to {
				above = parent[above]
			}
			if above == nil {
				parent[e.to] = e.from
			}
		}
	}
	return parent
}

// placeGroup places the nodes of a group whose top left corner is at x and y. It returns the
// rectangle of the group.
func (p *layout) placeGroup(g *group, x, y float64) rect {
	children := map[*node][]*node{}
	for _, n := range g.nodes {
		if parent := p.parents[n]; parent != nil {
			children[parent] = append(children[parent], n)
		}
	}
	width, height := 0.0, 0.0
	for _, n := range g.nodes {
		w, h := boxSize(n)
		width, height = max(width, w), max(height, h)
	}
	at := func(column, row int) rect {
		return rect{x + pad + float64(column)*(width+columnGap),
			y + titleSpace + float64(row)*(height+rowGap), width, height}
	}
	rows, columns := 0, 0
	var placeTree func(n *node, column int)
	placeTree = func(n *node, column int) {
		p.nodes[n] = at(column, rows)
		columns = max(columns, column+1)
		for i, m := range children[n] {
			if i > 0 {
				rows++
			}
			placeTree(m, column+1)
		}
	}
	var alone []*node
	for _, n := range g.nodes {
		switch {
		case p.parents[n] != nil:
		case children[n] == nil:
			alone = append(alone, n)
		default:
			placeTree(n, 0)
			rows++
		}
	}
	for i, n := range alone {
		p.nodes[n] = at(i%gridWidth, rows+i/gridWidth)
		columns = max(columns, i%gridWidth+1)
	}
	rows += (len(alone) + gridWidth - 1) / gridWidth
	r := rect{x, y, float64(columns)*(width+columnGap) - columnGap + 2*pad,
		titleSpace + float64(rows)*(height+rowGap)}
	r.w = max(r.w, float64(utf8.RuneCountInString(shorten(g.title)))*charWidth+2*pad)
	p.groups[g] = r
	return r
}

func boxSize(n *node) (w, h float64) {
	for _, line := range n.lines {
		w = max(w, float64(utf8.RuneCountInString(shorten(line)))*charWidth)
	}
	return w + 2*pad, float64(len(n.lines))*lineHeight + pad
}

func shorten(s string) string {
	if r := []rune(s); len(r) > maxLetters {
		return string(r[:maxLetters-1]) + "…"
	}
	return s
}

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0[1]f %.0[2]f" width="%.0[1]f" height="%.0[2]f" font-family="monospace" font-size="%[3]d">
<style>
.group{fill:#f4f6f8;stroke:#c3ccd5}.title{font-weight:bold;fill:#334455}.object,.folded{fill:#fff;stroke:#445566}.folded{stroke-width:2}
.outside{fill:#fff;stroke:#999;stroke-dasharray:4}.missing{fill:#fff5f5;stroke:#c00;stroke-dasharray:4}.kind{fill:#667788}
path{fill:none;stroke:#445566}path.names{stroke:#99a;stroke-dasharray:4}path.lacks{stroke:#c00;stroke-dasharray:4}
</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8" style="stroke-dasharray:none"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
`

// SVG returns the drawing as an SVG document. Arrows between distant boxes are drawn first, so
// that they never hide a name.
func (d *Drawing) SVG() []byte {
	w, p := &bytes.Buffer{}, place(d)
	fmt.Fprintf(w, svgHead, p.all.w, p.all.h, fontSize)
	for _, g := range d.groups {
		r := p.groups[g]
		fmt.Fprintf(w, `<rect class="group" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="6"/>`+"\n",
			r.x, r.y, r.w, r.h)
		writeText(w, "title", r.x+pad, r.y+16, g.title)
	}
	tree, other := slices.Clone(d.edges), []edge{}
	tree = slices.DeleteFunc(tree, func(e edge) bool {
		child := p.parents[e.to] == e.from
		if !child {
			other = append(other, e)
		}
		return !child
	})
	for _, e := range other {
		p.writeArrow(w, e, curve(p.nodes[e.from], p.nodes[e.to]))
	}
	classes := map[role]string{single: "object", folded: "folded", outside: "outside",
		absent: "missing"}
	for _, g := range d.groups {
		for _, n := range g.nodes {
			r := p.nodes[n]
			fmt.Fprintf(w, `<g><title>%s</title><rect class="%s" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3"/>`, xmlText(n.title), classes[n.role], r.x, r.y, r.w, r.h)
			for i, line := range n.lines {
				class := "name"
				if (i == 0) != (n.role == folded) {
					class = "kind"
				}
				writeText(w, class, r.x+pad, r.y+lineHeight*float64(i+1), line)
			}
			fmt.Fprintln(w, "</g>")
		}
	}
	for _, e := range tree {
		p.writeArrow(w, e, elbow(p.nodes[e.from], p.nodes[e.to]))
	}
	fmt.Fprintln(w, "</svg>")
	return w.Bytes()
}

func writeText(w *bytes.Buffer, class string, x, y float64, text string) {
	fmt.Fprintf(w, `<text class="%s" x="%.0f" y="%.0f">%s</text>`, class, x, y, xmlText(shorten(text)))
}

func xmlText(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writes to a buffer
	return b.String()
}

func (p *layout) writeArrow(w *bytes.Buffer, e edge, path string) {
	class := "owns"
	switch {
	case e.missing():
		class = "lacks"
	case !e.owner:
		class = "names"
	}
	fmt.Fprintf(w, `<path class="%s" d="%s" marker-end="url(#end)"/>`+"\n", class, path)
}

// elbow returns the path from a box to a child, through the gap between their columns.
func elbow(from, to rect) string {
	y1, y2 := from.y+from.h/2, to.y+to.h/2
	return fmt.Sprintf("M%.0f %.0fH%.0fV%.0fH%.0f", from.x+from.w, y1, to.x-columnGap/2, y2, to.x)
}

// curve returns the path from a box to one that is not its child. It ends below the middle of the
// boxes, where the arrows between parents and children do not end.
func curve(from, to rect) string {
	x1, x2 := from.x+from.w, to.x
	y1, y2 := from.y+from.h*3/4, to.y+to.h*3/4
	bend1, bend2 := asideGap/2, -asideGap/2
	switch {
	case to.x+to.w < from.x: // on the left
		x1, x2, bend1, bend2 = from.x, to.x+to.w, bend2, bend1
	case to.x < from.x+from.w: // above or below
		x2, bend1, bend2 = to.x+to.w, columnGap*3/4, columnGap*3/4
	}
	sag := 0.0
	if y1 == y2 {
		sag = from.h
	}
	return fmt.Sprintf("M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f", x1, y1, x1+bend1, y1+sag, x2+bend2,
		y2+sag, x2, y2)
}
