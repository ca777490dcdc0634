package draw

import (
	"bytes"
	"fmt"
	"strings"
)

// DOT returns the drawing for Graphviz.
func (d *Drawing) DOT() []byte {
	w := &bytes.Buffer{}
	fmt.Fprintln(w, "digraph snapshot {\n  rankdir=LR;\n  node [shape=box, fontname=\"Helvetica\", "+
		"fontsize=10];\n  edge [color=\"#445566\"];")
	styles := map[role]string{
		folded: ", style=bold", outside: ", style=dashed, color=\"#888888\", " +
			"fontcolor=\"#888888\"", absent: ", style=dashed, color=red, fontcolor=red",
	}
	for i, g := range d.groups {
		fmt.Fprintf(w, "  subgraph cluster_%d {\n    label=%s;\n", i+1, dotText(g.title))
		for _, n := range g.nodes {
			fmt.Fprintf(w, "    n%d [label=%s, tooltip=%s%s];\n", n.id, dotText(n.lines...),
				dotText(n.title), styles[n.role])
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
	return w.Bytes()
}

var dotEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `&`, `&amp;`)

// dotText quotes lines as one Graphviz string. In it a backslash begins an escape and an ampersand
// an entity.
func dotText(lines ...string) string {
	escaped := make([]string, len(lines))
	for i, line := range lines {
		escaped[i] = dotEscape.Replace(line)
	}
	return `"` + strings.Join(escaped, `\n`) + `"`
}

// Mermaid returns the drawing for Mermaid.
func (d *Drawing) Mermaid() []byte {
	w := &bytes.Buffer{}
	fmt.Fprintln(w, "flowchart LR")
	classes := map[role]string{folded: "folded", outside: "outside", absent: "missing"}
	for i, g := range d.groups {
		fmt.Fprintf(w, "  subgraph g%d[%s]\n", i+1, mermaidText(g.title))
		for _, n := range g.nodes {
			class := ""
			if classes[n.role] != "" {
				class = ":::" + classes[n.role]
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
	return w.Bytes()
}

// mermaidText quotes lines as one Mermaid string. Mermaid reads Markdown and HTML in strings, and
// its only escapes are numeric, so every character that could have a meaning becomes a number.
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
