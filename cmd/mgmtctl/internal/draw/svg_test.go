package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/mgmtd/mgmtd/cmd/mgmtctl/internal/draw/drawtest"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestBoxesDoNotOverlapAndStayInTheirGroups also checks that groups do not overlap, and that all of
// them are within the picture.
func TestBoxesDoNotOverlapAndStayInTheirGroups(t *testing.T) {
	loop := drawtest.Graph()
	// they own each other
	loop[4].Edges = append(loop[4].Edges, drawtest.Owned(&mgmtv1.Ref{
		Group: "cluster.x-k8s.io", Kind: "Machine", Namespace: "team-a", Name: "web-0"}))
	for name, d := range map[string]*Drawing{"graph": New(drawtest.Graph(), false),
		"loop": New(loop, false), "fleet": New(drawtest.Fleet(9), false),
		"folded": New(drawtest.Fleet(70),
			true)} {
		p := place(d)
		var nodes []*node
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
				if overlap(p.nodes[n], p.nodes[m]) {
					t.Errorf("%s: %q overlaps %q", name, n.lines, m.lines)
				}
			}
		}
		for i, r := range groups {
			for _, q := range groups[:i] {
				if overlap(r, q) {
					t.Errorf("%s: groups %v and %v overlap", name, q, r)
				}
			}
		}
		first := d.SVG()
		wellFormed(t, first)
		if !bytes.Equal(first, d.SVG()) {
			t.Errorf("%s: the second drawing differs", name)
		}
	}
}

func inside(r, of rect) bool {
	return r.w > 0 && r.h > 0 && r.x >= of.x && r.y >= of.y && r.x+r.w <= of.x+of.w &&
		r.y+r.h <= of.y+of.h
}

func overlap(a, b rect) bool {
	return a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h &&
		b.y < a.y+a.h
}

// wellFormed reads an XML document to its end.
func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
