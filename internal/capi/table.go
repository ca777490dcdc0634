package capi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Table holds all rows that a process uses: the built-in ones and those of its configuration. It
// never changes. A nil Table is the built-in one.
type Table struct {
	rows map[object.GroupKind]*Row
	// known are the kinds that objects name or that name objects, and those of the configuration.
	known map[object.GroupKind]bool
	// suffixes of Secrets and ConfigMaps, of all rows
	secretSuffixes, lockSuffixes []string
	tag                          string
}

// builtin is the Table of the built-in rows. It is made at its first use, since it cannot fail: a
// test validates every row.
var builtin = sync.OnceValue(func() *Table {
	t, err := newTable(builtinRows())
	if err != nil {
		panic(err)
	}
	return t
})

// New returns the Table of the built-in rows and of more. It returns an error that names the row
// when one is not valid, is there twice, or is built in.
func New(more []Row) (*Table, error) {
	if len(more) == 0 {
		return builtin(), nil
	}
	for _, row := range more {
		if builtin().Has(row.GroupKind) {
			return nil, fmt.Errorf("row %s: it is built in and cannot be replaced", row.GroupKind)
		}
	}
	rows := slices.Collect(maps.Values(builtin().rows))
	for i := range more {
		rows = append(rows, &more[i])
	}
	copied := make([]Row, len(rows))
	for i, row := range rows {
		copied[i] = *row
	}
	t, err := newTable(copied)
	if err != nil {
		return nil, err
	}
	// What such a row refers to is not known by that: the operator named the row's own kind and no
	// other one (invariant I8).
	t.known = maps.Clone(builtin().known)
	for _, row := range more {
		t.known[row.GroupKind] = true
	}
	t.tag = "kinds-" + t.Fingerprint()
	return t, nil
}

func newTable(rows []Row) (*Table, error) {
	t := &Table{rows: make(map[object.GroupKind]*Row, len(rows)), known: map[object.GroupKind]bool{}}
	for i := range rows {
		row := &rows[i]
		if err := row.Validate(); err != nil {
			return nil, err
		}
		if t.rows[row.GroupKind] != nil {
			return nil, fmt.Errorf("row %s: it is there twice", row.GroupKind)
		}
		t.rows[row.GroupKind] = row
	}
	for _, row := range t.sorted() {
		t.known[row.GroupKind] = t.known[row.GroupKind] || len(row.Refs) > 0
		for _, ref := range row.Refs {
			for _, kind := range ref.kinds() {
				t.known[kind] = true
			}
		}
		t.secretSuffixes = append(t.secretSuffixes, row.SecretSuffixes...)
		t.lockSuffixes = append(t.lockSuffixes, row.LockSuffixes...)
	}
	return t, nil
}

func (t *Table) orBuiltin() *Table {
	if t == nil {
		return builtin()
	}
	return t
}

func (t *Table) sorted() []*Row {
	return slices.SortedFunc(maps.Values(t.rows), func(a, b *Row) int {
		return compareKinds(a.GroupKind, b.GroupKind)
	})
}

func compareKinds(a, b object.GroupKind) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind))
}

// Row returns the row of a kind, which may be a default row; never nil. It must not be changed.
func (t *Table) Row(gk object.GroupKind) *Row {
	if row := t.orBuiltin().rows[gk]; row != nil {
		return row
	}
	return defaultRow(gk)
}

// RowOf returns the row of the kind that a decoded object says it is of, as Row does.
func (t *Table) RowOf(obj map[string]any) *Row { return t.Row(kindOf(obj)) }

// Has reports whether a kind has a row of its own.
func (t *Table) Has(gk object.GroupKind) bool { return t.orBuiltin().rows[gk] != nil }

// Kinds returns the kinds that have a row of their own, sorted.
func (t *Table) Kinds() []object.GroupKind {
	var kinds []object.GroupKind
	for _, row := range t.orBuiltin().sorted() {
		kinds = append(kinds, row.GroupKind)
	}
	return kinds
}

// Known reports whether objects of a kind are captured and restored also when its CRD carries no
// label of Cluster API: it names other objects or is named, or the configuration has a row of it.
func (t *Table) Known(gk object.GroupKind) bool {
	t = t.orBuiltin()
	return t.known[gk] || t.rows[gk] == nil && len(defaultRow(gk).Refs) > 0
}

// Tag names the rows of the configuration, for the writer of a snapshot; empty when there are
// none. Snapshots with different tags may have different edges of the same objects.
func (t *Table) Tag() string { return t.orBuiltin().tag }

// Fingerprint changes with everything that decides which objects are captured and which edges they
// get.
func (t *Table) Fingerprint() string {
	t = t.orBuiltin()
	h := sha256.New()
	_, _ = fmt.Fprintln(h, helmStorage, LabelHelmOwner, LabelHelmRelease,
		AnnotationHelmRelease, AnnotationHelmNamespace, LabelFluxHelmNamespace)
	for i := range defaults {
		_, _ = fmt.Fprintf(h, "%+v\n", defaults[i].row.Refs)
	}
	for _, row := range t.sorted() {
		_, _ = fmt.Fprintf(h, "%s %t %t %+v %q %q\n", row.GroupKind, t.known[row.GroupKind], row.Shared,
			row.Refs, row.SecretSuffixes, row.LockSuffixes)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// ClusterOfSecret returns the name of the workload cluster to which a Secret of this name belongs
// by its suffix, or "".
func (t *Table) ClusterOfSecret(name string) string {
	return cutSuffix(name, t.orBuiltin().secretSuffixes)
}

// ClusterOfLock returns the Cluster to which a ConfigMap belongs as a lock of a provider; ok is
// false when it is none.
func (t *Table) ClusterOfLock(ref object.Ref) (cluster object.Ref, ok bool) {
	if ref.GroupKind() != ConfigMap {
		return object.Ref{}, false
	}
	name := cutSuffix(ref.Name, t.orBuiltin().lockSuffixes)
	return object.Ref{Group: Cluster.Group, Kind: Cluster.Kind, Namespace: ref.Namespace, Name: name},
		name != ""
}

// cutSuffix removes "-<suffix>" from name, of several the longest: "x-apiserver-etcd-client"
// belongs to x. It returns "" when there is none.
func cutSuffix(name string, suffixes []string) string {
	shortest := ""
	for _, s := range suffixes {
		if c, ok := strings.CutSuffix(name, "-"+s); ok && (shortest == "" || len(c) < len(shortest)) {
			shortest = c
		}
	}
	return shortest
}
