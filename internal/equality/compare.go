package equality

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
)

// Comparison says how an object deviates from what it should be. Its paths hold no values, since
// these may be those of Secrets.
type Comparison struct {
	// Lost are the paths of values that are gone or have changed, leaf by leaf.
	Lost []string
	// Added are the paths of what is there besides: defaulted fields, labels, annotations,
	// finalizers, owners, conditions.
	Added []string
}

// Compare compares got with want by the rule "good enough to release". It is weaker than
// Differences: what got has besides is not lost, and neither is an empty value that got leaves
// out. A list of scalars under metadata and a list of owners may have more elements, a condition
// may be new; any other list has to have the same elements. What Differences ignores is ignored
// here, too, and so are managedFields, whatever the aspect. Both lists of paths are sorted.
func Compare(rows *capi.Table, want, got map[string]any, aspect Aspect) Comparison {
	if aspect == All {
		aspect = Values
	}
	var c Comparison
	c.fields(Normal(rows, want, aspect), Normal(rows, got, aspect), "")
	slices.Sort(c.Lost)
	slices.Sort(c.Added)
	return c
}

func (c *Comparison) fields(want, got map[string]any, path string) {
	for k, v := range want {
		have, ok := got[k]
		switch {
		case ok:
			c.value(v, have, join(path, k))
		default:
			c.lost(v, join(path, k))
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok && !holdsNothing(v) {
			c.Added = append(c.Added, join(path, k))
		}
	}
}

// lost adds the leaves of a value that is gone: a conversion may drop some of them and not others.
func (c *Comparison) lost(want any, path string) {
	m, isMap := want.(map[string]any)
	for k, v := range m {
		c.lost(v, join(path, k))
	}
	if !isMap && !isEmpty(want) {
		c.Lost = append(c.Lost, path)
	}
}

func (c *Comparison) value(want, got any, path string) {
	if wm, ok := want.(map[string]any); ok {
		if gm, ok := got.(map[string]any); ok {
			c.fields(wm, gm, path)
			return
		}
	}
	if wl, ok := want.([]any); ok {
		if gl, ok := got.([]any); ok {
			c.list(wl, gl, path)
			return
		}
	}
	if reflect.DeepEqual(want, got) || sameNumber(want, got) || isEmpty(want) && isEmpty(got) {
		return
	}
	if isEmpty(want) && isCollection(want) {
		c.Added = append(c.Added, path)
		return
	}
	c.Lost = append(c.Lost, path)
}

func (c *Comparison) list(want, got []any, path string) {
	if path == "metadata.finalizers" || path == "metadata.ownerReferences" {
		c.set(want, got, path)
		return
	}
	if len(want) != len(got) {
		c.Lost = append(c.Lost, path)
		return
	}
	for i := range want {
		c.value(want[i], got[i], fmt.Sprintf("%s[%d]", path, i))
	}
}

// set compares two lists whose order means nothing.
func (c *Comparison) set(want, got []any, path string) {
	in := func(list []any, element any) bool {
		return slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, element) })
	}
	for i, element := range want {
		if !in(got, element) {
			c.Lost = append(c.Lost, fmt.Sprintf("%s[%d]", path, i))
		}
	}
	for i, element := range got {
		if !in(want, element) {
			c.Added = append(c.Added, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// isEmpty reports whether v is null, or a collection without elements: API servers leave such
// values out, or add them.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// holdsNothing reports whether v is empty, or holds empty values only: a conversion adds those of
// structs that are never left out.
func holdsNothing(v any) bool {
	m, isMap := v.(map[string]any)
	for _, value := range m {
		if !holdsNothing(value) {
			return false
		}
	}
	return isMap || isEmpty(v)
}

func isCollection(v any) bool {
	switch v.(type) {
	case map[string]any, []any, nil:
		return true
	}
	return false
}
