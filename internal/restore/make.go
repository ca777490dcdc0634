package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// looks is how many objects of the target are read at once.
const looks = 16

// Reader is what planning and checking need of the target. It cannot write (invariant I7).
type Reader interface {
	List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func(raw []byte) error) (
		kube.ListResult, error)
	Get(ctx context.Context, k kube.Kind, namespace, name string) (*unstructured.Unstructured, error)
}

// Prober asks the target what it would do, and changes nothing.
type Prober interface {
	DryRunCreate(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	Allowed(ctx context.Context, verb string, k kube.Kind, subresource string) (bool, error)
}

// Input is what a plan is made from.
type Input struct {
	Snapshot  *snapshot.Snapshot
	Contents  *snapshot.Contents // of the nodes that Nodes returns
	Source    Snapshot           // names the snapshot
	Target    object.Side
	Reader    Reader
	Prober    Prober
	Kinds     []kube.Kind     // of the target
	Providers []kube.Provider // of the target
	Spec      Spec
	// Newer is the time of the newest snapshot of the source, Gaps what is wrong in the chain of
	// its snapshots.
	Newer time.Time
	Gaps  []string
	// Owners are the ownership records of the store, by id of the workload cluster.
	Owners map[string]ownership.Record
	// Findings of checks that were made before; they count like the plan's own.
	Findings []object.Finding
	Now      func() time.Time
}

// Nodes returns the nodes that a spec selects, with all that they need. It returns a
// *SelectionError.
func Nodes(s *snapshot.Snapshot, spec Spec) ([]*graph.Node, error) {
	return selectNodes(s.Graph, spec)
}

// rows is what is known of the kinds of the snapshot.
func (p *planner) rows() *capi.Table { return p.Snapshot.Graph.Rows }

// planner makes one plan.
type planner struct {
	Input
	nodes    []*graph.Node
	skipped  map[*graph.Node]string   // left out, and why
	users    map[*graph.Node][]string // units that need a shared node
	existing map[object.Ref]string    // on the target at planning, with UID
	kinds    map[object.GroupKind]kube.Kind
	// owners that are not in the snapshot but live on the target, with UID
	outside map[object.Ref]string
	dropped map[object.Ref]bool

	mu       sync.Mutex
	findings []object.Finding
}

// Make makes the plan of a restore and runs every pre-flight check. It reads the target and the
// snapshot and changes neither. Findings are in the plan; an error means that planning itself did
// not get through.
func Make(ctx context.Context, in Input) (*Plan, error) {
	nodes, err := Nodes(in.Snapshot, in.Spec)
	if err != nil {
		return nil, err
	}
	if in.Now == nil {
		in.Now = time.Now
	}
	p := &planner{
		Input: in, nodes: nodes, skipped: map[*graph.Node]string{},
		users:    map[*graph.Node][]string{},
		findings: slices.Clone(in.Findings), existing: map[object.Ref]string{},
		kinds: map[object.GroupKind]kube.Kind{}, outside: map[object.Ref]string{},
		dropped: map[object.Ref]bool{},
	}
	for _, r := range in.Spec.DropOwners {
		p.dropped[r] = true
	}
	if err := p.refuse(); err != nil {
		return nil, err
	}
	p.findUsers()
	p.tellRefused()
	p.matchKinds()
	if err := p.findExisting(ctx); err != nil {
		return nil, err
	}
	if err := p.findOwners(ctx); err != nil {
		return nil, err
	}
	for _, c := range checks {
		if err := c.run(ctx, p); err != nil {
			return nil, fmt.Errorf("check %s: %w", c.name, err)
		}
	}
	return p.plan(), nil
}

// add records a finding about a node. An error of a shared node blocks the units that need it; of a
// node that nobody needs it only leaves that node out.
func (p *planner) add(n *graph.Node, f object.Finding) {
	f.Ref = n.Ref
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case n.Unit != "":
		f.Unit = n.Unit
		p.findings = append(p.findings, f)
	case f.Severity < object.Error:
		p.findings = append(p.findings, f)
	case len(p.users[n]) == 0:
		p.skipped[n] = string(f.Code)
		f.Severity = object.Warning
		p.findings = append(p.findings, f)
	default:
		for _, unit := range p.users[n] {
			f.Unit = unit
			p.findings = append(p.findings, f)
		}
	}
}

// addAll records a finding that is about no single object.
func (p *planner) addAll(f object.Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.findings = append(p.findings, f)
}

// active yields the nodes that are not left out.
func (p *planner) active(yield func(*graph.Node) bool) {
	for _, n := range p.nodes {
		if p.skipped[n] == "" && !yield(n) {
			return
		}
	}
}

