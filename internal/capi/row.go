package capi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Row is what is known of one kind. A field is here once a flow reads it: what a design only
// expects (fields that a controller writes while it is paused, status that must be there before a
// release) comes with its first reader.
type Row struct {
	GroupKind object.GroupKind
	// Source is where the knowledge comes from: project, version, file. It is never empty.
	Source string
	// Provenance is how far the knowledge was tried.
	Provenance Provenance
	// ByHand is what an operator does where this product cannot: for docs/providers.md, and the hint
	// of an object that cannot be paused.
	ByHand string
	// Refs are the fields in which an object names others.
	Refs []Reference
	// Pause is how objects of the kind are paused.
	Pause Pause
	// PauseNeeds is the path of a field below spec without which the controllers of the kind do not
	// honour the switch of an object, which then counts as one that cannot be paused. Empty when
	// there is none.
	PauseNeeds string
	// IgnoresPause: its controllers work on paused objects, too, although the contract of Cluster API
	// forbids that. The operator has to stop them.
	IgnoresPause bool
	// StatusWhilePaused: its controllers write the status of a paused object, too, so that it is no
	// difference between two objects.
	StatusWhilePaused bool
	// Shared: another workload cluster may come to use such an object at any time, so it belongs
	// to no unit. Cluster-scoped objects always are shared.
	Shared bool
	// PausedShared: a shared object of the kind is paused on the source of a move, too: what uses it
	// there would not be known to the target.
	PausedShared bool
	// UsersNamed: all users of a shared object name it in a field of their Refs or own it, so that
	// the graph knows when nobody uses it. Without it, every workload cluster of the namespace may
	// be one.
	UsersNamed bool
	// BoundToCluster: a controller of the kind makes one such object for each Cluster, deletes it
	// while the Cluster is absent, and may make it again. It comes after its Cluster, and one that
	// the target's controllers made for a restored Cluster is replaced.
	BoundToCluster bool
	// MadeFor are kinds of owners whose controllers make such an object as soon as they see its owner,
	// also a paused one. One that the target's controllers made for a restored owner is replaced.
	MadeFor []object.GroupKind
	// ReconciledFirst: before any unit is created, a restore waits until the target has observed
	// such objects and reports no condition worse than on the source.
	ReconciledFirst bool
	// PerManagementCluster: controllers fill in spec and status from what runs on their management
	// cluster. So the status is not restored, a copy is not compared with the snapshot, and one that
	// the target has already is used as it is.
	PerManagementCluster bool
	// ClusterSelector is the path of a label selector. Such an object acts on each Cluster of its
	// namespace that it selects.
	ClusterSelector string
	// RunsCode says what such an object runs on workload clusters, or lets others do with the
	// target; empty when it does neither.
	RunsCode string
	// GoodConditions are endings of condition types whose status True is good; nil stands for
	// those of the Cluster API contract.
	GoodConditions []string
	// VolatileConditions are condition types that are no difference between two objects; nil stands
	// for the one of the Cluster API contract.
	VolatileConditions []string
	// VolatileAnnotations are annotations that are no difference between two objects. One that ends
	// with a slash stands for all of that prefix.
	VolatileAnnotations []string
	// Volatile are the fields that controllers write in objects at work without changing what the
	// objects are: a change there after the release is no failure.
	Volatile []VolatileField
	// Compared are fields that a controller compares with the Machines that there are: where the
	// target changes one, it replaces Machines.
	Compared []ComparedField
	// RateLimited: its controller reconciles an object seldom, so that it acknowledges the end of a
	// pause many seconds after the others.
	RateLimited bool
	// AddressPool: it hands out addresses, and must not do so on two management clusters at once.
	AddressPool bool
	// Address: it holds an address of such a pool, or asks for one.
	Address bool
	// SecretSuffixes are those of Secrets "<workload cluster>-<suffix>" that belong to a workload
	// cluster by their name, also when nothing owns them.
	SecretSuffixes []string
	// Certificates are the suffixes of the Secrets without which the controller of a control plane
	// of this kind makes new ones.
	Certificates []string
	// Keys are the Secrets of a workload cluster, besides certificates, without which controllers of
	// this kind make others, or cannot let a machine join.
	Keys []Key
	// HostedEtcd: such a control plane runs on the management cluster, and its etcd with it.
	HostedEtcd bool
	// LockSuffixes are those of ConfigMaps "<workload cluster>-<suffix>" that its controller holds
	// as a lock. They are never captured, and go with their Cluster.
	LockSuffixes []string
}

