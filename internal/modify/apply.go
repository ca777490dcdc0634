package modify

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/labels"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// Rule names a rule of a document.
type Rule struct {
	Number int // from 1
	Line   int // of the file
}

func (r Rule) String() string { return fmt.Sprintf("rule %d (line %d)", r.Number, r.Line) }

// Result is an object after its modification.
type Result struct {
	Object map[string]any
	Rules  []Rule   // that matched it
	Paths  []string // of the values that changed, sorted; never the values
}

// RuleError says why a rule cannot be applied to an object. Its text holds no values.
type RuleError struct {
	Rule Rule
	Why  string
}

func (e *RuleError) Error() string { return e.Rule.String() + ": " + e.Why }

// Rules returns the rules of the document.
func (d *Document) Rules() []Rule {
	if d == nil {
		return nil
	}
	rules := make([]Rule, len(d.rules))
	for i, r := range d.rules {
		rules[i] = Rule{r.number, r.line}
	}
	return rules
}

// MayMatch reports whether a rule may match an object of a resource ("secrets",
// "awsclusters.infrastructure.cluster.x-k8s.io") by its namespace and name alone.
func (d *Document) MayMatch(resource, namespace, name string) bool {
	return d != nil && slices.ContainsFunc(d.rules, func(r rule) bool {
		return r.names(resource, namespace, name)
	})
}

// Apply returns an object as the rules that match it change it. All conditions are those of the
// object as it was, and the patches are applied in the order of the rules. obj stays as it is. A
// rule that cannot be applied, or would change what none may change, is a *RuleError.
func (d *Document) Apply(resource string, obj map[string]any) (Result, error) {
	result := Result{Object: obj}
	if d == nil {
		return result, nil
	}
	was, err := json.Marshal(obj)
	if err != nil {
		return result, fmt.Errorf("encode object: %w", err)
	}
	// What was decoded in the same way as the results: 5.0 becomes 5.
	var original map[string]any
	if err := kjson.Unmarshal(was, &original); err != nil {
		return result, fmt.Errorf("decode object: %w", err)
	}
	text, before := was, original
	for i := range d.rules {
		r := &d.rules[i]
		matched, err := r.match(resource, obj, was)
		if err != nil {
			return result, err
		}
		if !matched {
			continue
		}
		after, changed, err := r.apply(resource, before, text)
		if err != nil {
			return result, err
		}
		if after == nil {
			continue // a test of its patches says that it is not meant
		}
		result.Rules = append(result.Rules, r.id())
		if len(changed) == 0 {
			continue
		}
		result.Object, before = after, after
		if text, err = json.Marshal(after); err != nil {
			return result, fmt.Errorf("encode object: %w", err)
		}
	}
	for _, c := range changes(original, before) {
		result.Paths = append(result.Paths, c.String())
	}
	slices.Sort(result.Paths)
	return result, nil
}

func (r *rule) id() Rule { return Rule{r.number, r.line} }

// names reports whether the conditions on resource, namespace and name are met. An object without a
// namespace meets any condition on namespaces, as in Velero.
func (r *rule) names(resource, namespace, name string) bool {
	is, err := path.Match(r.resource, asPath(resource))
	if err != nil || !is || !r.name.MatchString(name) {
		return false
	}
	return namespace == "" || len(r.namespaces) == 0 ||
		slices.ContainsFunc(r.namespaces, func(pattern string) bool {
			in, err := path.Match(pattern, namespace)
			return err == nil && in
		})
}

func (r *rule) match(resource string, obj map[string]any, text []byte) (bool, error) {
	meta, _ := obj["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	if !r.names(resource, namespace, name) || !r.labels.Matches(labelsOf(meta)) {
		return false, nil
	}
	if r.matches == nil {
		return true, nil
	}
	switch _, err := r.matches.Apply(text); {
	case err == nil:
		return true, nil
	case errors.Is(err, jsonpatch.ErrTestFailed), errors.Is(err, jsonpatch.ErrMissing):
		return false, nil
	}
	return false, &RuleError{r.id(), "a path of conditions.matches does not fit the object"}
}

func labelsOf(meta map[string]any) labels.Set {
	set := labels.Set{}
	values, _ := meta["labels"].(map[string]any)
	for k, v := range values {
		set[k], _ = v.(string)
	}
	return set
}

// apply returns what the rule makes of an object, and what it changes of it; nil when one of its
// tests fails.
func (r *rule) apply(resource string, before map[string]any, text []byte) (after map[string]any,
	changed []change, err error) {
	refused := func(why string) (map[string]any, []change, error) {
		return nil, nil, &RuleError{r.id(), why}
	}
	if r.patch != nil {
		text, err = r.patch.Apply(text)
		if errors.Is(err, jsonpatch.ErrTestFailed) {
			return nil, nil, nil
		}
	}
	for _, patch := range r.merges {
		if err == nil {
			text, err = jsonpatch.MergePatch(text, patch)
		}
	}
	switch {
	case errors.Is(err, jsonpatch.ErrMissing), errors.Is(err, jsonpatch.ErrInvalidIndex):
		return refused("a path of its patches is not in the object")
	case err != nil: // the text of the error may hold values
		return refused("its patches do not fit the object")
	}
	if err := kjson.Unmarshal(text, &after); err != nil || after == nil {
		return refused("its patches leave no object")
	}
	if resource == "secrets" {
		if why := storeText(after); why != "" {
			return refused(why)
		}
	}
	changed = changes(before, after)
	for _, c := range changed {
		if c.protected(resource) {
			return refused("it would change " + c.String() + ", which no rule may change")
		}
		if why := c.invalid(resource); why != "" {
			return refused(why)
		}
	}
	return after, changed, nil
}

// storeText moves stringData of a Secret into its data, as the API server does. It returns what is
// wrong with it.
func storeText(secret map[string]any) string {
	given, ok := secret["stringData"]
	if !ok {
		return ""
	}
	texts, ok := given.(map[string]any)
	if !ok {
		return "stringData is no mapping"
	}
	data, _ := secret["data"].(map[string]any)
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range texts {
		text, ok := value.(string)
		if !ok {
			return "stringData." + key + " is no text: quote it"
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	secret["data"] = data
	delete(secret, "stringData")
	return ""
}
