package restore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// findPoolUsers finds, for each pool of addresses of the plan, the workload clusters of the
// snapshot that have something of it, such as an address, which is not on the target, and the
// addresses that belong to no workload cluster, are not there, and do not come with the plan.
func (p *planner) findPoolUsers(ctx context.Context) error {
	if p.Spec.SourceAtWork {
		return nil // a move has a check of its own
	}
	using := map[object.Ref][]*graph.Node{}
	for n := range p.active {
		if n.Unit == "" && p.rows().Row(n.GroupKind()).AddressPool {
			using[n.Ref] = nil
		}
	}
	if len(using) == 0 {
		return nil
	}
	kinds := map[object.GroupKind]bool{}
	for _, n := range p.Snapshot.Graph.Nodes {
		for _, need := range n.Needs {
			alone := n.Unit == "" && p.rows().Row(n.GroupKind()).Address && !p.inPlan(n.Ref)
			if users, ok := using[need.Ref]; ok && (n.Unit != "" || alone) {
				using[need.Ref], kinds[n.GroupKind()] = append(users, n), true
			}
		}
	}
	lives, err := p.namesOf(ctx, kinds)
	if err != nil {
		return err
	}
	for pool, nodes := range using {
		absent := map[string]bool{}
		for _, n := range nodes {
			if !lives[n.Ref] {
				absent[cmp.Or(n.Unit, n.Ref.String())] = true
			}
		}
		p.poolUsers[pool] = slices.Sorted(maps.Keys(absent))
	}
	return nil
}

// namesOf returns the objects of kinds that are on the target.
func (p *planner) namesOf(ctx context.Context, kinds map[object.GroupKind]bool) (
	map[object.Ref]bool, error) {
	lives := map[object.Ref]bool{}
	for _, gk := range slices.SortedFunc(maps.Keys(kinds), func(a, b object.GroupKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind))
	}) {
		k, ok := kube.FindKind(p.Kinds, gk)
		if !ok {
			continue
		}
		if _, err := p.Reader.List(ctx, k, kube.ListOptions{Metadata: true}, func(raw []byte) error {
			name := gjson.GetManyBytes(raw, "metadata.namespace", "metadata.name")
			lives[object.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: name[0].String(),
				Name: name[1].String()}] = true
			return nil
		}); err != nil {
			return nil, fmt.Errorf("list users of address pools: %w", err)
		}
	}
	return lives, nil
}

// holdPools holds back the pools of addresses that also serve workload clusters which neither come
// with the plan nor are on the target: their addresses are in use, and a pool at work that does not
// find them hands them out once more. A held pool is created paused and stays so, and one that
// cannot be paused is not created. A restore of the others gives it back.
func (p *planner) holdPools(plan *Plan) {
	comes := map[string]bool{}
	for _, u := range plan.Units {
		comes[u.Name] = !u.Blocked
	}
	for i := range plan.Shared.Objects {
		o := &plan.Shared.Objects[i]
		for _, unit := range p.poolUsers[o.Ref] {
			if !comes[unit] && o.Action != Skip {
				o.Awaits = append(o.Awaits, unit)
			}
		}
		if len(o.Awaits) == 0 {
			continue
		}
		plan.Findings = append(plan.Findings, holdPool(o))
	}
}

// holdPool holds back a pool for the workload clusters that it awaits, and returns the finding
// about it.
func holdPool(o *Object) object.Finding {
	f := object.Finding{Severity: object.Warning, Code: object.CodePoolShared, Ref: o.Ref,
		Message: fmt.Sprintf("it also has addresses of what is not on the target: %s; it stays paused, "+
			"so that it does not hand them out once more", listed(o.Awaits)),
		Hint: "restore that, too: with the last of it the pool is released"}
	switch {
	case o.Action == Adopt:
		f.Message = fmt.Sprintf("it is on the target and has addresses of what is not there: %s; while "+
			"it is at work it may hand them out once more", listed(o.Awaits))
		f.Hint = "restore that, too, or pause the pool until it is there"
	case o.Late:
		o.Action, o.Reason = Skip, string(object.CodePoolShared)
		f.Message = fmt.Sprintf("it also has addresses of what is not on the target: %s; it has no "+
			"pause, so it is not created", listed(o.Awaits))
		f.Hint = "restore that, too: the pool comes with the last of it"
	}
	return f
}
