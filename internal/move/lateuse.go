package move

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// LateUseError means that objects which stay on the source have come to use objects of a unit since
// the source was looked at for its move. Nothing of the unit is removed from below them. It does
// not help to accept the unit.
type LateUseError struct {
	Uses []string // one per object that is used, with what uses it
}

func (e *LateUseError) Error() string {
	return "what stays on the source has come to use objects of the workload cluster: " +
		some(e.Uses)
}

// Code is that of the finding.
func (*LateUseError) Code() object.Code { return object.CodeChangedLate }

// Hint says what to do next.
func (*LateUseError) Hint() string {
	return "give what uses them objects of its own, or remove it, and resume the operation"
}

// late returns, by unit, why units must not be retired: somebody wrote to them, or others have come
// to use them. It takes out of units what others have come to use and can stay alone, such as a
// Secret with credentials.
func (m *run) late(ctx context.Context, b *batch, units []restore.Unit, list *versions) (
	[]restore.Unit, map[string]error) {
	uses, err := m.lateUsers(ctx, b, units, list)
	keep, blocked := map[object.Ref]bool{}, map[string]error{}
	for _, u := range units {
		var others []string
		for ref, by := range uses[u.Name] {
			if err == nil && canStay(u, ref) {
				keep[ref] = true
				err = m.keptShared(ctx, ref, "it stays on the source: "+by+" uses it", hintUsed)
				continue
			}
			others = append(others, ref.String()+" (by "+by+")")
		}
		if len(others) > 0 {
			blocked[u.Name] = &LateUseError{Uses: others}
		}
	}
	units = leavingOut(units, keep)
	errs := m.lateWrites(ctx, b, units, list.seen)
	m.reportCreated(ctx, list)
	for _, u := range units {
		switch {
		case err != nil:
			errs[u.Name] = fmt.Errorf("find what has come to use it: %w", err)
		case errs[u.Name] == nil && blocked[u.Name] != nil:
			errs[u.Name] = blocked[u.Name]
		}
	}
	return units, errs
}

// canStay reports whether an object of a unit can stay on the source when the rest is removed: a
// Secret or ConfigMap that has no owner there, and owns nothing of it. Nothing else can be at work
// on both sides, such as a pool of addresses.
func canStay(u restore.Unit, ref object.Ref) bool {
	core := ref.GroupKind() == capi.Secret || ref.GroupKind() == capi.ConfigMap
	return core && !slices.ContainsFunc(u.Objects, func(o restore.Object) bool {
		return o.Ref == ref && len(o.Owners) > 0 || slices.Contains(o.Owners, ref)
	})
}

// users are the objects that name others, as they were when a group had its neighbours from there.
type users struct {
	known map[string]user // by UID
	// namespaces are those of which they are known; all when there are none.
	namespaces []string
}

type user struct {
	version string // what changes with the fields that name objects
	needs   []graph.Need
	alone   bool // it belongs to no workload cluster, and does not make what it names shared
}

// usersIn returns the users in the graph of a capture that leaves out what is in the graph before
// it, which may be nil. What came, or changed, between both was not seen together with all that it
// has to do with: it is not known.
func usersIn(g, before *graph.Graph, namespaces []string) *users {
	u := &users{known: map[string]user{}, namespaces: namespaces}
	for _, n := range g.Nodes {
		if before != nil {
			was := before.Node(n.Ref)
			if was == nil || was.UID != n.UID {
				continue
			}
			n = was
		}
		if namesOthers(g.Rows, n.GroupKind()) {
			u.known[n.UID] = user{version: userVersion(g.Rows.Row(n.GroupKind()), n.Generation,
				n.ResourceVersion), needs: n.Needs, alone: isAlone(n)}
		}
	}
	return u
}

// isAlone reports whether an object belongs to no workload cluster.
func isAlone(n *graph.Node) bool { return n.Unit == "" && !n.Shared }

// namesOthers reports whether objects of a kind name others.
func namesOthers(rows *capi.Table, gk object.GroupKind) bool { return len(rows.Row(gk).Refs) > 0 }

// userVersion returns what changes with the fields in which an object names others. The generation
// changes with the spec; core kinds have none.
func userVersion(row *capi.Row, generation int64, resourceVersion string) string {
	if generation == 0 || !row.RefsInSpec() {
		return resourceVersion
	}
	return strconv.FormatInt(generation, 10)
}

// changed reports whether an object that names others came since, or was changed in that.
func (u *users) changed(row *capi.Row, namespace string, metadata gjson.Result) bool {
	if len(u.namespaces) > 0 && !slices.Contains(u.namespaces, namespace) {
		return false
	}
	was, known := u.known[metadata.Get("uid").String()]
	return !known || was.version != userVersion(row, metadata.Get("generation").Int(),
		metadata.Get("resourceVersion").String())
}

// lateUse finds which objects of units that are about to be removed others have come to use since
// the users are known: they belonged to their units alone then.
type lateUse struct {
	*run
	users   *users
	reader  *capture.NodeReader
	own     map[string]map[object.Ref]bool // the objects of units, also those that are left alone
	removed map[object.Ref]string          // those that are removed, and their units
	canStay map[object.Ref]bool            // those of them that can stay alone
	uses    map[string]map[object.Ref]string
}

