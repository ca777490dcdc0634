package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// finishShared releases the shared objects on the target. A ClusterResourceSet that is reconciled
// there would apply to units of later batches before their hand-over. So none is released before
// the last unit of its namespace. What fails in one batch does not keep the others from it.
func (m *run) finishShared(ctx context.Context) error {
	released := map[string]bool{}
	for _, u := range m.Plan.Copy.Units {
		if !u.Blocked && m.Units[u.Name] != catalog.UnitBlocked &&
			m.Units[u.Name] != catalog.UnitRolledBack && !m.results.gone[u.Name] {
			released[u.Name] = m.results.retired[u.Name] || m.results.left[u.Name]
		}
	}
	staying := m.staying()
	var err error
	if staying.leave, err = m.leaving(ctx); err != nil {
		return err
	}
	users := map[object.Ref][]string{} // of all batches
	for _, o := range m.Plan.Copy.Shared.Objects {
		users[o.Ref] = o.Users
	}
	seen := map[object.Ref]bool{}
	var failed error
	for _, b := range m.batches {
		err := m.finishSharedOf(ctx, b, released, users, seen, &staying)
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if kube.Transient(err) {
			break // the others would wait as long as this one has
		}
	}
	if failed != nil {
		return fmt.Errorf("release shared objects: %w", failed)
	}
	return nil
}

// finishSharedOf is finishShared for those of one batch. users are those of all batches, and seen
// are the objects of the batches before.
func (m *run) finishSharedOf(ctx context.Context, b *batch, released map[string]bool,
	users map[object.Ref][]string, seen map[object.Ref]bool, staying *staying) error {
	if handedOver, err := m.anyHandedOver(ctx, b); err != nil || !handedOver {
		return err // nothing of it is on the target
	}
	if err := m.load(ctx, b); err != nil {
		return err
	}
	todo, err := m.stillPaused(ctx, b)
	if err != nil {
		return err
	}
	todo.Units = nil // their states are in released
	for i := range todo.Shared.Objects {
		o := &todo.Shared.Objects[i]
		all := append(slices.Clone(o.Users), users[o.Ref]...)
		keeps, err := m.keepsPool(ctx, staying, *o, !waits(released, all))
		if err != nil {
			return err
		}
		if keeps || seen[o.Ref] && o.Late || staying.onlyTheirs(o.Ref) {
			o.Action = restore.Skip // an earlier batch creates it, or the source has its users
		}
		seen[o.Ref] = true
		o.Users = all
	}
	return restore.FinishShared(ctx, restore.RunOptions{
		Plan: &todo, Contents: b.contents, Modifiers: m.Modifiers, Reader: m.Target.Reader,
		Writer: m.Target.Writer, Kinds: m.Target.Kinds, Rows: m.Rows,
		Operation: m.Operation, Journal: m.Journal, Tuning: m.Tuning,
		Hooks: restore.Hooks{StepSuffix: b.suffix()},
	}, released)
}

// waits reports whether a unit of users is not released.
func waits(released map[string]bool, users []string) bool {
	return slices.ContainsFunc(users, func(unit string) bool {
		is, known := released[unit]
		return known && !is
	})
}

// leaving returns what the batches have taken along of which a unit was handed over: a retirement
// removes it from the source, and what is shared last.
func (m *run) leaving(ctx context.Context) (map[object.Ref]bool, error) {
	leave := map[object.Ref]bool{}
	batches, err := m.handedOverBatches(ctx)
	for _, b := range batches {
		for _, u := range append([]restore.Unit{b.Copy.Shared}, b.Copy.Units...) {
			for _, o := range u.Objects {
				if o.Action != restore.Skip {
					leave[o.Ref] = true
				}
			}
		}
	}
	return leave, err
}

// handedOverBatches returns the batches of which a unit was handed over.
func (m *run) handedOverBatches(ctx context.Context) (batches []*batch, err error) {
	for _, b := range m.batches {
		is, err := m.anyHandedOver(ctx, b)
		if err != nil {
			return nil, err
		}
		if is {
			batches = append(batches, b)
		}
	}
	return batches, nil
}

// anyHandedOver reports whether a unit of a batch was handed over: then the shared objects of the
// batch are on the target.
func (m *run) anyHandedOver(ctx context.Context, b *batch) (bool, error) {
	for _, u := range m.unitsOf(b) {
		state, err := m.Journal.State(ctx, handOverStep(u.Name))
		if err != nil || state == catalog.StepDone {
			return err == nil, err
		}
	}
	return false, nil
}

