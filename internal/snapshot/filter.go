package snapshot

import (
	"cmp"
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

// String is what ParseKindName reads.
func (k KindName) String() string {
	if k.anyGroup {
		return k.kind
	}
	return k.kind + "." + cmp.Or(k.group, coreGroup)
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
	Objects   []ObjectName
}

// ObjectName names an object, or objects of several kinds. The namespace of a cluster-scoped object
// is empty.
type ObjectName struct {
	Kind KindName
	object.Key
}

// String is the name as it was typed: "Kind.group namespace/name".
func (n ObjectName) String() string {
	if n.Namespace == "" {
		return n.Kind.String() + " " + n.Name
	}
	return n.Kind.String() + " " + n.Key.String()
}

// Fits reports whether n names an object.
func (n ObjectName) Fits(r object.Ref) bool {
	return r.Namespace == n.Namespace && r.Name == n.Name && n.Kind.Fits(r.GroupKind())
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
		})) &&
		(len(f.Objects) == 0 || slices.ContainsFunc(f.Objects, func(n ObjectName) bool {
			return n.Fits(r)
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

// Named returns the objects that a name fits, and those that the snapshot omits.
func (s *Snapshot) Named(name ObjectName) ([]*graph.Node, []graph.Omitted) {
	return s.Objects(Filter{Objects: []ObjectName{name}})
}
