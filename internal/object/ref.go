package object

import (
	"cmp"
	"fmt"
	"strings"
)

// Ref names an object. It has no version, since versions change with the provider, and no UID,
// since UIDs do not travel between management clusters.
type Ref struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// GroupKind is the kind of an object without a version.
type GroupKind struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
}

// String gives "Kind.group", or "Kind" for core.
func (gk GroupKind) String() string {
	if gk.Group == "" {
		return gk.Kind
	}
	return gk.Kind + "." + gk.Group
}

// GroupKind returns the ref's group and kind.
func (r Ref) GroupKind() GroupKind { return GroupKind{Group: r.Group, Kind: r.Kind} }

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String gives "Kind.group/namespace/name", without the group for core and without the namespace
// for cluster-scoped objects.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.GroupKind().String() + "/" + r.Name
	}
	return r.GroupKind().String() + "/" + r.Namespace + "/" + r.Name
}

// ParseRef is the inverse of String.
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return Ref{}, fmt.Errorf("parse ref %q: want Kind.group/namespace/name, or Kind.group/name "+
			"for a cluster-scoped kind", s)
	}
	kind, group, _ := strings.Cut(parts[0], ".")
	r := Ref{Group: group, Kind: kind, Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		r.Namespace = parts[1]
	}
	if r.Kind == "" || r.Name == "" || (len(parts) == 3 && r.Namespace == "") {
		return Ref{}, fmt.Errorf("parse ref %q: a part is empty", s)
	}
	return r, nil
}

// CompareRefs orders refs by namespace, group, kind and name, so that what belongs together stands
// together.
func CompareRefs(a, b Ref) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Group, b.Group),
		strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Name, b.Name),
	)
}

// Key names a workload cluster or another namespaced object whose kind is known: "namespace/name".
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String gives "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// ParseKey is the inverse of Key.String.
func ParseKey(s string) (Key, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		return Key{}, fmt.Errorf("parse %q: want namespace/name", s)
	}
	return Key{Namespace: ns, Name: name}, nil
}
