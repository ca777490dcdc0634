package restore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

// KnownOperation is a restore or a move that is not lost: the catalog has it, or a mirror.
type KnownOperation struct {
	ID    string
	Where string // for people: "this catalog", or the host that wrote the mirror
	// Units are those that it names; nil when they are not known.
	Units map[string]bool
	// Updated is when it last changed. It did not make a copy that is younger.
	Updated time.Time
}

// Marks is what a rollback from marks is planned from: the copies that lost restores and moves have
// left on a target.
type Marks struct {
	Target   object.Side
	Graph    *graph.Graph // of the target
	Contents Contents     // of the target
	Lister   lister       // of the target
	Rows     *capi.Table  // what is known of kinds; nil is the built-in table

	Selection Selection
	Force     object.Forced

	// StoreID is that of the store whose ownership records are Owners, "" when there is none.
	StoreID string
	Owners  map[string]ownership.Record
	// Unread says why no ownership records were read; "" when they were.
	Unread string

	Known []KnownOperation
	// Lost are the operations whose copies an earlier, unfinished rollback from marks began to
	// remove: shared objects of theirs may be left.
	Lost []string
}

// marks makes the plan of a rollback from marks.
type marks struct {
	Marks
	plan  *Plan
	lost  map[string]bool          // operations that made the copies to remove
	nodes map[string][]*graph.Node // by unit
	out   map[object.Ref]string    // objects to remove, with their unit
}

// Plan plans the removal of copies: units whose Cluster has the mark mgmtd.dev/was-paused, is
// paused, and was never released. What the operations knew from their journals is taken from the
// target itself: which objects they created by the field manager of the creation (mark.go) and by
// owner references, by UID, to the Cluster that they created. What nothing proves stays, and a
// finding says so. A unit that must stay is blocked by a finding.
//
// The plan is one of a restore without release, so that Undo carries it out. Errors:
// *SelectionError; those of reading the target.
func (in Marks) Plan(ctx context.Context) (*Plan, error) {
	m := &marks{Marks: in, lost: map[string]bool{}, nodes: map[string][]*graph.Node{},
		out: map[object.Ref]string{},
		plan: &Plan{Snapshot: Snapshot{StoreID: in.StoreID}, Target: in.Target, FromMarks: true,
			Spec: Spec{Selection: in.Selection, Force: in.Force, NoRelease: true}}}
	for _, id := range in.Lost {
		m.lost[id] = true
	}
	for _, n := range m.Graph.Nodes {
		if !m.Graph.CapturedOnly(n) { // no operation made it
			m.nodes[n.Unit] = append(m.nodes[n.Unit], n)
		}
	}
	if in.Unread != "" {
		m.add(in.Force.Override(object.Finding{Severity: object.Error, Code: object.CodeOwnersUnread,
			Message: "the ownership records were not read: " + in.Unread,
			Hint: "name the store of the restore or the move; only its records show that a copy was " +
				"released here"}))
	}
	clusters, err := m.selected()
	if err != nil {
		return nil, err
	}
	for _, n := range clusters {
		if err := m.planUnit(n); err != nil {
			return nil, err
		}
	}
	if err := m.planShared(); err != nil {
		return nil, err
	}
	if err := m.checkDependants(ctx); err != nil {
		return nil, err
	}
	m.plan.decide()
	for _, u := range m.plan.Units {
		if !u.Blocked {
			m.plan.Lost = append(m.plan.Lost, u.Lost...)
		}
	}
	m.plan.Lost = append(m.plan.Lost, in.Lost...)
	slices.Sort(m.plan.Lost)
	m.plan.Lost = slices.Compact(m.plan.Lost)
	return m.plan, nil
}

func (m *marks) add(f object.Finding) { m.plan.Findings = append(m.plan.Findings, f) }

// selected returns the Clusters that have the mark of a paused copy, and those that the selection
// names without it.
func (m *marks) selected() ([]*graph.Node, error) {
	selector, err := m.Selection.Labels()
	if err != nil {
		return nil, err
	}
	var marked []*graph.Node
	for _, n := range m.Graph.Clusters() {
		c, err := m.cluster(n)
		if err != nil {
			return nil, err
		}
		named := slices.Contains(m.Selection.Workloads, n.Key())
		in := m.Selection.everything() || named || slices.Contains(m.Selection.Namespaces, n.Namespace) ||
			m.Selection.Selector != "" && selector.Matches(c.GetLabels())
		if in && (named || capi.PausedByUs(c.Object)) {
			marked = append(marked, n)
		}
	}
	for _, w := range m.Selection.Workloads {
		if m.Graph.Node(object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: w.Namespace, Name: w.Name}) == nil {
			return nil, &SelectionError{Reason: "there is no workload cluster " + w.String(),
				Has: "name one that is on the target"}
		}
	}
	return marked, nil
}

// planUnit adds a unit to the plan, with findings for all that forbids its removal.
func (m *marks) planUnit(n *graph.Node) error {
	cluster, err := m.cluster(n)
	if err != nil {
		return err
	}
	u := Unit{Name: n.Unit, WorkloadID: n.WorkloadID}
	add := func(f object.Finding) {
		f.Ref, f.Unit = n.Ref, u.Name
		u.Blocked = u.Blocked || f.Severity >= object.Error
		m.add(f)
	}
	proven, operations, err := m.proven(n)
	if err != nil {
		return err
	}
	u.Lost = operations
	if f := copyProblem(cluster); f != nil {
		add(*f)
	} else {
		m.checkRecord(n, creatorOf(cluster) != "", add)
		m.checkKnown(u, creationTime(cluster), add)
	}
	stay := m.addObjects(&u, proven)
	if len(stay) > 0 && !u.Blocked {
		m.add(object.Finding{Severity: object.Warning, Code: object.CodeObjectStays, Ref: stay[0],
			Unit: u.Name, Message: fmt.Sprintf("%d objects of the workload cluster stay, since nothing "+
				"proves that the restore or the move created them; the first: %s", len(stay), stay[0]),
			Hint: "find out who made them"})
	}
	m.plan.Units = append(m.plan.Units, u)
	return nil
}

