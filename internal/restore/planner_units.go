package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// ownersSeen is Plan.OwnersSeen.
func (p *planner) ownersSeen() map[string]time.Time {
	seen := map[string]time.Time{}
	for uid, is := range p.Overridden {
		seen[uid] = is.Seen
	}
	return seen
}

// plan assembles the plan from the findings and what is on the target.
func (p *planner) plan() *Plan {
	plan := &Plan{Snapshot: p.Source, Target: p.Target, Spec: p.Spec, Findings: p.findings,
		Epochs: map[string]int64{}, SourceSeen: p.Evidence.Seen, OwnersSeen: p.ownersSeen()}
	byUnit := map[string][]*graph.Node{}
	for _, n := range p.nodes {
		byUnit[n.Unit] = append(byUnit[n.Unit], n)
	}
	for _, name := range slices.Sorted(maps.Keys(byUnit)) {
		u := p.unit(name, byUnit[name])
		if name == "" {
			plan.Shared = u
			continue
		}
		plan.Units = append(plan.Units, u)
		if o, ok := p.Owners[u.WorkloadID]; ok {
			plan.Epochs[u.WorkloadID] = o.Highest()
		}
		if by := p.owners().Overrides(u.WorkloadID); by.UID != "" {
			if plan.Overridden == nil {
				plan.Overridden = map[string]object.Side{}
			}
			plan.Overridden[u.WorkloadID] = by
		}
		if epoch := p.OriginEpochs[u.WorkloadID]; epoch > 0 {
			if plan.OriginEpochs == nil {
				plan.OriginEpochs = map[string]int64{}
			}
			plan.OriginEpochs[u.WorkloadID] = epoch
		}
	}
	plan.decide()
	p.skipUnneeded(plan)
	p.holdPools(plan)
	plan.sortFindings()
	return plan
}

// skipUnneeded leaves out shared objects that only blocked units need.
func (p *planner) skipUnneeded(plan *Plan) {
	blocked := map[string]bool{}
	for _, u := range plan.Units {
		blocked[u.Name] = u.Blocked
	}
	var selected []*graph.Node
	for n := range p.active {
		owned := n.Unit == "" && (len(p.users[n]) == 0 || slices.ContainsFunc(n.Owners,
			func(o graph.Owner) bool {
				owner := p.Snapshot.Graph.Owner(o)
				return owner != nil && owner.Unit != "" && p.inPlan(owner.Ref) && !blocked[owner.Unit]
			}))
		if n.Unit != "" && !blocked[n.Unit] || owned {
			selected = append(selected, n)
		}
	}
	needed := map[object.Ref]bool{}
	for _, n := range p.Snapshot.Graph.Closure(selected) {
		needed[n.Ref] = true
	}
	for i := range plan.Shared.Objects {
		if o := &plan.Shared.Objects[i]; o.Action != Skip && !needed[o.Ref] {
			o.Action, o.Reason = Skip, "only blocked units need it"
		}
	}
}

func (p *planner) unit(name string, nodes []*graph.Node) Unit {
	u := Unit{Name: name, OtherMachines: p.others[name], Gone: p.gone[name], Held: p.held[name],
		Compared: p.compared[name], Objects: make([]Object, 0, len(nodes))}
	wave := 0
	var early, late []*graph.Node
	for _, n := range nodes {
		if isLate(p.Snapshot.Graph, n) {
			late = append(late, n)
		} else {
			early = append(early, n)
		}
	}
	for _, part := range [][]*graph.Node{early, late} {
		for _, nodes := range p.Snapshot.Graph.Waves(part) {
			wave++
			for _, n := range nodes {
				o := p.object(n, wave)
				u.Objects = append(u.Objects, o)
				if n.GroupKind() == capi.Machine {
					u.Machines++
				}
				if n.GroupKind() == capi.Cluster && n.Key().String() == name {
					u.WorkloadID, u.StaysPaused = n.WorkloadID, n.Paused || p.pausedByHand[name]
				}
			}
		}
	}
	return u
}

// isLate reports whether an object is created after the release: objects of a kind with no known
// pause, since controllers work on them as soon as they are created, and passive ones that such an
// object owns.
func isLate(g *graph.Graph, n *graph.Node) bool {
	pause := g.Rows.Row(n.GroupKind()).Pause
	return pause.Late() || pause.Passive() && ownedByLate(g, n)
}

func ownedByLate(g *graph.Graph, n *graph.Node) bool {
	return slices.ContainsFunc(n.Owners, func(o graph.Owner) bool {
		owner := g.Node(o.Ref)
		return owner != nil && g.Rows.Row(owner.GroupKind()).Pause.Late()
	})
}

func (p *planner) object(n *graph.Node, wave int) Object {
	o := Object{Ref: n.Ref, Version: n.Version, Wave: wave, Late: isLate(p.Snapshot.Graph, n),
		Action: Create, UID: p.existing[n.Ref], Paused: n.Paused, Held: p.heldBack[n.Ref],
		Modified: p.modifiedPaths[n.Ref]}
	o.Ours = p.isCopied(n)
	if o.UID != "" && !p.left[n] && !o.Ours {
		o.Action = Adopt
	}
	_, o.Checked = p.checked.Load(n.Ref)
	if why := p.skipped[n]; why != "" {
		o.Action, o.Reason = Skip, why
	}
	if n.Unit == "" {
		o.Users = p.usersOf(n)
	}
	for _, owner := range n.Owners {
		if !p.inPlan(owner.Ref) && p.outside[owner.Ref] == "" && (p.dropped[owner.Ref] ||
			p.comesLater(n, owner.Ref)) {
			continue
		}
		if uid := p.outside[owner.Ref]; uid != "" {
			if o.Outside == nil {
				o.Outside = map[int]string{}
			}
			o.Outside[len(o.Owners)] = uid
		}
		o.Owners = append(o.Owners, owner.Ref)
	}
	return o
}

// usersOf returns the units that need a shared node, or own it.
func (p *planner) usersOf(n *graph.Node) []string {
	units := slices.Clone(p.users[n])
	for _, o := range n.Owners {
		if owner := p.Snapshot.Graph.Node(o.Ref); owner != nil && owner.Unit != "" && p.inPlan(o.Ref) {
			units = append(units, owner.Unit)
		}
	}
	slices.Sort(units)
	return slices.Compact(units)
}

// object decodes an object of the snapshot.
func decodeObject(rows *capi.Table, c Contents, r object.Ref) (
	*unstructured.Unstructured, error) {
	raw, err := c.Bytes(r)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decode %s: %w", r, jsonError(err))
	}
	stripOwnMarks(rows, u)
	return u, nil
}

// stripOwnMarks takes from an object what an operation of ours had written to it when the snapshot
// was taken: a move takes one of its source while it is paused.
func stripOwnMarks(rows *capi.Table, u *unstructured.Unstructured) {
	rows.Unpause(u.Object)
	capi.Unannotate(u.Object, annotationOperation)
	capi.Unannotate(u.Object, capi.AnnotationFenced)
	if heldByOperation(u) {
		capi.Unannotate(u.Object, capi.AnnotationSkipRemediation)
	}
}

// jsonError returns the position of a syntax error without the text around it, which may be of a
// Secret.
func jsonError(err error) error {
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("invalid JSON at offset %d", s.Offset)
	}
	return fmt.Errorf("invalid JSON (%T)", err)
}
