package move

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// Spec is what decides the plan of a move.
type Spec struct {
	Selection     restore.Selection     `json:"selection"`
	Force         object.Forced         `json:"force,omitempty"`
	NoFence       bool                  `json:"noFence,omitempty"`
	DropOwners    []object.Ref          `json:"dropOwners,omitempty"`
	ManagedFields restore.ManagedFields `json:"managedFields,omitempty"`
	// Accept are the differences that keep no unit paused.
	Accept []object.AcceptedDifference `json:"accept,omitempty"`
	// SuspendGitOps: the move suspends the owners of what it moves, see package gitops.
	SuspendGitOps bool `json:"suspendGitOps,omitempty"`
}

// copySpec returns the restore.Spec of the copy of some units; nil selects all.
func (s Spec) copySpec(only []string) restore.Spec {
	return restore.Spec{Selection: s.Selection, Force: s.Force, DropOwners: s.DropOwners,
		ManagedFields: s.ManagedFields, Accept: s.Accept, SourceAtWork: true, Only: only}
}

// Plan is what a move will do, as its pre-flight saw it. It is data: no client, no content, no
// secret. The copy of each batch is planned again once the units of the batch are paused.
type Plan struct {
	Source object.Side `json:"source"`
	Target object.Side `json:"target"`
	Spec   Spec        `json:"spec"`
	// Copy is the plan of the copy, with the findings of both sides.
	Copy restore.Plan `json:"copy"`
	// Locks are the locks of other operations that pre-flight found, by unit. With Spec.Force a run
	// replaces these locks, and no other.
	Locks map[string]string `json:"locks,omitempty"`
	// Epochs are the epochs of the ownership records that pre-flight found, by id of the workload
	// cluster.
	Epochs map[string]int64 `json:"epochs,omitempty"`
	// Suspend are the owners that the move suspends before the first pause, roots first.
	Suspend []Suspension `json:"suspend,omitempty"`
}

// Digest is a hash over what the plan does: two plans with one digest do the same.
func (p *Plan) Digest() string {
	if len(p.Suspend) == 0 {
		return p.Copy.Digest()
	}
	h := sha256.New()
	fmt.Fprintln(h, p.Copy.Digest())
	for _, s := range p.Suspend {
		fmt.Fprintln(h, s.Owner)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// NewPlan plans a move: it captures both sides, runs every pre-flight check, and changes nothing.
// Findings are in the plan; an error means that planning itself failed.
func NewPlan(ctx context.Context, e Ends, spec Spec) (*Plan, error) {
	plan, _, err := newPlan(ctx, e, spec)
	return plan, err
}

// newPlan is NewPlan, and returns the capture of the source as well.
func newPlan(ctx context.Context, e Ends, spec Spec) (*Plan, *sourceCapture, error) {
	began := time.Now()
	source, contents, err := snapshot.CaptureInMemory(ctx, e.Source.options)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.planFrom(ctx, spec, source, contents)
	return p, finishedCapture(began, source, contents), err
}

// planFrom plans a move of what a capture of the source has.
func (e Ends) planFrom(ctx context.Context, spec Spec, source *snapshot.Snapshot,
	contents *snapshot.Contents) (*Plan, error) {
	nodes, err := restore.Nodes(source, spec.copySpec(nil))
	if err != nil {
		return nil, err
	}
	// What is not restored stays on the source. The plan of the copy says so.
	nodes = slices.DeleteFunc(nodes, source.Graph.CapturedOnly)
	c := checker{Ends: e, spec: spec, nodes: nodes, contents: contents, graph: source.Graph}
	findings, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	owners, err := ownership.Owners(ctx, e.Store)
	if err != nil {
		return nil, err
	}
	p := &Plan{Source: e.Source.Side, Target: e.Target.Side, Spec: spec, Locks: c.locks,
		Suspend: c.suspend}
	copied, err := e.planCopy(ctx, restore.Input{Snapshot: source, Contents: contents,
		Source: restore.Snapshot{Source: e.Source.Side, Time: source.Envelope.Time},
		Spec:   spec.copySpec(nil), Owners: owners, Findings: findings})
	if err != nil {
		return nil, err
	}
	p.Copy, p.Epochs = *copied, copied.Epochs
	p.reportBlockedUsers(e.Rows)
	if len(p.Copy.Units) == 0 {
		return nil, &restore.SelectionError{Reason: "the selection holds no workload cluster",
			Has: "a move moves workload clusters, and what they share"}
	}
	return p, nil
}

// toTarget sets the fields of in that describe the target, but for a Reader that is set.
func (e Ends) toTarget(in restore.Input) restore.Input {
	if in.Target, in.Prober = e.Target.Side, e.Target.Prober; in.Reader == nil {
		in.Reader = e.Target.Reader
	}
	in.Kinds, in.Providers, in.Schemas = e.Target.Kinds, e.Target.Providers, e.Target.schemas
	in.Source.StoreID, in.Modifiers = e.Store.ID(), e.Modifiers
	return in
}

// planCopy plans a copy to the target, see toTarget.
func (e Ends) planCopy(ctx context.Context, in restore.Input) (*restore.Plan, error) {
	in = e.toTarget(in)
	overridden, err := e.askOverridden(ctx, in)
	if err != nil {
		return nil, err
	}
	in.Overridden = overridden
	returning, err := e.returning(ctx, in)
	if err != nil {
		return nil, err
	}
	in.Findings = append(slices.Clone(in.Findings), returning...)
	return restore.NewPlan(ctx, in)
}

// askOverridden asks the owners whose records the operator overrides.
func (e Ends) askOverridden(ctx context.Context, in restore.Input) (
	map[string]preflight.Overridden, error) {
	var records []ownership.Record
	for _, r := range in.Owners {
		if in.Spec.Force.HasFor(object.CodeOwnedElsewhere, r.By) && r.By != e.Source.Side &&
			r.By != e.Target.Side {
			records = append(records, r)
		}
	}
	if len(records) == 0 || e.Overridden == nil {
		return nil, nil
	}
	return e.Overridden(ctx, records...)
}

// nodesOf returns the nodes of one unit.
func nodesOf(g *graph.Graph, unit string) []*graph.Node {
	return slices.DeleteFunc(slices.Clone(g.Nodes),
		func(n *graph.Node) bool { return n.Unit != unit })
}

func clusterRef(unit string) (object.Ref, error) {
	key, err := object.ParseKey(unit)
	return object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: key.Namespace, Name: key.Name}, err
}
