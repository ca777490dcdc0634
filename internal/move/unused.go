package move

import (
	"context"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// unused returns the shared objects of the plan that no unit is known to use, such as a class that
// nothing is made of now, that no batch has brought to the target, and that move with these units.
// They move because their namespaces do, or everything. Those in a namespace that has workload
// clusters of the plan, and that are not paused ahead (pauseShared), move with the first batch from
// there, so that no pause is longer because of other namespaces; all others with the next batch.
func (m *run) unused(ctx context.Context, units []string) ([]object.Ref, error) {
	here, later := m.namespacesOf(units[0]), m.namespacesOfPlan() // units go together
	var unused []object.Ref
	for _, o := range m.Plan.Copy.Shared.Objects {
		switch {
		case o.Action == restore.Skip, len(o.Users) > 0,
			o.GroupKind() == kube.NamespaceKind.GroupKind:
		case later[o.Namespace] && !slices.Contains(here, o.Namespace) &&
			!m.Rows.Row(o.GroupKind()).PausedShared:
		default:
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
			// What is paused for the move may be settled by the time of the next batch.
			again := o.Action == restore.Skip && m.Rows.Row(o.GroupKind()).PausedShared
			moved[o.Ref] = moved[o.Ref] || handedOver && !again
		}
	}
	return slices.DeleteFunc(unused, func(r object.Ref) bool { return moved[r] }), nil
}

// namespacesOfPlan returns the namespaces in which the plan has workload clusters, or objects of
// them, but for those that have left the move.
func (m *run) namespacesOfPlan() map[string]bool {
	found := map[string]bool{}
	for _, u := range m.Plan.Copy.Units {
		if m.hasLeft(u.Name) {
			continue
		}
		namespace, _, _ := strings.Cut(u.Name, "/")
		found[namespace] = true
		for _, namespace := range m.namespaces[u.Name] {
			found[namespace] = true
		}
	}
	return found
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

// specIn returns the spec of the copy of units, and of what moves with them although they do not
// use it, from a graph that has their namespaces and no others: the plan may select what it does
// not have.
func (m *run) specIn(g *graph.Graph, units []string, unused []object.Ref) restore.Spec {
	spec := m.Plan.Spec.copySpec(units)
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
	spec.Selection, spec.Also = restore.Selection{Workloads: there}, unused
	return spec
}
