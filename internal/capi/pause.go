package capi

import (
	"strconv"
	"strings"
)

// Pause is how controllers are stopped from reconciling objects of a kind. Every mechanism is one
// implementation; flows ask its methods and never which one it is.
type Pause interface {
	// String is its name in spec.kinds.
	String() string
	// Order is the place of the object's own switch among those of its unit, counted in the order
	// in which a release unsets them; a pause sets them the other way round. 0 means that the
	// object has no switch of its own.
	Order() int
	// Set sets the switch and returns what it was (WasAbsent, WasFalse or WasTrue).
	Set(obj map[string]any) (was string)
	// Unset gives the switch back to exactly what it was: what was absent is removed.
	Unset(obj map[string]any, was string)
	// IsSet reports whether the object's own switch is set.
	IsSet(obj map[string]any) bool
	// Acknowledged: while it is paused nothing writes to the object, and a controller that
	// publishes the condition Paused shows it as True.
	Acknowledged() bool
	// AtWork reports whether controllers work on an object whose own switch is not set by us,
	// while its Cluster is at work or not.
	AtWork(clusterAtWork bool) bool
	// Passive: nothing reconciles such an object in a way that could do harm.
	Passive() bool
	// Late: there is no way to pause it, so it is created when its workload cluster is released.
	Late() bool
	// Supported is false for a switch that this version cannot set. It blocks the unit of an
	// object.
	Supported() bool
	// Gate is what a release asks of an object; nil when its switch may be given back at any time.
	Gate() Gate
}

// The mechanisms.
var (
	// PauseBySpec is the object's own spec.paused. It pauses the whole unit, so it is the last
	// switch that a release unsets.
	PauseBySpec Pause = specSwitch{}
	// PauseByAnnotation is the annotation cluster.x-k8s.io/paused on the object itself. The pause
	// of its Cluster does not reach it.
	PauseByAnnotation Pause = annotationSwitch{}
	// PauseByOwnSpec is spec.paused of an object that pauses nothing else. What it names and what its
	// Cluster has has to be at work again first.
	PauseByOwnSpec Pause = ownSpecSwitch{name: "own-spec", order: 3}
	// PauseByOwnSpecLast is the same, after all others of the unit: of what makes all the rest.
	PauseByOwnSpecLast Pause = ownSpecSwitch{name: "own-spec-last", order: 4}
	// PauseByReconcilePolicy is the switch of resources of the Azure Service Operator, in the way in
	// which cluster-api-provider-azure sets it.
	PauseByReconcilePolicy Pause = policySwitch{}
	// PauseByHostAnnotation is the annotation of a BareMetalHost of Metal3, with its status in another
	// one.
	PauseByHostAnnotation Pause = hostSwitch{}
	// PauseWithCluster is the switch of its Cluster.
	PauseWithCluster Pause = noSwitch{name: "with-cluster", acknowledged: true, withCluster: true}
	// PauseNone is for kinds that nothing reconciles in a way that could do harm.
	PauseNone Pause = noSwitch{name: "none", passive: true}
	// PauseNever is for kinds that must not be paused, on either side, such as ClusterClass.
	PauseNever Pause = noSwitch{name: "never", atWork: true}
	// PauseUnsupported is a switch of its own that this version does not know how to set and to
	// give back.
	PauseUnsupported Pause = noSwitch{name: "unsupported", acknowledged: true, unsupported: true}
	// PauseUnknown is for kinds of which no switch is known. They are created last, when their
	// workload cluster is released.
	PauseUnknown Pause = noSwitch{name: "unknown", atWork: true, late: true}
)

// pauses are all mechanisms, for those who name one.
var pauses = []Pause{PauseBySpec, PauseByAnnotation, PauseByOwnSpec, PauseByOwnSpecLast,
	PauseByReconcilePolicy, PauseByHostAnnotation, PauseWithCluster, PauseNone, PauseNever,
	PauseUnsupported, PauseUnknown}

// noSwitch is every mechanism without a switch in the object itself.
type noSwitch struct {
	name                                                          string
	acknowledged, withCluster, atWork, passive, late, unsupported bool
}