// Provenance is how far the knowledge of a row was tried.
type Provenance int

// OnlyRead: the source was read, and nothing was run. OnAPIServer: objects of the real CRD were
// written to an API server, with the fields and switches of the row. WithControllers: the tests of
// this project run the provider's own controllers.
const (
	OnlyRead Provenance = iota
	OnAPIServer
	WithControllers
)

// CanBePaused reports whether the switch of an object is one that this version can set and that the
// controllers of its kind honour.
func (r *Row) CanBePaused(raw []byte) bool {
	return r.Pause.Supported() &&
		(r.PauseNeeds == "" || gjson.GetBytes(raw, r.PauseNeeds).String() != "")
}

// contractAnnotations are annotations of Cluster API that are no difference between two objects of
// any kind. Conversion webhooks write the first, so that it depends on the version at which an
// object is read. Providers set the second on what must not be moved yet, and remove it from what
// is paused (cluster-api v1.14, cmd/clusterctl/api/v1alpha3/annotations.go).
var contractAnnotations = []string{AnnotationConversionData, AnnotationBlockMove}

// IsVolatileAnnotation reports whether an annotation is no difference between two objects.
func (r *Row) IsVolatileAnnotation(key string) bool {
	is := func(volatile string) bool {
		return key == volatile || strings.HasSuffix(volatile, "/") && strings.HasPrefix(key, volatile)
	}
	return slices.ContainsFunc(contractAnnotations, is) ||
		slices.ContainsFunc(r.VolatileAnnotations, is)
}

// Requires reports whether an object cannot be reconciled without what it names in a field of Refs.
// An object at work whose infrastructure is gone is reported as failed or replaced by its
// controller (cluster-api v1.14, core/reconcilers/machine/machine_controller_phases.go).
func (r *Row) Requires(raw []byte, field string) bool {
	return slices.ContainsFunc(r.Refs, func(ref Reference) bool {
		return ref.Required && ref.Field() == field &&
			(ref.Unless == "" || gjson.GetBytes(raw, ref.Unless).String() == "")
	})
}

// Key is a Secret "<workload cluster>-<suffix>" with keys of a workload cluster.
type Key struct {
	Suffix string
	// Path and NotWith: an object with the value NotWith at Path needs no such Secret. The path has
	// dots between names. Both are empty where every object needs it.
	Path, NotWith string
}

// NeededBy reports whether an object needs such a Secret.
func (k Key) NeededBy(raw []byte) bool {
	return k.Path == "" || gjson.GetBytes(raw, k.Path).String() != k.NotWith
}

// PausesFirst reports whether Table.PauseFirst pauses objects of the kind. Controllers of Cluster
// API honour the annotation on the object itself as they honour the pause of the Cluster
// (cluster-api v1.14, util/paused/paused.go, EnsurePausedCondition).
func (r *Row) PausesFirst() bool { return r.RateLimited && r.Pause == PauseWithCluster }

// VolatileField is a field that a controller writes in objects at work. All conditions that are set
// have to hold for an object.
type VolatileField struct {
	// Path is the field, with dots between names; what it holds is volatile, too.
	Path string
	// OwnedBy: an object of that kind owns it.
	OwnedBy object.GroupKind
	// NameSuffix: its name ends like that.
	NameSuffix string
	// Annotations: it has one of these.
	Annotations []string
}

