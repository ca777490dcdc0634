package move

import (
	"context"
	"slices"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// unused returns the shared objects of the plan that no unit uses, such as a class that nothing is
// made of now, and that no batch has brought to the target. They move because their namespaces do,
// or everything, with the next batch.
func (m *run) unused(ctx context.Context) ([]object.Ref, error) {
	var unused []object.Ref
	for _, o := range m.Plan.Copy.Shared.Objects {
		if o.Action != restore.Skip && len(o.Users) == 0 &&
			o.GroupKind() != kube.NamespaceKind.GroupKind {
			unused = append(unused, o.Ref)
		}
	}
	if len(unused) == 0 {
		return nil, nil
	}
	moved := map[object.Ref]bool{}
	for _, b := range m.batches {
		handedOver, err := m.anyHandedOver(ctx, b)
		if err != nil {
			return nil, err
		}
		for _, o := range b.Copy.Shared.Objects {
			moved[o.Ref] = moved[o.Ref] || handedOver
		}
	}
	return slices.DeleteFunc(unused, func(r object.Ref) bool { return moved[r] }), nil
}

func namespacesOfRefs(refs []object.Ref) (found []string) {
	for _, r := range refs {
		if r.Namespace != "" {
			found = append(found, r.Namespace)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// specIn returns the spec of the copy of units from a graph that has their namespaces and no
// others: the plan may select what it does not have. With unused it selects what of the plan nobody
// uses as well.
func (m *run) specIn(g *graph.Graph, units []string, unused bool) restore.Spec {
	spec := m.Plan.Spec.copySpec(units)
	all := spec.Selection
	if unused && len(all.Namespaces) == 0 && len(all.Workloads) == 0 && all.Selector == "" {
		return spec
	}
	var there, keys []object.Key
	for _, unit := range units {
		key, _ := object.ParseKey(unit)
		keys = append(keys, key)
		if ref, _ := clusterRef(unit); g.Node(ref) != nil {
			there = append(there, key)
		}
	}
	if len(there) == 0 {
		there = keys // an error says that they are gone; one of several must not fail the others
	}
	spec.Selection = restore.Selection{Workloads: there}
	for _, namespace := range all.Namespaces {
		if unused && g.Node(object.Ref{Kind: kube.NamespaceKind.Kind, Name: namespace}) != nil {
			spec.Selection.Namespaces = append(spec.Selection.Namespaces, namespace)
		}
	}
	return spec
}
