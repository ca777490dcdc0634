package modify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the largest document in bytes: that of a ConfigMap, in which Velero has it.
const MaxSize = 1 << 20

// Document is a valid document of resource modifiers. nil is one without rules.
type Document struct {
	text  documentText
	rules []rule
}

// The document as it is written.
type (
	documentText struct {
		Version string     `json:"version" yaml:"version"`
		Rules   []ruleText `json:"resourceModifierRules" yaml:"resourceModifierRules"`
	}
	ruleText struct {
		Conditions conditionsText `json:"conditions" yaml:"conditions"`
		Patches    []patchText    `json:"patches,omitempty" yaml:"patches"`
		Merge      []mergeText    `json:"mergePatches,omitempty" yaml:"mergePatches"`
		Strategic  []mergeText    `json:"-" yaml:"strategicPatches"`
	}
	conditionsText struct {
		GroupResource string        `json:"groupResource" yaml:"groupResource"`
		NameRegex     string        `json:"resourceNameRegex,omitempty" yaml:"resourceNameRegex"`
		Namespaces    []string      `json:"namespaces,omitempty" yaml:"namespaces"`
		Labels        *selectorText `json:"labelSelector,omitempty" yaml:"labelSelector"`
		Matches       []matchText   `json:"matches,omitempty" yaml:"matches"`
	}
	selectorText struct {
		MatchLabels      map[string]string `json:"matchLabels,omitempty" yaml:"matchLabels"`
		MatchExpressions []expressionText  `json:"matchExpressions,omitempty" yaml:"matchExpressions"`
	}
	expressionText struct {
		Key      string   `json:"key" yaml:"key"`
		Operator string   `json:"operator" yaml:"operator"`
		Values   []string `json:"values,omitempty" yaml:"values"`
	}
	matchText struct {
		Path  string `json:"path" yaml:"path"`
		Value string `json:"value,omitempty" yaml:"value"`
	}
	patchText struct {
		Operation string `json:"operation" yaml:"operation"`
		From      string `json:"from,omitempty" yaml:"from"`
		Path      string `json:"path" yaml:"path"`
		Value     string `json:"value,omitempty" yaml:"value"`
	}
	mergeText struct {
		Data string `json:"patchData" yaml:"patchData"`
	}
)

// Problem is what is wrong with a document. Its text holds no value of the document.
type Problem struct {
	Line int // in the file, from 1; 0 when it is about no single line
	Rule int // from 1; 0 when it is about no single rule
	Text string
}

func (p Problem) String() string {
	var where []string
	if p.Line > 0 {
		where = append(where, fmt.Sprintf("line %d", p.Line))
	}
	if p.Rule > 0 {
		where = append(where, fmt.Sprintf("rule %d", p.Rule))
	}
	if len(where) == 0 {
		return p.Text
	}
	return strings.Join(where, ", ") + ": " + p.Text
}

// ParseError has all problems of a document.
type ParseError struct{ Problems []Problem }

func (e *ParseError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return "read resource modifiers: " + strings.Join(texts, "; ")
}

// Hint says what to do next.
func (e *ParseError) Hint() string {
	return "correct the document; its format is that of Velero's resource modifiers, version v1"
}

// Parse reads a document, either as it is or inside of a ConfigMap. Empty text is no document: nil.
// It returns a *ParseError.
func Parse(text []byte) (*Document, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if len(text) > MaxSize {
		return nil, &ParseError{[]Problem{{Text: fmt.Sprintf("it has %d bytes, more than the %d of a "+
			"ConfigMap", len(text), MaxSize)}}}
	}
	root, err := only(text)
	if err != nil {
		return nil, err
	}
	above := 0 // lines of the file above the document
	if kind := field(root, "kind"); kind != nil && kind.Value == "ConfigMap" {
		if text, above, err = inConfigMap(root); err != nil {
			return nil, err
		}
		if root, err = only(text); err != nil {
			return nil, moved(err, above)
		}
	}
	d := &Document{}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&d.text); err != nil {
		return nil, moved(problemsOf(err), above)
	}
	return d, d.compile(root, above)
}

