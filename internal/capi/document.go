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
	Address         bool                `json:"address"`
	SecretSuffixes  []string            `json:"secretSuffixes"`
	Certificates    []string            `json:"certificates"`
	LockSuffixes    []string            `json:"lockSuffixes"`

	PauseNeeds          string   `json:"pauseNeeds"`
	IgnoresPause        bool     `json:"ignoresPause"`
	StatusWhilePaused   bool     `json:"statusWhilePaused"`
	VolatileAnnotations []string `json:"volatileAnnotations"`
	ByHand              string   `json:"byHand"`

	PerManagementCluster bool `json:"perManagementCluster"`
	// VolatileConditions are condition types besides those of the Cluster API contract.
	VolatileConditions []string                `json:"volatileConditions"`
	Volatile           []VolatileFieldDocument `json:"volatile"`
	Compared           []string                `json:"compared"`
}

// ReferenceDocument is a Reference as an operator writes it. Group and Kind are those of the named
// object where the field does not say them.
type ReferenceDocument struct {
	Path  string `json:"path"`
	Name  string `json:"name"`
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Types are the kinds of a reference {type, name}, by type.
	Types               map[string]KindDocument `json:"types"`
	Suffix              string                  `json:"suffix"`
	ControllerNamespace string                  `json:"controllerNamespace"`
	Qualified           bool                    `json:"qualified"`
	SoftOwner           bool                    `json:"softOwner"`
	Optional            bool                    `json:"optional"`
	Required            bool                    `json:"required"`
	Back                bool                    `json:"back"`
}

// KindDocument is a kind as an operator writes it.
type KindDocument struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
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
		Address:        d.Address,
		SecretSuffixes: d.SecretSuffixes, Certificates: d.Certificates, LockSuffixes: d.LockSuffixes,
		PerManagementCluster: d.PerManagementCluster, PauseNeeds: d.PauseNeeds,
		StatusWhilePaused: d.StatusWhilePaused, IgnoresPause: d.IgnoresPause,
		VolatileAnnotations: d.VolatileAnnotations,
		ByHand:              d.ByHand,
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
		row.Refs = append(row.Refs, r.reference())
	}
	return row, row.Validate()
}

// reference returns the Reference that r describes.
func (r ReferenceDocument) reference() Reference {
	ref := Reference{Path: r.Path, Name: r.Name, To: object.GroupKind{Group: r.Group, Kind: r.Kind},
		Suffix: r.Suffix, Controller: r.ControllerNamespace, Qualified: r.Qualified,
		SoftOwner: r.SoftOwner, Optional: r.Optional, Required: r.Required, Back: r.Back}
	for name, kind := range r.Types {
		if ref.Types == nil {
			ref.Types = map[string]object.GroupKind{}
		}
		ref.Types[name] = object.GroupKind{Group: kind.Group, Kind: kind.Kind}
	}
	return ref
}
