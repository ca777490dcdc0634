package capture

import (
	"context"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Scope is what a capture is asked to hold. The zero value is everything.
type Scope struct {
	// Namespaces are captured whole, with what they need from others; cluster-scoped objects always
	// are. Empty captures all namespaces.
	Namespaces []string
	// Selector selects among the workload clusters of these namespaces by the labels of their
	// Clusters: the capture holds their units, what these need, and nothing else. The zero value
	// captures what no workload cluster needs, too.
	Selector graph.Selector
}

// Narrow says what is not listed of the namespaces of a scope: what belongs to other workload
// clusters. The caller has seen that no captured object needed it, and finds out whether one does
// now. The zero value leaves out nothing.
type Narrow struct {
	// Labels are label selectors, by namespace: of its objects those are listed that one of them
	// selects. No two select the same object. A namespace without any is listed whole.
	Labels map[string][]string
	// Clusters are the names of the Clusters that are read of such a namespace: a Cluster has no label
	// that says which one it is.
	Clusters map[string][]string
	// Owners are the UIDs of objects that are not listed: as owners they are not missing.
	Owners map[object.Ref]string
}

// lists returns what the LISTs of a kind in a namespace ask for.
func (n Narrow) lists(k kube.Kind, namespace string) []kube.ListOptions {
	labels := n.Labels[namespace]
	var lists []kube.ListOptions
	switch {
	case len(labels) == 0:
		return []kube.ListOptions{{Namespace: namespace}}
	case k.GroupKind == capi.Cluster:
		for _, name := range n.Clusters[namespace] {
			lists = append(lists, kube.ListOptions{Namespace: namespace, Name: name})
		}
	default:
		for _, selector := range labels {
			lists = append(lists, kube.ListOptions{Namespace: namespace, Labels: selector})
		}
	}
	return lists
}

func (s Scope) has(namespace string) bool {
	return len(s.Namespaces) == 0 || namespace == "" || slices.Contains(s.Namespaces, namespace)
}

// UnknownNamespaceError reports that a namespace in the scope does not exist: a typing error that
// would give an empty snapshot.
type UnknownNamespaceError struct{ Namespace string }

func (e *UnknownNamespaceError) Error() string {
	return fmt.Sprintf("namespace %s: not found on the source", e.Namespace)
}

// Hint says what the operator can do.
func (e *UnknownNamespaceError) Hint() string {
	return "name a namespace that exists, or none to capture all"
}

// HintKey names the flag for namespaces.
func (e *UnknownNamespaceError) HintKey() object.HintKey { return object.HintNamespace }

func checkNamespaces(ctx context.Context, source Source, scope Scope) error {
	for _, ns := range scope.Namespaces {
		got, err := source.List(ctx, kube.NamespaceKind, kube.ListOptions{Name: ns, Metadata: true},
			func([]byte) error { return nil })
		if err != nil {
			return err
		}
		if got.Items == 0 {
			return &UnknownNamespaceError{ns}
		}
	}
	return nil
}