func (p noSwitch) String() string             { return p.name }
func (noSwitch) Order() int                   { return 0 }
func (noSwitch) Set(map[string]any) string    { return WasAbsent }
func (noSwitch) Unset(map[string]any, string) {}
func (noSwitch) IsSet(map[string]any) bool    { return false }
func (p noSwitch) Acknowledged() bool         { return p.acknowledged }
func (p noSwitch) AtWork(clusterAtWork bool) bool {
	return p.atWork || p.withCluster &&
		clusterAtWork
}
func (p noSwitch) Passive() bool   { return p.passive }
func (p noSwitch) Late() bool      { return p.late }
func (p noSwitch) Supported() bool { return !p.unsupported }
func (noSwitch) Gate() Gate        { return nil }

// ownSwitch is what the mechanisms with a switch in the object itself have in common.
type ownSwitch struct{}

func (ownSwitch) Acknowledged() bool { return true }
func (ownSwitch) Passive() bool      { return false }
func (ownSwitch) Late() bool         { return false }
func (ownSwitch) Supported() bool    { return true }
func (ownSwitch) Gate() Gate         { return nil }

type annotationSwitch struct{ ownSwitch }

func (annotationSwitch) String() string   { return "annotation" }
func (annotationSwitch) Order() int       { return 1 }
func (annotationSwitch) AtWork(bool) bool { return true }

func (annotationSwitch) IsSet(obj map[string]any) bool {
	_, set := annotations(obj)[AnnotationPaused]
	return set
}

func (p annotationSwitch) Set(obj map[string]any) string {
	if p.IsSet(obj) {
		return WasTrue
	}
	Annotate(obj, AnnotationPaused, "")
	return WasAbsent
}

func (annotationSwitch) Unset(obj map[string]any, was string) {
	if was != WasTrue {
		Unannotate(obj, AnnotationPaused)
	}
}

type specSwitch struct{ ownSwitch }

func (specSwitch) String() string                 { return "spec" }
func (specSwitch) Order() int                     { return 2 }
func (specSwitch) AtWork(clusterAtWork bool) bool { return clusterAtWork }

func (specSwitch) IsSet(obj map[string]any) bool {
	spec, _ := obj["spec"].(map[string]any)
	paused, _ := spec["paused"].(bool)
	return paused
}

func (specSwitch) Set(obj map[string]any) string {
	was := WasAbsent
	spec, ok := obj["spec"].(map[string]any)
	if paused, set := spec["paused"].(bool); set {
		was = strconv.FormatBool(paused)
	}
	if !ok {
		spec = map[string]any{}
		obj["spec"] = spec
	}
	spec["paused"] = true
	return was
}

func (specSwitch) Unset(obj map[string]any, was string) {
	spec, ok := obj["spec"].(map[string]any)
	switch {
	case !ok:
	case was == WasAbsent:
		delete(spec, "paused")
	default:
		spec["paused"] = was == WasTrue
	}
}

// ownSpecSwitch is spec.paused of an object that is at work whatever its Cluster does.
type ownSpecSwitch struct {
	specSwitch
	name  string
	order int
}

func (p ownSpecSwitch) String() string { return p.name }
func (p ownSpecSwitch) Order() int     { return p.order }
func (ownSpecSwitch) AtWork(bool) bool { return true }

// The annotations of resources of the Azure Service Operator. cluster-api-provider-azure pauses
// them by the policy "skip", stores the policy of before in the second one, and by it gives the
// policy back (cluster-api-provider-azure v1.26, azure/services/aso/aso.go, PauseResource).
const (
	annotationPolicy    = "serviceoperator.azure.com/reconcile-policy"
	annotationPrePolicy = "sigs.k8s.io/cluster-api-provider-azure-pre-pause-reconcile-policy"
	policySkip          = "skip"
)

// policySwitch pauses as cluster-api-provider-azure does, so that either of the two finds what the
// other one has paused. A resource whose policy is "skip" already is paused by somebody else: by a
// user, or by that provider, which gives the policy back when its Cluster is at work again.
type policySwitch struct{ ownSwitch }

