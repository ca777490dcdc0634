package capi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Document is a row as an operator writes it, in spec.kinds of the daemon's configuration. Its
// fields mean what those of Row mean.
type Document struct {
	Group           string              `json:"group"`
	Kind            string              `json:"kind"`
	Refs            []ReferenceDocument `json:"refs"`
	Pause           string              `json:"pause"`
	Shared          bool                `json:"shared"`
	UsersNamed      bool                `json:"usersNamed"`
	BoundToCluster  bool                `json:"boundToCluster"`
	ReconciledFirst bool                `json:"reconciledFirst"`
	RunsCode        string              `json:"runsCode"`
	GoodConditions  []string            `json:"goodConditions"`
	AddressPool     bool                `json:"addressPool"`
	SecretSuffixes  []string            `json:"secretSuffixes"`
	Certificates    []string            `json:"certificates"`
	LockSuffixes    []string            `json:"lockSuffixes"`

	PerManagementCluster bool `json:"perManagementCluster"`
	// VolatileConditions are condition types besides those of the Cluster API contract.
	VolatileConditions []string                `json:"volatileConditions"`
	Volatile           []VolatileFieldDocument `json:"volatile"`
	Compared           []string                `json:"compared"`
}

// ReferenceDocument is a Reference as an operator writes it. Group and Kind are those of the named
// object where the field does not say them.
type ReferenceDocument struct {
	Path      string `json:"path"`
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	SoftOwner bool   `json:"softOwner"`
}

// VolatileFieldDocument is a VolatileField as an operator writes it.
type VolatileFieldDocument struct {
	Path    string `json:"path"`
	OwnedBy struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
	} `json:"ownedBy"`
	NameSuffix  string   `json:"nameSuffix"`
	Annotations []string `json:"annotations"`
}

// Row returns the row that d describes. source names the file that d is from. The error names the
// row.
func (d Document) Row(source string) (Row, error) {
	row := Row{
		GroupKind: object.GroupKind{Group: d.Group, Kind: d.Kind}, Source: source, Shared: d.Shared,
		UsersNamed: d.UsersNamed, BoundToCluster: d.BoundToCluster, ReconciledFirst: d.ReconciledFirst,
		RunsCode: d.RunsCode, GoodConditions: d.GoodConditions, AddressPool: d.AddressPool,
		SecretSuffixes: d.SecretSuffixes, Certificates: d.Certificates, LockSuffixes: d.LockSuffixes,
		PerManagementCluster: d.PerManagementCluster,
	}
	for _, path := range d.Compared {
		row.Compared = append(row.Compared, ComparedField{Path: path})
	}
	if len(d.VolatileConditions) > 0 {
		row.VolatileConditions = slices.Concat(contractVolatile, d.VolatileConditions)
	}
	for _, f := range d.Volatile {
		owner := object.GroupKind{Group: f.OwnedBy.Group, Kind: f.OwnedBy.Kind}
		if owner.Kind == "" && owner.Group != "" {
			return Row{}, fmt.Errorf("row %s: volatile path %q has an owner without a kind",
				row.GroupKind, f.Path)
		}
		row.Volatile = append(row.Volatile, VolatileField{Path: f.Path, OwnedBy: owner,
			NameSuffix: f.NameSuffix, Annotations: f.Annotations})
	}
	var names []string
	for _, p := range pauses {
		names = append(names, p.String())
		if p.String() == d.Pause {
			row.Pause = p
		}
	}
	if row.Pause == nil {
		return Row{}, fmt.Errorf("row %s: pause %q is none of %s", row.GroupKind, d.Pause,
			strings.Join(names, ", "))
	}
	for _, r := range d.Refs {
		to := object.GroupKind{Group: r.Group, Kind: r.Kind}
		if to.Kind == "" && to.Group != "" {
			return Row{}, fmt.Errorf("row %s: path %q has a group without a kind", row.GroupKind, r.Path)
		}
		row.Refs = append(row.Refs, Reference{Path: r.Path, To: to, SoftOwner: r.SoftOwner})
	}
	return row, row.Validate()
}