// ComparedField is a field that a controller compares with the Machines that there are.
type ComparedField struct {
	// Path is the field, with dots between names; what it holds is compared, too.
	Path string
	// Label: only of an object that has it.
	Label string
}

// IsCompared reports whether a controller compares a path of an object with the Machines that there
// are. Those of the templates of a ClusterClass are not among them: see IsClassTemplate.
func (r *Row) IsCompared(obj map[string]any, path string) bool {
	meta, _ := obj["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	return slices.ContainsFunc(r.Compared, func(f ComparedField) bool {
		_, labelled := labels[f.Label]
		return (f.Label == "" || labelled) && (path == f.Path || strings.HasPrefix(path, f.Path+"."))
	})
}

// IsClassTemplate reports whether obj is a template of a ClusterClass. The topology controller
// compares its spec with what it has made from it for each workload cluster, and makes new
// templates and new Machines where they differ (cluster-api v1.14,
// core/reconcilers/topology/cluster/reconcile_state.go).
func IsClassTemplate(obj map[string]any) bool {
	return strings.HasSuffix(kindOf(obj).Kind, "Template") && ownedBy(obj, ClusterClass)
}

// ClonedFrom reports whether obj was made from a template (cluster-api v1.14,
// api/core/v1beta2/common_types.go).
func ClonedFrom(obj map[string]any, template object.Ref) bool {
	have := annotations(obj)
	kind := template.GroupKind()
	return have[clonedFromName] == template.Name &&
		have[clonedFromKind] == kind.Kind+"."+kind.Group
}

// IsMadeFor reports whether controllers of the target may have made obj already, for its owner.
func (r *Row) IsMadeFor(obj map[string]any) bool {
	return slices.ContainsFunc(r.MadeFor,
		func(owner object.GroupKind) bool { return ownedBy(obj, owner) })
}

// MayHaveMade reports whether obj, which is on the target, may be what such a controller has made:
// nothing else owns it. A Secret has to have the owner, since anybody may make one without.
func (r *Row) MayHaveMade(obj map[string]any) bool {
	meta, _ := obj["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	return r.IsMadeFor(obj) || len(owners) == 0 && r.GroupKind != Secret
}

// ownedBy reports whether an object of a kind owns obj.
func ownedBy(obj map[string]any, kind object.GroupKind) bool {
	meta, _ := obj["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	return slices.ContainsFunc(owners, func(o any) bool {
		owner, _ := o.(map[string]any)
		return kindOf(owner) == kind
	})
}

// IsVolatileField reports whether a path of an object is one that controllers write in objects at
// work. obj is the object before the change.
func (r *Row) IsVolatileField(obj map[string]any, path string) bool {
	is := func(f VolatileField) bool {
		below, ok := strings.CutPrefix(path, f.Path)
		return ok && (below == "" || below[0] == '.' || below[0] == '[') && f.fits(obj)
	}
	return slices.ContainsFunc(r.Volatile, is) || slices.ContainsFunc(volatileOfMachines, is)
}

// The annotations of an object that was made from a template.
const (
	clonedFromName = "cluster.x-k8s.io/cloned-from-name"
	clonedFromKind = "cluster.x-k8s.io/cloned-from-groupkind"
)

// volatileOfMachines are the volatile fields of the infrastructure and the bootstrap configuration
// of every Machine. Controllers of 1.12 and newer migrate the managedFields of older ones, and the
// annotations were seen to go then. To a controller, an object without them is no mismatch
// (cluster-api v1.14, controlplane/kubeadm/pkg/filters.go); an update in place changes them.
var volatileOfMachines = []VolatileField{
	{Path: "metadata.annotations." + clonedFromName, OwnedBy: Machine},
	{Path: "metadata.annotations." + clonedFromKind, OwnedBy: Machine},
}

