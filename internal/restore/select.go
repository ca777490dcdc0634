package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// SelectionError says that a selection names something that the snapshot does not have.
type SelectionError struct{ Reason, Has string }

func (e *SelectionError) Error() string { return "select: " + e.Reason }

// Hint lists what there is.
func (e *SelectionError) Hint() string { return e.Has }

// selectNodes returns the nodes of a selection and all that they need, by ref.
func selectNodes(g *graph.Graph, spec Spec) ([]*graph.Node, error) {
	nodes, err := selectAll(g, spec.Selection, spec.Also)
	if err != nil || spec.Only == nil {
		return nodes, err
	}
	return slices.DeleteFunc(nodes, func(n *graph.Node) bool {
		return n.Unit != "" &&
			!slices.Contains(spec.Only, n.Unit)
	}), nil
}

func selectAll(g *graph.Graph, s Selection, also []object.Ref) ([]*graph.Node, error) {
	if s.everything() {
		return slices.Clone(g.Nodes), nil
	}
	units, err := selectUnits(g, s)
	if err != nil {
		return nil, err
	}
	for _, ns := range s.Namespaces {
		if g.Node(object.Ref{Kind: "Namespace", Name: ns}) == nil {
			return nil, &SelectionError{fmt.Sprintf("namespace %s is not in the snapshot", ns), "it holds " +
				listNamespaces(g)}
		}
	}
	for _, c := range g.Clusters() {
		if slices.Contains(s.Namespaces, c.Namespace) {
			units[c.Key().String()] = true
		}
	}
	besides := map[object.Ref]bool{}
	for _, r := range also {
		besides[r] = true
	}
	return g.Select(units, func(n *graph.Node) bool {
		return n.Unit == "" && n.Namespace != "" && slices.Contains(s.Namespaces, n.Namespace) ||
			besides[n.Ref]
	}), nil
}

func selectUnits(g *graph.Graph, s Selection) (map[string]bool, error) {
	units := map[string]bool{}
	clusters := g.Clusters()
	for _, w := range s.Workloads {
		if g.Node(object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: w.Namespace, Name: w.Name}) == nil {
			return nil, &SelectionError{fmt.Sprintf("workload cluster %s is not in the snapshot", w),
				"it holds " + listClusters(clusters)}
		}
		units[w.String()] = true
	}
	if s.Selector == "" {
		return units, nil
	}
	selector, err := s.Labels()
	if err != nil {
		return nil, err
	}
	matched := g.UnitsWith(selector)
	if len(matched) == 0 {
		return nil, &SelectionError{fmt.Sprintf("selector %q matches no workload cluster", s.Selector),
			"the snapshot holds " + listClusters(clusters)}
	}
	maps.Copy(units, matched)
	return units, nil
}

// Labels reads the label selector of a selection. It returns a *SelectionError.
func (s Selection) Labels() (graph.Selector, error) {
	selector, err := graph.ParseSelector(s.Selector)
	if err != nil {
		return selector, &SelectionError{fmt.Sprintf("selector %q: %v", s.Selector, err),
			"use the syntax of Kubernetes label selectors"}
	}
	return selector, nil
}

func listClusters(clusters []*graph.Node) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.Key().String()
	}
	return listed(names)
}

func listNamespaces(g *graph.Graph) string {
	var names []string
	for _, n := range g.Nodes {
		if n.GroupKind() == kube.NamespaceKind.GroupKind {
			names = append(names, n.Name)
		}
	}
	return listed(names)
}

func listed(names []string) string {
	const most = 12
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