// addObjects adds the objects of a unit to it: those of the last wave are removed first. What is
// bound to the Cluster goes after it, as when a move retires it: its controller would create it
// again. It returns the objects that stay.
func (m *marks) addObjects(u *Unit, proven map[*graph.Node]bool) (stay []object.Ref) {
	var remove []*graph.Node
	gitOps := 0
	for _, n := range m.nodes[u.Name] {
		if !proven[n] {
			stay = append(stay, n.Ref)
			continue
		}
		remove = append(remove, n)
		if m.gitOpsOwned(n) {
			gitOps++
		}
	}
	if gitOps > 0 && !u.Blocked {
		m.add(object.Finding{Severity: object.Warning, Code: object.CodeGitOpsOwner, Unit: u.Name,
			Message: fmt.Sprintf("a GitOps controller applies %d of its objects: if it works on this "+
				"management cluster, it creates them again, unpaused", gitOps),
			Hint: "suspend what applies them here, up to its root, before the rollback"})
	}
	for i, wave := range m.Graph.Waves(remove) {
		for _, n := range wave {
			o := m.object(n)
			if o.Wave = i + 2; m.Rows.Row(n.GroupKind()).BoundToCluster {
				o.Wave = 1
			}
			u.Objects = append(u.Objects, o)
			if n.GroupKind() == capi.Machine {
				u.Machines++
			}
			if !u.Blocked {
				m.out[n.Ref] = u.Name
			}
		}
	}
	slices.SortStableFunc(u.Objects, func(a, b Object) int { return a.Wave - b.Wave })
	if !u.Blocked {
		for _, id := range u.Lost {
			m.lost[id] = true
		}
	}
	return stay
}

func (m *marks) object(n *graph.Node) Object {
	o := Object{Ref: n.Ref, Version: n.Version, Action: Create, UID: n.UID, Ours: true}
	for _, owner := range n.Owners {
		o.Owners = append(o.Owners, owner.Ref)
	}
	return o
}

// checkDependants adds a finding for each object that the garbage collector would delete with what
// is removed.
func (m *marks) checkDependants(ctx context.Context) error {
	toDelete := map[string]object.Ref{}
	for ref := range m.out {
		toDelete[m.Graph.Node(ref).UID] = ref
	}
	if len(toDelete) == 0 {
		return nil
	}
	keeps := map[object.Ref]bool{} // they lose the owner first
	for _, o := range m.plan.Shared.Objects {
		keeps[o.Ref] = true
	}
	findings, err := Dependants(ctx, m.Lister, toDelete, func(ref, _ object.Ref) bool {
		_, out := m.out[ref]
		return out || keeps[ref] || m.Rows.Row(ref.GroupKind()).BoundToCluster
	}, func(ref object.Ref) string { return m.out[ref] })
	for _, f := range findings {
		if f.Code == object.CodeGCWouldCascade {
			f.Hint = "find out who made it; take the owner reference off it if it is to stay"
		}
		m.add(f)
	}
	return err
}

// checkRecord reads the ownership record of a copy. marked says that the Cluster has the mark of
// its creation.
func (m *marks) checkRecord(n *graph.Node, marked bool, add func(object.Finding)) {
	if !marked && (m.Unread != "" || n.WorkloadID == n.UID) {
		why := "the id of its workload cluster is its own UID"
		if m.Unread != "" {
			why = "the ownership records were not read"
		}
		add(object.Finding{Severity: object.Error, Code: object.CodeCopyUnproven,
			Message: "it has no mark of the operation that created it, and " + why,
			Hint: "find out which management cluster reconciles the workload cluster, and who paused " +
				"it here"})
	}
	r := m.Owners[n.WorkloadID]
	switch {
	case r.By.UID == m.Target.UID && r.Epoch > 0:
		add(object.Finding{Severity: object.Error, Code: object.CodeCopyAtWork,
			Message: fmt.Sprintf("its ownership record says since %s (epoch %d, operation %s) that this "+
				"management cluster owns it", r.Time.UTC().Format("2006-01-02 15:04:05Z"), r.Epoch,
				r.Operation),
			Hint: "find out whether it was released here; to go on with it, restore it once more, " +
				"which adopts what is here"})
	case r.Damaged != nil, r.WentBack():
		why := fmt.Sprintf("it has epoch %d, and one of epoch %d was seen before", r.Epoch, r.Seen)
		if r.Damaged != nil {
			why = r.Damaged.Error()
		}
		add(m.Force.Override(object.Finding{Severity: object.Error, Code: object.CodeOwnersUnread,
			Message: "its ownership record does not count: " + why,
			Hint:    "find out which management cluster reconciles the workload cluster"}))
	}
}

// checkKnown adds a finding when an operation that is not lost made the copy, or may have.
func (m *marks) checkKnown(u Unit, created time.Time, add func(object.Finding)) {
	for _, op := range m.Known {
		made := slices.Contains(u.Lost, op.ID)
		if len(u.Lost) == 0 {
			made = (op.Units == nil || op.Units[u.Name]) && !op.Updated.Before(created)
		}
		if made {
			add(object.Finding{Severity: object.Error, Code: object.CodeOperationKnown,
				Message: fmt.Sprintf("operation %s made the copy, or may have: it is in %s", op.ID, op.Where),
				Hint:    "roll operation " + op.ID + " back"})
		}
	}
}