func (f VolatileField) fits(obj map[string]any) bool {
	meta, _ := obj["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if !strings.HasSuffix(name, f.NameSuffix) {
		return false
	}
	if f.OwnedBy.Kind != "" && !ownedBy(obj, f.OwnedBy) {
		return false
	}
	have := annotations(obj)
	return len(f.Annotations) == 0 || slices.ContainsFunc(f.Annotations, func(a string) bool {
		_, ok := have[a]
		return ok
	})
}

// contractGood are the endings of condition types of Cluster API whose True is good. Others, such
// as ScalingUp or Deleting, say what goes on and may change. Source: cluster-api v1.14,
// api/core/v1beta2/*_types.go and the contracts of the book.
var contractGood = []string{"Ready", "Available", "Healthy", "UpToDate", "Provisioned",
	"Initialized", "Succeeded", "Reconciled", "RemoteConnectionProbe", "UpToDateMachines"}

// IsGood reports whether True is the good status of a condition type.
func (r *Row) IsGood(condition string) bool {
	endings := r.GoodConditions
	if endings == nil {
		endings = contractGood
	}
	for _, ending := range endings {
		if strings.HasSuffix(condition, ending) {
			return true
		}
	}
	return false
}

// contractVolatile are the condition types of Cluster API that only say whether the object, or its
// Cluster, is paused.
var contractVolatile = []string{conditionPaused}

// IsVolatile reports whether conditions of a type are no difference between two objects.
func (r *Row) IsVolatile(condition string) bool {
	volatile := r.VolatileConditions
	if volatile == nil {
		volatile = contractVolatile
	}
	return slices.Contains(volatile, condition)
}

// volatilePath matches the paths that a VolatileField may have. A whole spec is none: then nothing
// would be compared after a release.
var volatilePath = regexp.MustCompile(`^(data(\.[^#]+)?|` +
	`(spec|metadata\.(annotations|labels))\.[^#]+)$`)

// comparedPath matches the paths that a ComparedField may have. One with a label may be a whole
// spec.
var comparedPath = regexp.MustCompile(`^spec\.[^#]+$`)

// Validate returns what is wrong with a row; nil when nothing is.
func (r *Row) Validate() error {
	switch {
	case r.GroupKind.Kind == "":
		return fmt.Errorf("a row needs a kind")
	case r.Pause == nil:
		return fmt.Errorf("row %s: it needs a pause", r.GroupKind)
	case r.Source == "":
		return fmt.Errorf("row %s: it needs a source", r.GroupKind)
	case r.PauseNeeds != "" && !fieldPath.MatchString(r.PauseNeeds):
		return fmt.Errorf("row %s: path %q, which its pause needs, is not a field below spec",
			r.GroupKind, r.PauseNeeds)
	case slices.Contains(r.VolatileAnnotations, ""), slices.Contains(r.VolatileAnnotations, "/"):
		return fmt.Errorf("row %s: a volatile annotation has no name", r.GroupKind)
	}
	for _, ref := range r.Refs {
		if err := ref.validate(); err != nil {
			return fmt.Errorf("row %s: %w", r.GroupKind, err)
		}
	}
	for _, f := range r.Volatile {
		if !volatilePath.MatchString(f.Path) {
			return fmt.Errorf("row %s: volatile path %q is not data, or a field below spec, "+
				"metadata.annotations or metadata.labels", r.GroupKind, f.Path)
		}
	}
	for _, f := range r.Compared {
		if !comparedPath.MatchString(f.Path) && (f.Label == "" || f.Path != "spec") {
			return fmt.Errorf("row %s: compared path %q is not a field below spec", r.GroupKind, f.Path)
		}
	}
	if slices.Contains(r.VolatileConditions, "") {
		return fmt.Errorf("row %s: a volatile condition has no type", r.GroupKind)
	}
	return nil
}

// PausesPool reports whether a move pauses a pool of addresses of the kind on the source, as far as
// several workload clusters share it. A paused one gives no address.
func (r Row) PausesPool() bool {
	return r.AddressPool && r.Pause.Order() > 0 && r.PauseNeeds == ""
}
