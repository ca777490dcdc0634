package graph

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selector selects workload clusters by the labels of their Clusters. The zero value selects all.
// It is the one place that reads selectors: of snapshots, restores, moves and fences.
type Selector struct {
	requirements labels.Selector
	text         string
}

// ParseSelector reads the syntax of Kubernetes label selectors. The empty text selects all.
func ParseSelector(text string) (Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return Selector{}, err
	}
	return Selector{requirements: s, text: canonical(s)}, nil
}

// Everything reports whether s selects all workload clusters, also those without labels.
func (s Selector) Everything() bool { return s.text == "" }

// String is the canonical form, which ParseSelector reads. Selectors that differ in order,
// repetition or spelling only have one form: the scope of a snapshot is a digest of it.
func (s Selector) String() string { return s.text }

// Matches reports whether s selects a Cluster with these labels.
func (s Selector) Matches(set map[string]string) bool {
	return s.requirements == nil || s.requirements.Matches(labels.Set(set))
}

// selects reports whether s selects a Cluster of the graph.
func (s Selector) selects(cluster *Node) bool {
	set := make(map[string]string, len(cluster.Labels))
	for _, l := range cluster.Labels {
		k, v, _ := strings.Cut(l, "=")
		set[k] = v
	}
	return s.Matches(set)
}

// canonical sorts requirements and values, and writes "in" and "notin" with one value as "=" and
// "!=". The text of labels.Selector is in the order of the requirements where two are about one
// label, and has two forms for one value.
func canonical(s labels.Selector) string {
	requirements, _ := s.Requirements()
	texts := make([]string, len(requirements))
	for i, r := range requirements {
		values := slices.Sorted(slices.Values(r.ValuesUnsorted()))
		values = slices.Compact(values)
		list := " (" + strings.Join(values, ",") + ")"
		switch op := r.Operator(); {
		case op == selection.Exists:
			texts[i] = r.Key()
		case op == selection.DoesNotExist:
			texts[i] = "!" + r.Key()
		case op == selection.NotEquals, op == selection.NotIn && len(values) == 1:
			texts[i] = r.Key() + "!=" + values[0]
		case op == selection.In && len(values) > 1:
			texts[i] = r.Key() + " in" + list
		case op == selection.NotIn:
			texts[i] = r.Key() + " notin" + list
		case op == selection.GreaterThan:
			texts[i] = r.Key() + ">" + values[0]
		case op == selection.LessThan:
			texts[i] = r.Key() + "<" + values[0]
		default: // one value
			texts[i] = r.Key() + "=" + values[0]
		}
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}
