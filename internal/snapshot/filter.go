package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// KindName names a kind as people type it: without a group it is that kind of every group. Case
// does not count.
type KindName struct {
	kind, group string
	anyGroup    bool
}

// coreGroup is how people name the group of Secrets and Namespaces, whose name is empty.
const coreGroup = "core"

// ParseKindName reads "Kind" or "Kind.group"; "Kind.core" is that of the core group only. The empty
// text is any kind.
func ParseKindName(s string) (KindName, error) {
	kind, group, hasGroup := strings.Cut(s, ".")
	if s != "" && (kind == "" || hasGroup && group == "" || strings.ContainsAny(s, "/ ")) {
		return KindName{}, fmt.Errorf("parse kind %.80q: want Kind or Kind.group", s)
	}
	if group == coreGroup {
		group = ""
	}
	return KindName{kind: kind, group: group, anyGroup: !hasGroup}, nil
}

// Fits reports whether k names a kind.
func (k KindName) Fits(gk object.GroupKind) bool {
	return (k.kind == "" || strings.EqualFold(k.kind, gk.Kind)) &&
		(k.anyGroup || strings.EqualFold(k.group, gk.Group))
}

// Filter narrows down the objects of a snapshot. An object has to fit one entry of each list that
// is not empty; the zero value takes all.
type Filter struct {
	Kinds []KindName
	// Namespaces take what is in them, and they themselves.
	Namespaces []string
	// Workloads take the objects of their units, without shared ones.
	Workloads []object.Key
}

// fits reports whether an object of a unit passes the filter.
func (f Filter) fits(r object.Ref, unit string) bool {
	namespace := r.Namespace
	if r.GroupKind() == capi.Namespace {
		namespace = r.Name
	}
	return (len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, namespace)) &&
		(len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(k KindName) bool {
			return k.Fits(r.GroupKind())
		})) &&
		(len(f.Workloads) == 0 || slices.ContainsFunc(f.Workloads, func(k object.Key) bool {
			return k.String() == unit
		}))
}

// Objects returns the objects that pass a filter, and those that the snapshot omits, each by ref.
func (s *Snapshot) Objects(f Filter) ([]*graph.Node, []graph.Omitted) {
	var nodes []*graph.Node
	for _, n := range s.Graph.Nodes {
		if f.fits(n.Ref, n.Unit) {
			nodes = append(nodes, n)
		}
	}
	var omitted []graph.Omitted
	for _, o := range s.Omitted {
		if f.fits(o.Ref, o.Unit) {
			omitted = append(omitted, o)
		}
	}
	slices.SortFunc(omitted, func(a, b graph.Omitted) int { return object.CompareRefs(a.Ref, b.Ref) })
	return nodes, omitted
}

// Named returns the objects of a namespace and name whose kind fits. The namespace of a
// cluster-scoped object is empty.
func (s *Snapshot) Named(kind KindName, key object.Key) []*graph.Node {
	var nodes []*graph.Node
	for _, n := range s.Graph.Nodes {
		if n.Key() == key && kind.Fits(n.GroupKind()) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
