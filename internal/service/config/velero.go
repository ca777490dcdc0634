package config

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// rule says what becomes of a field of a Velero document that is set.
type rule int

const (
	// honoured: the code reads it.
	honoured rule = iota
	// ignored: it says nothing about what is to be done; an API server or a tool wrote it.
	ignored
	// falseOnly: false says what happens anyway.
	falseOnly
)

// metadata that documents of both kinds may have.
var metadataRules = map[string]rule{
	"apiVersion": honoured, "kind": honoured, "metadata.name": honoured,
	"metadata.annotations": honoured,
	"metadata.namespace":   ignored, "metadata.labels": ignored, "metadata.uid": ignored,
	"metadata.resourceVersion": ignored, "metadata.generation": ignored,
	"metadata.creationTimestamp": ignored, "metadata.managedFields": ignored,
	"metadata.selfLink": ignored, "status": ignored,
}

// checkSet reports every field that is set, known, and not in the rules: so a field that a newer
// Velero brings cannot slip through. A rule holds for all that is below its path. hints say what
// to do instead; without one, the hint is to remove the field.
func (d *document) checkSet(rules map[string]rule, hints map[string]string) {
	paths := d.setPaths("", d.fields)
	sort.Strings(paths)
	for _, path := range paths {
		r, ok := ruleOf(path, rules)
		if !ok {
			r, ok = ruleOf(path, metadataRules)
		}
		if ok && (r != falseOnly || d.at(path) == false) {
			continue
		}
		if !d.known(path) {
			continue // decode reported it
		}
		text, hint := "not honoured", "remove it: it would have no effect"
		for prefix, h := range hints {
			if within(path, prefix) {
				hint = h
			}
		}
		d.problem(path, text, hint)
	}
}

// known reports whether decode had nothing to say about the field.
func (d *document) known(path string) bool {
	return !slices.ContainsFunc(d.r.problems, func(p Problem) bool {
		return p.Document == d.title() && p.Field != "" && within(path, p.Field) &&
			d.lines[p.Field] == p.Line
	})
}

func ruleOf(path string, rules map[string]rule) (rule, bool) {
	for prefix, r := range rules {
		if within(path, prefix) {
			return r, true
		}
	}
	return 0, false
}

// within reports whether path is prefix or below it.
func within(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// setPaths lists the paths of all scalars and empty mappings that are set, lists by their own path.
func (d *document) setPaths(path string, value any) []string {
	if isZero(value) {
		return nil
	}
	m, ok := value.(map[string]any)
	if !ok {
		return []string{path}
	}
	var paths []string
	for key, v := range m {
		paths = append(paths, d.setPaths(join(path, key), v)...)
	}
	return paths
}

// at returns the value at a path of mappings.
func (d *document) at(path string) any {
	var value any = d.fields
	for key := range strings.SplitSeq(path, ".") {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// isZero reports whether a value says no more than its absence would. False is said on purpose
// where true is the default, so it is none.
func isZero(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0s"
	case int:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, inner := range v {
			if !isZero(inner) {
				return false
			}
		}
		return true
	}
	return false
}

// readName checks the name of a document and that it is the only one of its kind.
func (d *document) readName(seen map[string]bool) {
	switch {
	case d.name == "":
		d.problem("metadata.name", "missing", "give it a name")
	case !name.MatchString(d.name):
		d.problem("metadata.name", fmt.Sprintf("%q is not a name", d.name), hintName)
	case seen[d.name]:
		d.problem("metadata.name", "another "+d.kind+" has this name, too", "rename one")
	}
	seen[d.name] = true
}

// checkAnnotations reports annotations of ours that this kind does not have.
func (d *document) checkAnnotations(annotations map[string]string, ours ...string) {
	var unknown []string
	for key := range annotations {
		if strings.HasPrefix(key, annotationPrefix) && !slices.Contains(ours, key) {
			unknown = append(unknown, key)
		}
	}
	sort.Strings(unknown)
	for _, key := range unknown {
		d.problem("metadata.annotations."+key, "this annotation is not known",
			"correct the typing error, or remove it")
	}
}

const annotationPrefix = "mgmtd.dev/"
