package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// extraObject is an object of the target that belongs to a unit of the plan and is not in the plan.
type extraObject struct {
	object.Ref
	unit string
}

// belonging finds what the target has of the units of a plan.
type belonging struct {
	planned map[object.Ref]string // objects of units, and their units
	units   map[object.Key]string // by namespace and name of their Cluster
	wanted  map[object.Ref]bool   // all that is planned
	// namespaces are those of all that is planned.
	namespaces map[string]bool
}

func (p *planner) belonging() *belonging {
	b := &belonging{planned: map[object.Ref]string{}, units: map[object.Key]string{},
		wanted: map[object.Ref]bool{}, namespaces: map[string]bool{}}
	for n := range p.active {
		b.wanted[n.Ref] = true
		if n.Namespace != "" {
			b.namespaces[n.Namespace] = true
		}
		if n.Unit != "" {
			b.planned[n.Ref] = n.Unit
		}
		if n.GroupKind() == capi.Cluster && n.Unit != "" {
			b.units[n.Key()] = n.Unit
		}
	}
	return b
}

// listedIn returns the namespaces in which a plan lists a kind, none for all of them, and whether
// it lists it at all. The plan of a batch lists its own: an object belongs to a unit by the name of
// a Cluster, or by an owner, in its own namespace, and most objects of the target are of the
// batches before. What a plan does to other Clusters is checked in all namespaces. So is, by the
// plan of the whole operation, whether the target can list the objects of a kind that it has.
func (p *planner) listedIn(k kube.Kind, b *belonging) (namespaces []string, listed bool) {
	if p.Spec.Only == nil || !k.Namespaced || k.GroupKind == capi.Cluster {
		return nil, true
	}
	return slices.Sorted(maps.Keys(b.namespaces)), len(b.namespaces) > 0
}

// unitOf returns the unit to which an object belongs by its label or an owner; "" when there is
// none. meta is its metadata.
func (b *belonging) unitOf(namespace string, meta gjson.Result) string {
	name := meta.Get("labels").Map()[capi.LabelClusterName].String()
	if unit := b.units[object.Key{Namespace: namespace, Name: name}]; unit != "" {
		return unit
	}
	unit := ""
	meta.Get("ownerReferences").ForEach(func(_, o gjson.Result) bool {
		unit = b.planned[capi.RefOf(o, object.GroupKind{}, namespace,
			func(object.GroupKind) bool { return true })] // what is cluster-scoped is in no unit
		return unit == ""
	})
	return unit
}

// listed records what an object of the target is to the plan: one of its own, or one that belongs
// to a unit and is in the way.
func (p *planner) listed(k kube.Kind, b *belonging, raw []byte) {
	meta := gjson.GetBytes(raw, "metadata")
	ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: meta.Get("namespace").String(),
		Name: meta.Get("name").String()}
	wanted := b.wanted[ref]
	unit := ""
	if !wanted && ref.Namespace != "" {
		unit = b.unitOf(ref.Namespace, meta)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.GroupKind == capi.Cluster {
		set := labels.Set(capi.LabelsOf(gjson.ParseBytes(raw)))
		p.targetClusters[object.Key{Namespace: ref.Namespace, Name: ref.Name}] = set
	}
	switch {
	case wanted:
		// gjson returns a part of the metadata, all of which would stay in memory with the plan.
		p.existing[ref] = strings.Clone(meta.Get("uid").String())
		p.leaving[ref] = meta.Get("deletionTimestamp").Exists()
	case unit != "" && !p.comesByItself(k, ref):
		p.extra = append(p.extra, extraObject{ref, unit})
	}
}

// comesByItself reports whether controllers make such an object for a Cluster that they find, and
// remove it with the Cluster.
func (p *planner) comesByItself(k kube.Kind, ref object.Ref) bool {
	_, lock := p.rows().ClusterOfLock(ref)
	return lock || p.rows().Row(k.GroupKind).BoundToCluster
}

// listedKinds returns the kinds of which a plan lists the metadata on the target: those of the
// plan, whole, and the other kinds of Cluster API, as far as objects have the label of a workload
// cluster. The plan of a batch lists kinds of which all its objects have that label by the label: a
// namespace may have many workload clusters. What belongs to a unit by an owner alone was looked
// for by the plan of the whole operation.
func (p *planner) listedKinds() map[object.GroupKind]kube.ListOptions {
	kinds := map[object.GroupKind]kube.ListOptions{}
	ofUnits, whole := p.ofUnits()
	for gk := range p.kinds {
		kinds[gk] = kube.ListOptions{Metadata: true}
		if !whole[gk] {
			kinds[gk] = kube.ListOptions{Metadata: true, Labels: ofUnits}
		}
	}
	for _, k := range p.Kinds {
		if _, planned := kinds[k.GroupKind]; planned || !k.Namespaced ||
			!k.Contract && !p.rows().Known(k.GroupKind) {
			continue
		}
		kinds[k.GroupKind] = kube.ListOptions{Metadata: true, Labels: capi.LabelClusterName}
	}
	if _, ok := kinds[capi.Cluster]; ok {
		kinds[capi.Cluster] = kube.ListOptions{Metadata: true}
	}
	return kinds
}

// mostSelected is how many workload clusters a label selector names at most: it is a part of a URL.
const mostSelected = 32

// ofUnits returns the label selector of what belongs to the units of the plan of a batch, empty for
// any other plan, and the kinds of which the plan has objects that the selector does not select.
func (p *planner) ofUnits() (selector string, whole map[object.GroupKind]bool) {
	whole = map[object.GroupKind]bool{}
	names := map[string]bool{}
	for n := range p.active {
		switch key, err := object.ParseKey(n.Unit); {
		case err != nil: // it is in no unit
			whole[n.GroupKind()] = true
		case n.Labelled:
			names[n.Cluster], names[key.Name] = true, true
		default:
			whole[n.GroupKind()], names[key.Name] = true, true
		}
	}
	if p.Spec.Only == nil || len(names) == 0 || len(names) > mostSelected {
		return "", whole
	}
	return capi.LabelClusterName + " in (" + strings.Join(slices.Sorted(maps.Keys(names)), ",") + ")",
		whole
}

// checkExtra reports objects of the target that belong to a unit and are not in the plan. Their
// controllers count them as soon as the unit is released: a MachineSet with a leftover Machine of
// an earlier attempt scales down, and may delete the Machine that lives. A unit at work on the
// target is adopted as it is, and its controllers may have made more since the snapshot.
func checkExtra(_ context.Context, p *planner) error {
	slices.SortFunc(p.extra, func(a, b extraObject) int { return object.CompareRefs(a.Ref, b.Ref) })
	for _, e := range p.extra {
		if p.atWork[e.unit] {
			continue
		}
		f := object.Finding{Severity: object.Error, Code: object.CodeExtraOnTarget, Ref: e.Ref,
			Unit: e.unit, Message: fmt.Sprintf("the target has it, it belongs to %s, and the snapshot does "+
				"not have it: once the workload cluster is released, its controllers count it", e.unit),
			Hint: "find out who made it: undo the operation that left it there, or use a newer snapshot " +
				"that has it"}
		if p.rows().Row(e.GroupKind()).Pause.Passive() || p.Spec.Force.Has(f.Code) {
			f.Severity = object.Warning
		}
		p.addAll(f)
	}
	return nil
}
