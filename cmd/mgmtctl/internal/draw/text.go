package main

import (
	"bytes"
	"fmt"
	"strings"
)

// writeDot writes a drawing for Graphviz.
func writeDot(w *bytes.Buffer, d *drawing) {
	fmt.Fprintln(w, "digraph snapshot {\n  rankdir=LR;\n  node [shape=box, fontname=\"Helvetica\", "+
		"fontsize=10];\n  edge [color=\"#445566\"];")
	looks := map[look]string{
		lookFolded: ", style=bold", lookOutside: ", style=dashed, color=\"#888888\", " +
			"fontcolor=\"#888888\"", lookMissing: ", style=dashed, color=red, fontcolor=red",
	}
	for i, g := range d.groups {
		fmt.Fprintf(w, "  subgraph cluster_%d {\n    label=%s;\n", i+1, dotText(g.title))
		for _, n := range g.nodes {
			fmt.Fprintf(w, "    n%d [label=%s, tooltip=%s%s];\n", n.id, dotText(n.lines...),
				dotText(n.title), looks[n.look])
		}
		fmt.Fprintln(w, "  }")
	}
	for _, e := range d.edges {
		style := ""
		switch {
		case e.missing():
			style = " [style=dashed, color=red]"
		case !e.owner:
			style = " [style=dashed, color=\"#888888\"]"
		}
		fmt.Fprintf(w, "  n%d -> n%d%s;\n", e.from.id, e.to.id, style)
	}
	fmt.Fprintln(w, "}")
}

var dotEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `&`, `&amp;`)

// dotText is lines as one text of Graphviz, in which a backslash begins an escape and an ampersand
// an entity.
func dotText(lines ...string) string {
	escaped := make([]string, len(lines))
	for i, line := range lines {
		escaped[i] = dotEscape.Replace(line)
	}
	return `"` + strings.Join(escaped, `\n`) + `"`
}

// writeMermaid writes a drawing for Mermaid.
func writeMermaid(w *bytes.Buffer, d *drawing) {
	fmt.Fprintln(w, "flowchart LR")
	classes := map[look]string{lookFolded: "folded", lookOutside: "outside", lookMissing: "missing"}
	for i, g := range d.groups {
		fmt.Fprintf(w, "  subgraph g%d[%s]\n", i+1, mermaidText(g.title))
		for _, n := range g.nodes {
			class := ""
			if classes[n.look] != "" {
				class = ":::" + classes[n.look]
			}
			fmt.Fprintf(w, "    n%d[%s]%s\n", n.id, mermaidText(n.lines...), class)
		}
		fmt.Fprintln(w, "  end")
	}
	var missing []string
	for i, e := range d.edges {
		arrow := "-.->"
		if e.owner {
			arrow = "-->"
		}
		if e.missing() {
			missing = append(missing, fmt.Sprint(i))
		}
		fmt.Fprintf(w, "  n%d %s n%d\n", e.from.id, arrow, e.to.id)
	}
	fmt.Fprintln(w, "  classDef folded stroke-width:2px\n  classDef outside "+
		"stroke:#888,color:#888,stroke-dasharray:4\n  classDef missing "+
		"stroke:#c00,color:#c00,stroke-dasharray:4")
	if len(missing) > 0 {
		fmt.Fprintf(w, "  linkStyle %s stroke:#c00,stroke-dasharray:4\n", strings.Join(missing, ","))
	}
}

// mermaidText is lines as one text of Mermaid. It reads Markdown and HTML in it and has no escape
// but numbers: all that could mean something becomes one.
func mermaidText(lines ...string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, line := range lines {
		if i > 0 {
			b.WriteString("<br/>")
		}
		for _, r := range line {
			if r < 128 && !strings.ContainsRune(
				" ./:,-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", r) {
				fmt.Fprintf(&b, "#%d;", r)
				continue
			}
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