// findUsers notes for each shared node which units need it.
func (p *planner) findUsers() {
	byUnit := map[string][]*graph.Node{}
	for _, n := range p.nodes {
		if n.Unit != "" {
			byUnit[n.Unit] = append(byUnit[n.Unit], n)
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(byUnit)) {
		for _, n := range p.Snapshot.Graph.Closure(byUnit[unit]) {
			if n.Unit != unit {
				p.users[n] = append(p.users[n], unit)
			}
		}
	}
}

// tellRefused says what invariant I8 keeps from being restored. Without its Cluster a unit is
// nothing.
func (p *planner) tellRefused() {
	for _, n := range p.nodes {
		why := p.skipped[n]
		switch {
		case why == "" || n.GroupKind() == capi.Provider:
		case n.GroupKind() == capi.Cluster:
			p.add(n, object.Finding{Severity: object.Error, Code: object.CodeRefused, Message: why,
				Hint: "workload clusters live in namespaces of their own; create this one by hand if it " +
					"must be there"})
		default:
			p.add(n, object.Finding{Severity: object.Warning, Code: object.CodeRefused, Message: why,
				Hint: "create it by hand if something needs it"})
		}
	}
}

// comesLater tells of an owner of a shared object that belongs to a unit outside of the plan: the
// reference follows when that unit does.
func (p *planner) comesLater(n *graph.Node, owner object.Ref) bool {
	o := p.Snapshot.Graph.Node(owner)
	return n.Unit == "" && o != nil && o.Unit != "" && !p.inPlan(owner)
}

// matchKinds finds for each kind how the target serves it, at the version in which the snapshot has
// its objects.
func (p *planner) matchKinds() {
	for n := range p.active {
		if _, ok := p.kinds[n.GroupKind()]; ok {
			continue
		}
		if k, ok := kube.FindKind(p.Kinds, n.GroupKind()); ok && slices.Contains(k.Served, n.Version) {
			k.Version = n.Version
			p.kinds[n.GroupKind()] = k
		}
	}
}

// findExisting notes which of the planned refs are on the target already, with their UIDs: one
// metadata-only LIST a kind.
func (p *planner) findExisting(ctx context.Context) error {
	wanted := map[object.Ref]bool{}
	for n := range p.active {
		wanted[n.Ref] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, k := range p.kinds {
		g.Go(func() error {
			_, err := p.Reader.List(ctx, k, kube.ListOptions{Metadata: true}, func(raw []byte) error {
				meta := gjson.GetBytes(raw, "metadata")
				r := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: meta.Get("namespace").String(),
					Name: meta.Get("name").String()}
				if wanted[r] {
					p.mu.Lock()
					p.existing[r] = meta.Get("uid").String()
					p.mu.Unlock()
				}
				return nil
			})
			return err
		})
	}
	return g.Wait()
}

// findOwners looks on the target for owners that the snapshot does not hold.
func (p *planner) findOwners(ctx context.Context) error {
	for n := range p.active {
		for _, o := range n.Owners {
			if _, done := p.outside[o.Ref]; done || p.inPlan(o.Ref) {
				continue
			}
			uid, err := p.lookUp(ctx, o.Ref)
			if err != nil {
				return err
			}
			p.outside[o.Ref] = uid
		}
	}
	return nil
}

func (p *planner) inPlan(r object.Ref) bool {
	n := p.Snapshot.Graph.Node(r)
	if n == nil || p.skipped[n] != "" {
		return false
	}
	_, in := slices.BinarySearchFunc(p.nodes, r, func(n *graph.Node, r object.Ref) int {
		return object.CompareRefs(n.Ref, r)
	})
	return in
}

// lookUp returns the UID of an object on the target, "" when it is not there or of a kind that is
// not served.
func (p *planner) lookUp(ctx context.Context, r object.Ref) (string, error) {
	k, ok := kube.FindKind(p.Kinds, r.GroupKind())
	if !ok {
		return "", nil
	}
	obj, err := p.Reader.Get(ctx, k, r.Namespace, r.Name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up owner %s: %w", r, err)
	}
	if obj.GetDeletionTimestamp() != nil {
		return "", nil // what it owns goes with it
	}
	return string(obj.GetUID()), nil
}

// plan puts together what was found.
func (p *planner) plan() *Plan {
	plan := &Plan{Snapshot: p.Source, Target: p.Target, Spec: p.Spec, Findings: p.findings,
		Epochs: map[string]int64{}}
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
			plan.Epochs[u.WorkloadID] = o.Epoch
		}
	}
	plan.settle()
	p.skipUnneeded(plan)
	return plan
}

// skipUnneeded leaves out shared objects that only blocked units need.
func (p *planner) skipUnneeded(plan *Plan) {
	blocked := map[string]bool{}
	for _, u := range plan.Units {
		blocked[u.Name] = u.Blocked
	}
	var kept []*graph.Node
	for n := range p.active {
		if n.Unit != "" && !blocked[n.Unit] || n.Unit == "" && len(p.users[n]) == 0 {
			kept = append(kept, n)
		}
	}
	needed := map[object.Ref]bool{}
	for _, n := range p.Snapshot.Graph.Closure(kept) {
		needed[n.Ref] = true
	}
	for i := range plan.Shared.Objects {
		if o := &plan.Shared.Objects[i]; o.Action != Skip && !needed[o.Ref] {
			o.Action, o.Reason = Skip, "only blocked units need it"
		}
	}
}

func (p *planner) unit(name string, nodes []*graph.Node) Unit {
	u := Unit{Name: name}
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
					u.WorkloadID, u.StaysPaused = n.WorkloadID, n.Paused
				}
			}
		}
	}
	return u
}

// isLate tells of objects that are created after the release: those of a kind for which no pause is
// known, since they come to life as soon as they are created, and passive ones that such an object
// owns.
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
		Action: Create, UID: p.existing[n.Ref], Paused: n.Paused}
	if o.UID != "" {
		o.Action = Adopt
	}
	if why := p.skipped[n]; why != "" {
		o.Action, o.Reason = Skip, why
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

// object decodes an object of the snapshot.
func decodeObject(rows *capi.Table, c *snapshot.Contents, r object.Ref) (
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

// stripOwnMarks removes from an object of a snapshot what an operation of ours had written to it: a
// move takes its snapshot of a source that it has paused.
func stripOwnMarks(rows *capi.Table, u *unstructured.Unstructured) {
	rows.Unpause(u.Object)
	Unannotate(u, annotationOperation)
}

// jsonError keeps the position of a syntax error and drops the text around it, which may be a
// Secret's.
func jsonError(err error) error {
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("invalid JSON at offset %d", s.Offset)
	}
	return fmt.Errorf("invalid JSON (%T)", err)
}