// only returns the root of the one document in text, which is a mapping.
func only(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var node, second yaml.Node
	if err := dec.Decode(&node); errors.Is(err, io.EOF) {
		return nil, &ParseError{[]Problem{{Text: "it is empty"}}}
	} else if err != nil {
		return nil, problemsOf(err)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, &ParseError{[]Problem{{Line: second.Line, Text: "a second document begins: " +
			"give one alone"}}}
	} else if !errors.Is(err, io.EOF) {
		return nil, problemsOf(err)
	}
	if len(node.Content) != 1 || node.Content[0].Kind != yaml.MappingNode {
		return nil, &ParseError{[]Problem{{Line: node.Line, Text: "it is not a mapping: begin it with " +
			"version and resourceModifierRules"}}}
	}
	return node.Content[0], nil
}

// field returns the value of a key of a mapping; nil when there is none.
func field(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// inConfigMap returns the document in the one key of a ConfigMap, and how many lines are above it.
func inConfigMap(root *yaml.Node) (text []byte, above int, err error) {
	data := field(root, "data")
	if data == nil || data.Kind != yaml.MappingNode || len(data.Content) != 2 ||
		data.Content[1].Kind != yaml.ScalarNode {
		return nil, 0, &ParseError{[]Problem{{Line: root.Line, Text: "the data of the ConfigMap must " +
			"have one key alone, with the document as text"}}}
	}
	value := data.Content[1]
	if value.Style == yaml.LiteralStyle {
		return []byte(value.Value), value.Line, nil
	}
	return []byte(value.Value), value.Line - 1, nil
}

// moved adds to the lines of a *ParseError.
func moved(err error, above int) error {
	if e, ok := errors.AsType[*ParseError](err); ok {
		for i := range e.Problems {
			if e.Problems[i].Line > 0 {
				e.Problems[i].Line += above
			}
		}
	}
	return err
}

var (
	lineOf       = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	unknownField = regexp.MustCompile(`^field (\S+) not found in type`)
	wrongType    = regexp.MustCompile(`(?s)^cannot unmarshal (!!\w+)\b.*into (\S+)$`)
	keyTwice     = regexp.MustCompile(`^mapping key .* already defined at (line \d+)$`)
)

// problemsOf makes a *ParseError of an error of the YAML library without the parts of its text that
// may be values: it cites what it cannot read.
func problemsOf(err error) error {
	texts := []string{err.Error()}
	if typed, ok := errors.AsType[*yaml.TypeError](err); ok {
		texts = typed.Errors
	}
	e := &ParseError{}
	for _, text := range texts {
		p := Problem{Text: "it is not YAML: check the indentation, and quote values that begin with * " +
			"& ! % @ or `"}
		if m := lineOf.FindStringSubmatch(text); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			text = text[len(m[0]):]
		}
		if m := unknownField.FindStringSubmatch(text); m != nil {
			p.Text = "the field " + m[1] + " is not known: correct the typing error, or remove it"
		} else if m := wrongType.FindStringSubmatch(text); m != nil {
			p.Text = fmt.Sprintf("got %s, want %s", yamlType(m[1]), goType(m[2]))
		} else if m := keyTwice.FindStringSubmatch(text); m != nil {
			p.Text = "this key is there twice, first in " + m[1]
		}
		e.Problems = append(e.Problems, p)
	}
	return e
}

func yamlType(tag string) string {
	switch tag {
	case "!!map":
		return "a mapping"
	case "!!seq":
		return "a list"
	}
	return "a text"
}

func goType(name string) string {
	switch {
	case strings.HasPrefix(name, "[]"):
		return "a list"
	case name == "string":
		return "a text: quote it, or write objects and lists as JSON in quotes"
	}
	return "a mapping"
}
