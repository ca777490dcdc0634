package restore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// planReads is how many objects of the target a plan reads at once.
const planReads = 16

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
	DryRunUpdate(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	DryRunUpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	Allowed(ctx context.Context, verb string, k kube.Kind, subresource string) (bool, error)
}

// Input is what a plan is made from.
type Input struct {
	Snapshot *snapshot.Snapshot
	Contents Contents // of the nodes that Nodes returns
	// Copied are the UIDs of objects on the target that a pre-copy of this operation created. They are
	// brought up to date.
	Copied map[object.Ref]string
	// Before are the contents from which the pre-copy made them; may be nil.
	Before Contents
	// Asked are objects about which this operation has asked the target: the plan does not ask again.
	Asked map[object.Ref]bool
	// BeforePause: a move may not have paused yet what it pauses on the source for its whole run.
	BeforePause bool

	Source    Snapshot // names the snapshot
	Target    object.Side
	Reader    Reader
	Prober    Prober
	Kinds     []kube.Kind     // of the target
	Providers []kube.Provider // of the target
	// Schemas keeps the schemas of Kinds, which are read once for all plans; nil keeps none.
	Schemas *kube.StatusSchemas
	Spec    Spec
	// Modifiers change objects for the target; nil changes none. Their digest is in the plan.
	Modifiers *modify.Document
	// Newer is the time of the newest snapshot of the source that has what Snapshot has; zero when
	// that is Snapshot itself. Gaps are the findings of the chain of its snapshots.
	Newer time.Time
	Gaps  []string
	// Owners are the ownership records of the store, by id of the workload cluster.
	Owners map[string]ownership.Record
	// OriginEpochs are the epochs that a copy's origin is known to have, by id of the workload
	// cluster; nil unless the store is a copy.
	OriginEpochs map[string]int64
	// NewerWith names the newest snapshot that has an object, "" when none is known; nil when nobody
	// knows.
	NewerWith func(r object.Ref) string
	// Evidence is what shows whether the source is dead. Overridden is what shows whether the
	// management clusters are gone that other ownership records name, by UID, where an operator
	// overrides these records.
	Evidence   preflight.Source
	Overridden map[string]preflight.Overridden
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

func (p *planner) standard() standard {
	return standard{prober: p.Prober, kinds: p.Kinds, accept: p.Spec.Accept, rows: p.rows()}
}

// planner makes one plan.
type planner struct {
	Input
	nodes    []*graph.Node
	skipped  map[*graph.Node]string   // left out, and why
	users    map[*graph.Node][]string // units that need a shared node, or own it; sorted
	existing map[object.Ref]string    // on the target at planning, with UID
	leaving  map[object.Ref]bool      // existing ones that are being deleted
	heldBack map[object.Ref]bool      // existing Machines that an operation keeps from remediation
	left     map[*graph.Node]bool     // existing ones that another operation did not complete
	kinds    map[object.GroupKind]kube.Kind
	// owners that are not in the snapshot but live on the target, with UID
	outside map[object.Ref]string
	dropped map[object.Ref]bool
	// outsideCluster are the units of these owners, as far as they belong to a Cluster
	outsideCluster map[object.Ref]string
	// targetClusters are all Clusters on the target, with their labels
	targetClusters map[object.Key]labels.Set
	extra          []extraObject   // on the target, of units and not in the plan
	atWork         map[string]bool // units whose Cluster is on the target and not paused
	// pausedByHand are the units whose Cluster is on the target, paused by somebody else than us
	pausedByHand map[string]bool
	// platform are the namespaces of providers and other components, of both sides, and which ones;
	// targetNamespaces are all of the target
	platform         map[string]capi.Component
	targetNamespaces map[string]bool
	// others are the Unit.OtherMachines of units
	others map[string]map[string]string
	gone   map[string][]object.Ref // the Unit.Gone of units
	held   map[string]bool         // the Unit.Held of units
	// compared are the units whose workload cluster answered
	compared map[string]bool
	// poolUsers are the workload clusters that have something of a pool of addresses which is not on
	// the target, by pool, sorted
	poolUsers map[object.Ref][]string
	// clustersByCA counts the workload clusters by the CA of their kubeconfig
	clustersByCA map[string]int

	// original are the Contents without modifications, and modifiedPaths are the paths of the values
	// that these change, by object.
	original      Contents
	modifiedPaths map[object.Ref][]string

	checked sync.Map // the refs about which the target has answered

	mu       sync.Mutex
	findings []object.Finding
}

// NewPlan makes the plan of a restore and runs every pre-flight check. It reads the target and the
// snapshot and changes neither. Findings are in the plan; an error means that the plan could not be
// made.
func NewPlan(ctx context.Context, in Input) (*Plan, error) {
	nodes, err := Nodes(in.Snapshot, in.Spec)
	if err != nil {
		return nil, err
	}
	if in.Now == nil {
		in.Now = time.Now
	}
	in.Spec.Modifiers = in.Modifiers.Digest(in.Target.UID)
	p := &planner{
		Input: in, nodes: nodes, skipped: map[*graph.Node]string{},
		users: map[*graph.Node][]string{}, left: map[*graph.Node]bool{},
		existing: map[object.Ref]string{}, leaving: map[object.Ref]bool{},
		heldBack: map[object.Ref]bool{},
		kinds:    map[object.GroupKind]kube.Kind{}, outside: map[object.Ref]string{},
		dropped: map[object.Ref]bool{}, outsideCluster: map[object.Ref]string{},
		targetClusters: map[object.Key]labels.Set{}, platform: map[string]capi.Component{},
		targetNamespaces: map[string]bool{},
		gone:             map[string][]object.Ref{}, held: map[string]bool{}, compared: map[string]bool{},
		poolUsers: map[object.Ref][]string{},
	}
	p.addAll(in.Findings...)
	for _, r := range in.Spec.DropOwners {
		p.dropped[r] = true
	}
	if err := p.filter(ctx); err != nil {
		return nil, err
	}
	if err := p.modify(); err != nil {
		return nil, err
	}
	if p.Before != nil {
		p.Before = withModifiers(p.Before, p.Modifiers, p.Kinds, p.rows())
	}
	p.matchKinds()
	if err := p.findExisting(ctx); err != nil {
		return nil, err
	}
	if err := p.findOwners(ctx); err != nil {
		return nil, err
	}
	if err := p.leaveOutAttached(); err != nil {
		return nil, err
	}
	if err := preflight.Run(ctx, checks, p); err != nil {
		return nil, err
	}
	if err := cmp.Or(p.findOtherMachines(ctx), p.findPoolUsers(ctx)); err != nil {
		return nil, err
	}
	return p.plan(), nil
}

// filter leaves out what is not restored, whatever the target has of it.
func (p *planner) filter(ctx context.Context) error {
	if err := p.findPlatform(ctx); err != nil {
		return err
	}
	p.findUsers()
	if err := p.filterUnsafe(); err != nil {
		return err
	}
	if err := p.raiseEpochs(); err != nil {
		return err
	}
	if err := p.reportFiltered(ctx); err != nil {
		return err
	}
	return p.leaveOutUnowned()
}

// add records a finding about a node. An error of a shared node blocks the units that need it, by
// one finding; of a node that nobody needs it only leaves that node out.
func (p *planner) add(n *graph.Node, f object.Finding) {
	f.Ref = n.Ref
	f = p.Spec.Force.Override(f)
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
		users := p.users[n]
		f.Unit, f.Users = users[0], users[1:]
		if len(users) > 1 {
			f.Message += fmt.Sprintf("; %d workload clusters need it", len(users))
		}
		p.findings = append(p.findings, f)
	}
}

