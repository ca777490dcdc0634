package modify

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kyaml "sigs.k8s.io/yaml"
)

// rule is a rule that is ready to be used.
type rule struct {
	number, line int // from 1
	resource     string
	name         *regexp.Regexp
	namespaces   []string
	labels       labels.Selector
	matches      jsonpatch.Patch // tests, all of which have to pass
	patch        jsonpatch.Patch
	merges       [][]byte
}

// compile makes the rules. It returns a *ParseError with all problems.
func (d *Document) compile(root *yaml.Node, above int) error {
	e := &ParseError{}
	if !strings.EqualFold(d.text.Version, "v1") {
		e.Problems = append(e.Problems, Problem{Line: root.Line + above,
			Text: "version must be v1"})
	}
	if len(d.text.Rules) == 0 {
		e.Problems = append(e.Problems, Problem{Line: root.Line + above,
			Text: "resourceModifierRules has no rule"})
	}
	list := field(root, "resourceModifierRules")
	for i, text := range d.text.Rules {
		r := rule{number: i + 1}
		if list != nil && i < len(list.Content) {
			r.line = list.Content[i].Line + above
		}
		for _, problem := range slices.Concat(r.conditions(text.Conditions), r.patches(text)) {
			e.Problems = append(e.Problems, Problem{Line: r.line, Rule: r.number, Text: problem})
		}
		d.rules = append(d.rules, r)
	}
	if len(e.Problems) > 0 {
		return e
	}
	return nil
}

func (r *rule) conditions(c conditionsText) (problems []string) {
	r.resource = asPath(c.GroupResource)
	if c.GroupResource == "" {
		problems = append(problems, "conditions.groupResource is missing: write secrets, or "+
			"awsclusters.infrastructure.cluster.x-k8s.io")
	} else if !isPattern(r.resource) {
		problems = append(problems, "conditions.groupResource is no pattern: it may have * and ? "+
			"within a word between dots, and [...]")
	}
	var err error
	if r.name, err = regexp.Compile(c.NameRegex); err != nil {
		problems = append(problems, "conditions.resourceNameRegex is no regular expression")
	}
	r.namespaces = c.Namespaces
	for _, namespace := range c.Namespaces {
		if namespace == "" || !isPattern(namespace) {
			problems = append(problems, "conditions.namespaces has an element that names none")
		}
	}
	if r.labels, err = c.Labels.selector(); err != nil {
		problems = append(problems, "conditions.labelSelector is no selector: it has matchLabels, and "+
			"matchExpressions with key, operator (In, NotIn, Exists, DoesNotExist) and values")
	}
	tests := make([]patchText, 0, len(c.Matches))
	for _, m := range c.Matches {
		tests = append(tests, patchText{Operation: "test", Path: m.Path, Value: m.Value})
	}
	var wrong []string
	r.matches, wrong = jsonPatch("conditions.matches", tests)
	return append(problems, wrong...)
}

func (r *rule) patches(text ruleText) (problems []string) {
	kinds := 0
	for _, n := range []int{len(text.Patches), len(text.Merge), len(text.Strategic)} {
		if n > 0 {
			kinds++
		}
	}
	switch {
	case len(text.Strategic) > 0:
		return []string{"strategicPatches are not supported: custom resources have no merge keys; " +
			"write mergePatches, which replace a list as a whole, or patches"}
	case kinds != 1:
		return []string{"it needs either patches or mergePatches"}
	}
	r.patch, problems = jsonPatch("patches", text.Patches)
	for i, m := range text.Merge {
		patch, err := kyaml.YAMLToJSON([]byte(m.Data))
		if err != nil || !strings.HasPrefix(string(patch), "{") {
			problems = append(problems, fmt.Sprintf("mergePatches[%d].patchData is no YAML or JSON of a "+
				"mapping", i))
			continue
		}
		r.merges = append(r.merges, patch)
	}
	return problems
}

// operations are those of a JSON patch (RFC 6902).
var operations = []string{"add", "remove", "replace", "test", "move", "copy"}

// jsonPatch makes a JSON patch. The texts of the library's errors may hold values.
func jsonPatch(where string, list []patchText) (patch jsonpatch.Patch, problems []string) {
	ops := make([]map[string]any, 0, len(list))
	for i, p := range list {
		about := func(text string) {
			problems = append(problems, fmt.Sprintf("%s[%d].%s", where, i, text))
		}
		operation := strings.ToLower(p.Operation)
		if !slices.Contains(operations, operation) {
			about("operation must be one of " + strings.Join(operations, ", "))
		}
		op := map[string]any{"op": operation, "path": p.Path}
		if !strings.HasPrefix(p.Path, "/") {
			about("path must begin with / and name a field: /spec/region")
		}
		switch operation {
		case "move", "copy":
			op["from"] = p.From
			if !strings.HasPrefix(p.From, "/") {
				about("from must begin with / and name a field")
			}
		case "add", "replace", "test":
			value, ok := valueOf(p.Value)
			if !ok {
				about("value is no JSON; to have it as a text, write it in quotes inside of quotes")
			}
			op["value"] = value
		}
		ops = append(ops, op)
	}
	if len(problems) > 0 || len(list) == 0 {
		return nil, problems
	}
	text, err := json.Marshal(ops)
	if err == nil {
		patch, err = jsonpatch.DecodePatch(text)
	}
	if err != nil {
		problems = append(problems, where+" is no JSON patch")
	}
	return patch, problems
}

// valueOf returns the JSON that a value means in Velero, where values are texts: objects, lists,
// numbers, booleans and null are what they look like, and anything else is a text. Quotes inside of
// the value make it a text, too.
func valueOf(s string) (json.RawMessage, bool) {
	quoted := len(s) >= 2 && strings.HasPrefix(s, `"`) && strings.HasSuffix(s, `"`)
	switch lower := strings.ToLower(s); {
	case lower == "true", lower == "false":
		return json.RawMessage(lower), true
	case strings.HasPrefix(s, "{"), strings.HasPrefix(s, "["):
		return json.RawMessage(s), json.Valid([]byte(s))
	case json.Valid([]byte(s)): // a number, null, or a text in quotes
		return json.RawMessage(s), true
	case quoted:
		s = s[1 : len(s)-1]
	}
	text, err := json.Marshal(s)
	return text, err == nil
}

// asPath makes * stand for what is between two dots, as in Velero.
func asPath(groupResource string) string { return strings.ReplaceAll(groupResource, ".", "/") }

func isPattern(s string) bool {
	_, err := path.Match(s, "")
	return err == nil && !strings.ContainsAny(s, "{}!") && !strings.Contains(s, "**")
}

func (s *selectorText) selector() (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	l := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		l.MatchExpressions = append(l.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key,
			Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values})
	}
	return metav1.LabelSelectorAsSelector(&l)
}
