package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Change is a field of a file that has another value in a later version of the file.
type Change struct {
	// Document is the kind and the name of the document.
	Document string
	// Field is the path of the field. It is empty when only one version has the document.
	Field string
}

func (c Change) String() string {
	if c.Field == "" {
		return c.Document
	}
	return c.Document + ": " + c.Field
}

// Changes returns the fields that differ between the files of two configurations, sorted. A list is
// one field. Fields that mgmtd ignores do not count, and neither does the order of documents. It
// compares what the files say, so that a default that is written out is a change.
func (c *Config) Changes(next *Config) []Change {
	before, after := settings(c.documents), settings(next.documents)
	var changes []Change
	for title, fields := range before {
		others, ok := after[title]
		if !ok {
			changes = append(changes, Change{Document: title})
			continue
		}
		for _, path := range changed(fields, others) {
			changes = append(changes, Change{Document: title, Field: path})
		}
	}
	for title := range after {
		if _, ok := before[title]; !ok {
			changes = append(changes, Change{Document: title})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Document, b.Document), strings.Compare(a.Field, b.Field))
	})
	return changes
}

// changed returns the paths that have another value in one of two documents.
func changed(before, after map[string]any) []string {
	var paths []string
	for path, value := range before {
		if !reflect.DeepEqual(value, after[path]) {
			paths = append(paths, path)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// settings returns the fields of each document by the title of the document and the path.
func settings(documents []*document) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, d := range documents {
		fields := map[string]any{}
		flatten("", d.fields, fields)
		maps.DeleteFunc(fields, func(path string, _ any) bool {
			return within(path, "status") ||
				within(path, "metadata") && !strings.HasPrefix(path, "metadata.annotations."+annotationPrefix)
		})
		title := d.title()
		if d.kind == ownKind {
			title = ownKind // there is one, whatever its name is
		}
		all[title] = fields
	}
	return all
}

// flatten adds the scalars and lists below a value by their paths, except those that count as not
// set.
func flatten(path string, value any, into map[string]any) {
	if isZero(value) {
		return
	}
	m, ok := value.(map[string]any)
	if !ok {
		into[path] = value
		return
	}
	for key, inner := range m {
		flatten(join(path, key), inner, into)
	}
}
