package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

const (
	ownVersion    = "mgmtd.dev/v1alpha1"
	ownKind       = "Config"
	veleroVersion = "velero.io/v1"
	locationKind  = "BackupStorageLocation"
	scheduleKind  = "Schedule"
)

// document is one document of the file, with the line of each of its fields.
type document struct {
	r                      *reader
	apiVersion, kind, name string
	line                   int
	// fields is the document as plain maps, lists and scalars; lines gives the line of each path in
	// it.
	fields map[string]any
	lines  map[string]int
}

// split takes the file apart. What is no mapping is a problem and left out; an empty document is
// left out.
func (r *reader) split(text []byte) []*document {
	var list []*document
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			line, text := yamlError(err)
			r.add(Problem{Line: line, Text: "not YAML: " + text, Hint: "the rest was not checked"})
			return list
		}
		if d := r.document(&node); d != nil {
			list = append(list, d)
		}
	}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// yamlError takes the line out of the text of an error.
func yamlError(err error) (int, string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	m := yamlLine.FindStringSubmatch(text)
	if m == nil {
		return 0, text
	}
	line, _ := strconv.Atoi(m[1])
	return line, strings.TrimPrefix(text, m[0])
}

func (r *reader) document(node *yaml.Node) *document {
	if node.Kind != yaml.DocumentNode || len(node.Content) != 1 {
		return nil
	}
	root := node.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.add(Problem{Line: root.Line, Text: "a document is not a mapping",
			Hint: "begin it with apiVersion and kind"})
		return nil
	}
	d := &document{r: r, line: root.Line, lines: map[string]int{}}
	before := len(r.problems)
	value := d.walk("", root)
	if len(r.problems) > before {
		return nil
	}
	d.fields, _ = value.(map[string]any)
	d.apiVersion, _ = d.fields["apiVersion"].(string)
	d.kind, _ = d.fields["kind"].(string)
	if meta, ok := d.fields["metadata"].(map[string]any); ok {
		d.name, _ = meta["name"].(string)
	}
	return d
}

// walk turns nodes into plain values and notes the line of each path.
func (d *document) walk(path string, n *yaml.Node) any {
	d.lines[path] = n.Line
	switch n.Kind { //nolint:exhaustive // documents and aliases do not come here
	case yaml.MappingNode:
		values := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			field := join(path, key.Value)
			if _, twice := values[key.Value]; twice || key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
				d.r.add(Problem{Line: key.Line, Field: field, Text: "this key is there twice, or is " +
					"no plain word", Hint: "write each key once, as a word"})
				continue
			}
			values[key.Value] = d.walk(field, value)
			d.lines[field] = key.Line
		}
		return values
	case yaml.SequenceNode:
		values := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			values = append(values, d.walk(fmt.Sprintf("%s[%d]", path, i), item))
		}
		return values
	case yaml.ScalarNode:
		var value any
		if err := n.Decode(&value); err != nil || n.Tag == "!!timestamp" {
			value = n.Value
		}
		return value
	}
	d.r.add(Problem{Line: n.Line, Field: path, Text: "anchors and aliases are not read",
		Hint: "write the value out"})
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// title is how problems name the document.
func (d *document) title() string {
	if d.name == "" {
		return d.kind
	}
	return fmt.Sprintf("%s %q", d.kind, d.name)
}

// problem adds one about a field, or about the document when field is empty.
func (d *document) problem(field, text, hint string) { d.r.add(d.about(field, text, hint)) }

// warn adds a warning about a field.
func (d *document) warn(field, text, hint string) {
	d.r.warnings = append(d.r.warnings, d.about(field, text, hint))
}

func (d *document) about(field, text, hint string) Problem {
	line := d.line
	// A field that is not there has the line of the nearest one around it.
	for f := field; f != ""; f = f[:max(0, strings.LastIndexAny(f, ".["))] {
		if l, ok := d.lines[f]; ok {
			line = l
			break
		}
	}
	return Problem{Line: line, Document: d.title(), Field: field, Text: text, Hint: hint}
}

var unknownField = regexp.MustCompile(`^unknown field "(.+)"$`)

// decode fills into, and reports fields that are not known and values of another type. It returns
// whether into can be used.
func (d *document) decode(into any) bool {
	text, err := json.Marshal(d.fields)
	if err != nil {
		d.problem("", err.Error(), "")
		return false
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	for _, e := range strict {
		if m := unknownField.FindStringSubmatch(e.Error()); m != nil {
			d.problem(m[1], "this field is not known", "correct the typing error, or remove it")
			continue
		}
		d.problem("", e.Error(), "")
	}
	if err == nil {
		return true
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		d.problem(wrong.Field, fmt.Sprintf("got a %s, want %s", wrong.Value,
			typeName(wrong.Type.Kind().String())), "quote texts, do not quote numbers and booleans")
	} else {
		d.problem("", strings.TrimPrefix(err.Error(), "json: "), "")
	}
	return false
}

func typeName(kind string) string {
	switch kind {
	case "struct", "map", "ptr":
		return "a mapping"
	case "slice":
		return "a list"
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	}
	return "a number"
}