// addAll records a finding that is about no single object.
func (p *planner) addAll(f ...object.Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range f {
		p.findings = append(p.findings, p.Spec.Force.Override(f))
	}
}

// active yields the nodes that are not left out.
func (p *planner) active(yield func(*graph.Node) bool) {
	for _, n := range p.nodes {
		if p.skipped[n] == "" && !yield(n) {
			return
		}
	}
}

// findUsers finds the units that need each shared node, or own it: a move takes an owner from the
// source, and with the last one the node.
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
	for _, n := range p.nodes {
		if n.Unit != "" {
			continue
		}
		users := p.users[n]
		for _, o := range n.Owners {
			if owner := p.Snapshot.Graph.Owner(o); owner != nil && byUnit[owner.Unit] != nil {
				users = append(users, owner.Unit)
			}
		}
		if len(users) > len(p.users[n]) {
			slices.Sort(users)
			p.users[n] = slices.Compact(users)
		}
	}
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

// findOwners finds on the target the owners that the snapshot does not hold.
func (p *planner) findOwners(ctx context.Context) error {
	for n := range p.active {
		for _, o := range n.Owners {
			if _, done := p.outside[o.Ref]; done || p.inPlan(o.Ref) {
				continue
			}
			owner, err := p.liveOwner(ctx, o.Ref)
			if err != nil {
				return err
			}
			p.outside[o.Ref] = string(owner.GetUID())
			p.outsideCluster[o.Ref] = unitOfLive(o.Ref, owner)
		}
	}
	return nil
}

// comesLater reports whether an owner of a shared object belongs to a unit outside of the plan: the
// reference follows when that unit comes to the target.
func (p *planner) comesLater(n *graph.Node, owner object.Ref) bool {
	return p.comesWithUnit(n, owner) && !p.inPlan(owner)
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

// liveOwner returns an object of the target. It is empty when it is not there, or of a kind that is
// not served.
func (p *planner) liveOwner(ctx context.Context, r object.Ref) (*unstructured.Unstructured, error) {
	none := &unstructured.Unstructured{}
	k, ok := kube.FindKind(p.Kinds, r.GroupKind())
	if !ok {
		return none, nil
	}
	obj, err := p.Reader.Get(ctx, k, r.Namespace, r.Name)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find owner %s: %w", r, err)
	}
	if obj.GetDeletionTimestamp() != nil {
		return none, nil // what it owns goes with it
	}
	return obj, nil
}

// unitOfLive returns the workload cluster to which an object of the target belongs, "" when it
// belongs to none.
func unitOfLive(r object.Ref, live *unstructured.Unstructured) string {
	name := live.GetLabels()[capi.LabelClusterName]
	if of, _, _ := unstructured.NestedString(live.Object, "spec", "clusterName"); of != "" {
		name = of
	}
	if r.GroupKind() == capi.Cluster {
		name = r.Name
	}
	if name == "" {
		return ""
	}
	return r.Namespace + "/" + name
}