// retireShared deletes the shared objects on the source that nothing there needs any more.
func (m *run) retireShared(ctx context.Context) error {
	if len(m.results.retired) == 0 || m.results.first != nil {
		return nil // units that failed still need it, or may
	}
	v, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return err
	}
	all := m.sharedOfBatches()
	objects, err := m.unneeded(ctx, v, all)
	if err == nil {
		objects, err = m.askOwners(ctx, all, objects)
	}
	if err != nil || len(objects) == 0 {
		return err
	}
	// Each run has a step of its own: what others needed when an earlier one ended may go now.
	step := catalog.Step{Phase: "retire-shared", Wave: m.Attempt}
	err = m.Journal.Do(ctx, step, func(ctx context.Context, _ *catalog.StepHandle) error {
		return retryRefused(ctx, func() error { return m.removeAll(ctx, all, objects) })
	})
	if err != nil {
		return fmt.Errorf("retire shared objects: %w", err)
	}
	return nil
}

// sharedOfBatches returns the shared objects that the batches have copied, as a batch: each one as
// the last batch found it that has copied it. They are in the order in which batches copied them
// first, which is an order by owners: the batch of an object has its owners, or one before has.
func (m *run) sharedOfBatches() *batch {
	all := &batch{Source: map[string]objectState{}, copiedBy: map[object.Ref]*batch{}}
	objects, at := []restore.Object{}, map[object.Ref]int{}
	before := 0 // the last wave of the batches before
	for _, b := range m.batches {
		last := before
		for _, o := range b.Copy.Shared.Objects {
			was, known := b.Source[o.Ref.String()]
			if !known || o.Action == restore.Skip {
				continue
			}
			all.Source[o.Ref.String()], all.copiedBy[o.Ref] = was, b
			i, seen := at[o.Ref]
			if seen {
				o.Wave = objects[i].Wave
				objects[i] = o
				continue
			}
			o.Wave += before + 1
			last = max(last, o.Wave)
			at[o.Ref] = len(objects)
			objects = append(objects, o)
		}
		before = last
	}
	all.Copy.Shared.Objects = objects
	return all
}

// unneeded returns those of the shared objects of a batch, in its order, that no object on the
// source needs any more. Objects with users that the graph does not show (mayHaveUsers) stay, and
// so do, with what they need, objects that differ from the target's, and owners of what stays.
func (m *run) unneeded(ctx context.Context, v *sourceCapture, b *batch) ([]restore.Object, error) {
	stay, staying := map[object.Ref]bool{}, m.staying()
	for _, o := range b.Copy.Shared.Objects {
		n := v.graph.Node(o.Ref) // nil for a Secret that nothing names any more: it is not captured
		stay[o.Ref] = n != nil && n.UID != b.Source[o.Ref.String()].UID ||
			o.GroupKind() == kube.NamespaceKind.GroupKind || staying.onlyTheirs(o.Ref) ||
			m.mayHaveUsers(v.graph, o.Ref)
	}
	for {
		leaving := leavingWithout(v.graph, b, stay)
		if len(leaving) == 0 {
			return nil, nil
		}
		more, err := m.leaveDifferent(ctx, b, leaving)
		if err == nil && len(more) == 0 {
			more, err = m.leaveOwners(ctx, v.graph, b, leaving)
		}
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			return slices.DeleteFunc(slices.Clone(b.Copy.Shared.Objects),
				func(o restore.Object) bool { return !leaving[o.Ref] }), nil
		}
		for _, ref := range more {
			stay[ref] = true
		}
	}
}

// leavingWithout returns the shared objects of a batch without those that stay, and without what
// these and all other objects of the source need.
func leavingWithout(g *graph.Graph, b *batch, stay map[object.Ref]bool) map[object.Ref]bool {
	leaving := map[object.Ref]bool{}
	for _, o := range b.Copy.Shared.Objects {
		if !stay[o.Ref] {
			leaving[o.Ref] = true
		}
	}
	var others []*graph.Node
	for _, n := range g.Nodes {
		if !leaving[n.Ref] && !orphaned(g, n.Ref) {
			others = append(others, n)
		}
	}
	for _, n := range g.Closure(others) {
		delete(leaving, n.Ref)
	}
	return leaving
}

// leaveOwners returns those of leaving that own what stays: the garbage collector would delete that
// with them. It reports each, and returns all when it cannot tell.
func (m *run) leaveOwners(ctx context.Context, g *graph.Graph, b *batch,
	leaving map[object.Ref]bool) ([]object.Ref, error) {
	toDelete, byName := map[string]object.Ref{}, map[string]object.Ref{}
	for ref := range leaving {
		toDelete[b.Source[ref.String()].UID], byName[ref.String()] = ref, ref
	}
	findings, err := restore.Dependants(ctx, m.Source.Reader, toDelete,
		func(r, _ object.Ref) bool { return leaving[r] || orphaned(g, r) }, object.Ref.String)
	if err != nil {
		return nil, err
	}
	var owners []object.Ref
	for _, f := range findings {
		if f.Severity < object.Error {
			m.rounds.tell(ctx, m.Journal, f) // no round is left
			continue
		}
		named := append(slices.Clone(f.Users), f.Unit)
		if f.Unit == "" {
			named = slices.Collect(maps.Keys(byName))
		}
		for _, name := range named {
			owners = append(owners, byName[name])
		}
		f.Unit, f.Users = "", nil
		if err := m.Journal.Emit(ctx, catalog.FindingEvent("", f)); err != nil {
			return nil, err
		}
	}
	return owners, nil // they stay: they do no harm
}