// lateUsers returns, by unit, which objects others have come to use, and one of these for each.
// Only objects that came since, or changed in what they name, are read, and what they have come to
// name in turn. After a resume, which does not know what there was, the namespaces are captured.
func (m *run) lateUsers(ctx context.Context, b *batch, units []restore.Unit, list *versions) (
	map[string]map[object.Ref]string, error) {
	l := &lateUse{run: m, users: b.users, reader: capture.NewNodeReader(m.Source.Kinds, m.Rows),
		own: map[string]map[object.Ref]bool{}, removed: map[object.Ref]string{},
		canStay: map[object.Ref]bool{},
		uses:    map[string]map[object.Ref]string{}}
	for _, u := range units {
		l.own[u.Name], l.uses[u.Name] = map[object.Ref]bool{}, map[object.Ref]string{}
		for _, o := range u.Objects {
			l.own[u.Name][o.Ref] = true
			if o.Action != restore.Skip && o.GroupKind() != capi.Cluster {
				l.removed[o.Ref], l.canStay[o.Ref] = u.Name, canStay(u, o.Ref)
			}
		}
	}
	if b.users == nil {
		return l.uses, l.sharedMeanwhile(ctx, b, units)
	}
	nodes, err := l.read(ctx, list.changed)
	if err != nil {
		return nil, err
	}
	for ref, needs := range list.alone {
		l.stays(ref, needs)
	}
	var reached []object.Ref
	for _, n := range nodes {
		if l.users.known[n.UID].alone {
			l.stays(n.Ref, n.Needs)
		}
		reached = append(reached, l.follow(n, l.users.known[n.UID].needs)...)
	}
	seen := map[object.Ref]bool{}
	for len(reached) > 0 {
		reached = slices.DeleteFunc(reached, func(ref object.Ref) bool { return seen[ref] })
		for _, ref := range reached {
			seen[ref] = true
		}
		if nodes, err = l.read(ctx, reached); err != nil {
			return nil, err
		}
		reached = nil
		for _, n := range nodes {
			reached = append(reached, l.follow(n, nil)...)
		}
	}
	return l.uses, nil
}

// read reads objects of the source as nodes, but those that are gone.
func (l *lateUse) read(ctx context.Context, refs []object.Ref) ([]*graph.Node, error) {
	var mu sync.Mutex
	var nodes []*graph.Node
	g, ctx := task.WithContext(ctx)
	g.SetLimit(8)
	for _, ref := range refs {
		g.Go(func() error {
			live, err := on(ctx, l.Source, ref)
			if err != nil || live == nil {
				return kube.SafeError(ref.GroupKind(), err)
			}
			text, err := json.Marshal(live.Object)
			if err != nil {
				return fmt.Errorf("encode %s: %w", ref, err)
			}
			k, _ := kube.FindKind(l.Source.Kinds, ref.GroupKind())
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, l.reader.Node(k, text))
			return nil
		})
	}
	err := g.Wait()
	return nodes, err
}

// follow notes what a node uses of units, and returns what else it names that may name others. Both
// are without what it named before, when nobody used that by way of it.
func (l *lateUse) follow(n *graph.Node, before []graph.Need) (more []object.Ref) {
	for _, need := range n.Needs {
		unit := l.removed[need.Ref]
		switch {
		case need.Back || need.GroupKind() == capi.Cluster || unit != "" && l.own[unit][n.Ref] ||
			slices.ContainsFunc(before, func(was graph.Need) bool { return was.Ref == need.Ref }):
		case unit != "":
			l.uses[unit][need.Ref] = n.Ref.String()
		case namesOthers(l.Rows, need.GroupKind()):
			more = append(more, need.Ref)
		}
	}
	return more
}

// stays notes what of units an object of no workload cluster names. Units alone make what they use
// shared, so that it was not, however long the object has named it: a free host, say, and one in
// use may name the same Secret. One that moves as well counts, too: a rollback may leave it there,
// at work.
func (l *lateUse) stays(ref object.Ref, needs []graph.Need) {
	for _, need := range needs {
		if unit := l.removed[need.Ref]; unit != "" && l.canStay[need.Ref] && !l.own[unit][ref] {
			l.uses[unit][need.Ref] = ref.String()
		}
	}
}

// sharedMeanwhile is lateUsers by a capture. Once the Cluster of a unit is gone, nothing shows any
// more to which unit its remains belong: their removal was decided by an earlier run.
func (l *lateUse) sharedMeanwhile(ctx context.Context, b *batch, units []restore.Unit) error {
	if len(units) == 0 {
		return nil
	}
	v, err := l.captures.of(ctx, time.Now(), l.namespacesOf(units[0].Name, b.Copy.Units...))
	if err != nil {
		return err
	}
	for _, n := range v.graph.Nodes {
		if isAlone(n) && len(n.Needs) > 0 {
			l.stays(n.Ref, n.Needs)
		}
	}
	for ref, unit := range l.removed {
		cluster, err := clusterRef(unit)
		if err != nil {
			return err
		}
		n := v.graph.Node(ref)
		if n == nil || n.UID != b.Source[ref.String()].UID ||
			l.Rows.Row(ref.GroupKind()).BoundToCluster {
			continue
		}
		if n.Shared && v.graph.Node(cluster) != nil || n.Unit != "" && n.Unit != unit {
			l.uses[unit][ref] = "another object"
		}
	}
	return nil
}

// some joins a few of texts.
func some(texts []string) string {
	texts = slices.Sorted(slices.Values(texts)) // others may read them
	named := texts[:min(len(texts), mostWrites)]
	joined := strings.Join(named, "; ")
	if more := len(texts) - len(named); more > 0 {
		joined += fmt.Sprintf("; and %d more", more)
	}
	return joined
}