func (policySwitch) String() string   { return "reconcile-policy" }
func (policySwitch) Order() int       { return 1 }
func (policySwitch) AtWork(bool) bool { return true }

func (policySwitch) IsSet(obj map[string]any) bool {
	return annotations(obj)[annotationPolicy] == policySkip
}

func (p policySwitch) Set(obj map[string]any) string {
	if p.IsSet(obj) {
		return WasTrue
	}
	before, was := "", WasAbsent
	if policy, ok := annotations(obj)[annotationPolicy].(string); ok {
		before, was = policy, WasFalse
	}
	if _, ok := annotations(obj)[annotationPrePolicy]; !ok {
		Annotate(obj, annotationPrePolicy, before)
	}
	Annotate(obj, annotationPolicy, policySkip)
	return was
}

func (policySwitch) Unset(obj map[string]any, was string) {
	before, ok := annotations(obj)[annotationPrePolicy].(string)
	if was == WasTrue || !ok {
		return // somebody else paused it, or the provider gave the policy back
	}
	Unannotate(obj, annotationPrePolicy)
	if was == WasAbsent && before == "" {
		Unannotate(obj, annotationPolicy)
		return
	}
	Annotate(obj, annotationPolicy, before)
}

// Pause sets the switch of obj's kind, if it has one of its own, and marks in obj what it was. It
// may run again: it sets a switch that somebody has unset since, and marks what that one left. It
// reports whether it changed anything.
func (t *Table) Pause(obj map[string]any) bool {
	p := t.RowOf(obj).Pause
	if p.Order() == 0 || PausedByUs(obj) && p.IsSet(obj) {
		return false
	}
	Annotate(obj, AnnotationWasPaused, p.Set(obj))
	return true
}

// PauseFirst pauses an object whose controller takes long to acknowledge a pause, and which its
// Cluster pauses (Row.RateLimited), by the annotation of its own, so that its workload cluster is
// at work until the controller has acknowledged that. It may run again, and Unpause gives the
// annotation back. It reports whether it changed anything.
func (t *Table) PauseFirst(obj map[string]any) bool {
	if !t.RowOf(obj).PausesFirst() || PausedByUs(obj) && PauseByAnnotation.IsSet(obj) {
		return false
	}
	Annotate(obj, AnnotationWasPaused, PauseByAnnotation.Set(obj))
	return true
}

// Unpause gives the switch back. A switch that we did not set stays as it is: somebody else set
// it. It reports whether it changed anything.
func (t *Table) Unpause(obj map[string]any) bool {
	if !PausedByUs(obj) {
		return false
	}
	was, _ := annotations(obj)[AnnotationWasPaused].(string)
	t.markedSwitch(obj).Unset(obj, was)
	Unannotate(obj, AnnotationWasPaused)
	return true
}

// markedSwitch returns the switch of obj that has the mark.
func (t *Table) markedSwitch(obj map[string]any) Pause {
	if p := t.RowOf(obj).Pause; p.Order() > 0 {
		return p
	}
	return PauseByAnnotation // by PauseFirst, or an older version paused the kind: an ExtensionConfig
}

// PausesObject reports whether an annotation pauses objects of some kind, or stores what was before
// such a pause, or the status that a paused object is to have. Those that end with "/paused" are
// also those of kinds that this version does not know.
func PausesObject(annotation string) bool {
	return annotation == annotationPolicy || annotation == annotationPrePolicy ||
		annotation == annotationHostStatus || strings.HasSuffix(annotation, "/paused")
}

// PausedByUs reports whether an operation set the switch of obj and has not given it back.
func PausedByUs(obj map[string]any) bool {
	_, ours := annotations(obj)[AnnotationWasPaused]
	return ours
}

// StillPaused reports whether obj is PausedByUs, and its switch is set: who ends such a pause by
// hand, as the documents of its controller say, leaves the mark.
func (t *Table) StillPaused(obj map[string]any) bool {
	return PausedByUs(obj) && t.markedSwitch(obj).IsSet(obj)
}