// orphaned reports whether ref is a ClusterResourceSetBinding whose Cluster is gone. The
// ClusterResourceSet controller may create the Binding again before its cache shows that the
// Cluster is gone; Cluster API deletes it later.
func orphaned(g *graph.Graph, ref object.Ref) bool {
	return g.Rows.Row(ref.GroupKind()).BoundToCluster &&
		g.Node(object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: ref.Namespace, Name: ref.Name}) == nil
}

// leaveDifferent returns those of leaving that are missing on the target or differ from it, and
// reports each.
func (m *run) leaveDifferent(ctx context.Context, b *batch, leaving map[object.Ref]bool) (
	[]object.Ref, error) {
	var mu sync.Mutex
	different := map[object.Ref]string{} // why
	g, within := task.WithContext(ctx)
	g.SetLimit(8)
	for ref := range leaving {
		g.Go(func() error {
			why, err := m.differs(within, b, ref)
			if why != "" {
				mu.Lock()
				defer mu.Unlock()
				different[ref] = why
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for ref, why := range different {
		if err := m.keptShared(ctx, ref, "it stays on the source: "+why, hintCompare); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Keys(different)), nil
}

// What to do about an object that is left on the source: nothing there uses it, or something does.
const (
	hintCompare = "compare both; it does no harm on the source, where nothing uses it"
	hintUsed    = "remove it from the source when nothing there uses it any more"
)

// keptShared reports an object that is left on the source.
func (m *run) keptShared(ctx context.Context, ref object.Ref, why, hint string) error {
	return m.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
		Code: object.CodeSharedKept, Ref: ref, Message: why, Hint: hint}))
}

// differs returns how a shared object of the source differs from that of the target. It returns ""
// when both are equal, or when the object is gone from the source.
func (m *run) differs(ctx context.Context, b *batch, ref object.Ref) (string, error) {
	here, err := on(ctx, m.Source, ref)
	if err != nil || here == nil {
		return "", err
	}
	return m.differsFrom(ctx, b, ref, here)
}

// differsFrom is differs for the object of the source as it was read. Where the target stores the
// kind in another version, a conversion may lose values or add some: there one that is as it was
// copied is equal.
func (m *run) differsFrom(ctx context.Context, b *batch, ref object.Ref,
	live *unstructured.Unstructured) (string, error) {
	here := live.DeepCopy()
	there, err := onLike(ctx, m.Target, ref, here)
	if err != nil || there == nil || there.GetDeletionTimestamp() != nil {
		return "it is not on the target", err
	}
	if m.Rows.Row(ref.GroupKind()).PerManagementCluster {
		return "", nil
	}
	k, _ := kube.FindKind(m.Target.Kinds, ref.GroupKind())
	if k.APIVersion() != here.GetAPIVersion() {
		if as, err := b.isAsCopied(m.Rows, ref, live); as || err != nil {
			return "", err
		}
	}
	if there.GetAPIVersion() != here.GetAPIVersion() {
		return "the target does not serve " + here.GetAPIVersion() + ", so it cannot be compared", nil
	}
	// A run that died while it removed the object has left its annotation, and no finalizers.
	_, removing := here.GetAnnotations()[restore.AnnotationDeleteForMove]
	capi.Unannotate(here.Object, restore.AnnotationDeleteForMove)
	for _, u := range []*unstructured.Unstructured{here, there} {
		unstructured.RemoveNestedField(u.Object, "metadata", "ownerReferences")
		m.Rows.Unpause(u.Object) // see pausePools
		if removing {
			u.SetFinalizers(nil)
		}
	}
	paths := equality.Differences(m.Rows, here.Object, there.Object, equality.Spec)
	if len(paths) > 0 {
		return "it differs from the target's in " + strings.Join(paths, ", "), nil
	}
	return "", nil
}

// mayHaveUsers reports whether Clusters that stay may use an object although the graph has no edge
// to it: the object selects its users by label, is named in a provider's field that no rule knows,
// or serves all namespaces. Classes and templates are named, so that the graph has their users. A
// Helm release has objects that are not captured.
func (m *run) mayHaveUsers(g *graph.Graph, ref object.Ref) bool {
	if _, storage := capi.HelmStorageOf(ref); storage {
		return true
	}
	switch {
	case ref.Namespace == "":
		return len(g.Clusters()) > 0
	case g.Rows.Row(ref.GroupKind()).UsersNamed:
		return false
	}
	return slices.ContainsFunc(g.Clusters(),
		func(c *graph.Node) bool { return c.Namespace == ref.Namespace })
}
