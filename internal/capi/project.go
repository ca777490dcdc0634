package capi

import (
	"slices"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Project is a provider whose kinds are built in. docs/providers.md is made of all of them.
type Project struct {
	Name string
	// Versions are those whose source was read.
	Versions string
	Rows     []Row
	// ByHand is what an operator does by hand, or before a move, whichever kinds there are.
	ByHand string
}

// Projects returns all built-in providers, in the order of docs/providers.md.
func Projects() []Project {
	return slices.Concat(
		[]Project{
			{Name: "Cluster API and Kubernetes", Versions: "1.10 to 1.14", Rows: ran(coreRows())},
			{Name: "Kubeadm", Versions: "1.10 to 1.14", Rows: ran(kubeadmRows())},
			{Name: "Cluster API add-ons: ClusterResourceSet and the Helm provider (CAAPH)",
				Versions: "1.14; CAAPH 0.6", Rows: addonRows()},
			{Name: "Addresses: Cluster API IPAM and the in-cluster provider", Versions: "1.14; 1.1",
				Rows: ipamRows(), ByHand: "A move pauses a pool of addresses that several of its workload " +
					"clusters share, on the source, from before its first batch to its end: the source does " +
					"not know the addresses of what has moved. What has not moved yet gets no address of it " +
					"until then. After a rollback of the rest the pool stays paused on both sides: move the " +
					"rest as well, or take the addresses of what has moved out of the pool of the source " +
					"before you end its pause. Where the operator overrides the finding pool-shared, it is not " +
					"paused."},
			{Name: "Runtime extensions", Versions: "1.14", Rows: ran(runtimeRows())},
			{Name: "Docker and in-memory", Versions: "1.14", Rows: ran(devRows())},
		},
		openstackProviders(),
		awsProviders(), azureProviders(), vsphereProviders(), googleProviders(), metal3Providers(),
		equinixProviders(), stackhpcProviders(), magnumProviders(), cloudProviders(),
		distributionProviders(), hostedProviders())
}

// ran returns rows with the mark that the tests of this project run the controllers of the
// provider.
func ran(rows []Row) []Row {
	for i := range rows {
		rows[i].Provenance = WithControllers
	}
	return rows
}

// builtinRows are the rows of all providers.
func builtinRows() []Row {
	var rows []Row
	for _, p := range Projects() {
		rows = append(rows, p.Rows...)
	}
	return rows
}

func infraKind(kind string) object.GroupKind {
	return object.GroupKind{Group: GroupInfrastructure, Kind: kind}
}

func bootstrapKind(kind string) object.GroupKind {
	return object.GroupKind{Group: GroupBootstrap, Kind: kind}
}

func controlPlaneKind(kind string) object.GroupKind {
	return object.GroupKind{Group: GroupControlPlane, Kind: kind}
}

// Prefixes of the fields of an object, and of a template of such objects.
const (
	inSpec     = "spec."
	inTemplate = "spec.template.spec."
)

// below returns references with a prefix before their paths.
func below(prefix string, refs ...Reference) []Reference {
	out := slices.Clone(refs)
	for i := range out {
		out[i].Path = prefix + out[i].Path
		if out[i].Namespace != "" {
			out[i].Namespace = prefix + out[i].Namespace
		}
	}
	return out
}

// sameRows returns rows that differ in their kind alone.
func sameRows(row Row, kinds ...object.GroupKind) []Row {
	rows := make([]Row, 0, len(kinds))
	for _, kind := range kinds {
		row.GroupKind = kind
		rows = append(rows, row)
	}
	return rows
}

// withTemplate returns the row of a kind that Cluster API's contract covers, and that of its
// template. Both name the same objects in the same fields. A template requires none of them: an old
// one often outlives what it names, and nothing is made from it.
func withTemplate(row Row, kind object.GroupKind, refs ...Reference) []Row {
	row.GroupKind, row.Pause, row.Refs = kind, PauseWithCluster, below(inSpec, refs...)
	template := row
	template.GroupKind.Kind += "Template"
	template.Pause, template.UsersNamed, template.Refs = PauseNone, true, below(inTemplate, refs...)
	for i := range template.Refs {
		template.Refs[i].Required, template.Refs[i].Unless = false, ""
	}
	return []Row{row, template}
}
