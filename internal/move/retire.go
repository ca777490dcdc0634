package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/retry"
)

func retireStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "retire"} }

// retire takes units that are well on the target away from the source.
func (m *run) retire(ctx context.Context, p *batch, well []restore.Unit) {
	if len(well) == 0 || ctx.Err() != nil {
		return
	}
	blocked, err := m.cascades(ctx, p, well)
	if err != nil {
		m.failAll(ctx, well, fmt.Errorf("look for what the garbage collector would delete: %w", err))
		return
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, u := range well {
		if findings := blocked[u.Name]; len(findings) > 0 {
			m.fail(ctx, u.Name, fmt.Errorf("retire: %w", &restore.FindingsError{Findings: findings}))
			continue
		}
		g.Go(func() error {
			if err := m.retireUnit(ctx, p, u); err != nil {
				m.fail(ctx, u.Name, fmt.Errorf("retire: %w", err))
				return nil
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.results.retired[u.Name] = true
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
}

// cascades looks once for all units of a batch.
func (m *run) cascades(ctx context.Context, p *batch, units []restore.Unit) (
	map[string][]object.Finding, error) {
	doomed, leaves, unitOf := map[string]object.Ref{}, map[object.Ref]bool{}, map[object.Ref]string{}
	for _, u := range units {
		for _, o := range u.Objects {
			unitOf[o.Ref] = u.Name
			if v, ok := p.Source[o.Ref.String()]; ok {
				doomed[v.UID], leaves[o.Ref] = o.Ref, true
			}
		}
	}
	for _, o := range p.Copy.Shared.Objects {
		// it is on the target; here it loses an owner, or goes too
		leaves[o.Ref] = o.Action != restore.Skip
	}
	findings, err := restore.Dependants(ctx, m.Source.Reader, doomed,
		func(r object.Ref) bool { return leaves[r] || isLock(m.Rows, r, unitOf) },
		func(r object.Ref) string { return unitOf[r] })
	byUnit := map[string][]object.Finding{}
	for _, f := range findings {
		if f.Severity >= object.Error {
			byUnit[f.Unit] = append(byUnit[f.Unit], f)
		}
	}
	return byUnit, err
}

// retireUnit takes one unit away, dependants first and the Cluster last, since it carries the lock.
// Only its ClusterResourceSetBinding comes after it: the ClusterResourceSet of the source, which
// knows no pause of a Cluster, would bind and apply anew.
func (m *run) retireUnit(ctx context.Context, p *batch, u restore.Unit) error {
	return m.Journal.Do(ctx, retireStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		ref, err := clusterRef(u.Name)
		if err != nil {
			return err
		}
		// A Cluster that is gone went last, in a run that died before it could say so.
		if err := m.holdLock(ctx, u.Name, true); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := m.removeOwnerRefs(ctx, p, u); err != nil {
			return err
		}
		var dependants, cluster, bindings []restore.Object
		for _, o := range u.Objects {
			switch {
			case o.Ref == ref:
				cluster = append(cluster, o)
			case m.Rows.Row(o.GroupKind()).BoundToCluster:
				bindings = append(bindings, o)
			default:
				dependants = append(dependants, o)
			}
		}
		for _, objects := range [][]restore.Object{dependants, cluster, bindings} {
			if err := m.removeAll(ctx, p, objects); err != nil {
				return err
			}
		}
		return h.SetUnit(catalog.UnitRetired)
	})
}

// removeOwnerRefs takes the owner references of a unit off what it shared: the garbage collector would
// delete it with its last owner, whoever still needs it.
func (m *run) removeOwnerRefs(ctx context.Context, p *batch, u restore.Unit) error {
	leaving := map[types.UID]bool{}
	in := map[object.Ref]bool{}
	for _, o := range u.Objects {
		in[o.Ref] = true
		leaving[types.UID(p.Source[o.Ref.String()].UID)] = true
	}
	for _, o := range p.Copy.Shared.Objects {
		if o.Action == restore.Skip || !slices.ContainsFunc(o.Owners,
			func(r object.Ref) bool { return in[r] }) {
			continue
		}
		err := m.change(ctx, o.Ref, func(live *unstructured.Unstructured) (bool, error) {
			refs := live.GetOwnerReferences()
			kept := slices.DeleteFunc(slices.Clone(refs), func(ref metav1.OwnerReference) bool {
				return leaving[ref.UID]
			})
			if len(kept) == len(refs) {
				return false, nil
			}
			live.SetOwnerReferences(kept)
			if len(kept) == 0 {
				unstructured.RemoveNestedField(live.Object, "metadata", "ownerReferences")
			}
			return true, nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// errStranger ends a removal: another object has the name.
var errStranger = errors.New("another object has this name")

// removeAll removes objects from the source, those of the last wave first.
func (m *run) removeAll(ctx context.Context, p *batch, objects []restore.Object) error {
	for _, wave := range slices.Backward(byWave(objects)) {
		var g errgroup.Group
		g.SetLimit(8)
		for _, o := range wave {
			was, known := p.Source[o.Ref.String()]
			k, served := kube.FindKind(m.Source.Kinds, o.GroupKind())
			if !known || !served || o.Action == restore.Skip ||
				o.GroupKind() == kube.NamespaceKind.GroupKind {
				continue
			}
			g.Go(func() error {
				err := restore.Remove(ctx, m.Source.Reader, m.Source.Writer, k, o.Ref,
					func(live *unstructured.Unstructured) error {
						if string(live.GetUID()) != was.UID {
							return errStranger
						}
						if paused, _, _ := unstructured.NestedBool(live.Object, "spec",
							"paused"); o.GroupKind() == capi.Cluster && !paused {
							return &ChangedError{Why: "somebody ended the pause of " + o.Ref.String()}
						}
						if o.GroupKind() == capi.Cluster {
							return m.mayWrite(o.Namespace+"/"+o.Name, live)
						}
						return nil
					})
				switch {
				case errors.Is(err, errStranger) && was.Unit == "", errors.Is(err, errStranger) &&
					m.Rows.Row(o.GroupKind()).BoundToCluster:
					return nil // somebody made it anew, for others
				case errors.Is(err, errStranger):
					return &ChangedError{Why: o.Ref.String() + " was made anew"}
				case err != nil:
					return fmt.Errorf("%s: %w", o.Ref, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// byWave divides objects, which are in order, by their wave.
func byWave(objects []restore.Object) [][]restore.Object {
	return slices.Collect(func(yield func([]restore.Object) bool) {
		for begin := 0; begin < len(objects); {
			end := begin + 1
			for end < len(objects) && objects[end].Wave == objects[begin].Wave {
				end++
			}
			if !yield(objects[begin:end]) {
				return
			}
			begin = end
		}
	})
}

// retireShared takes away from the source what units shared and nobody there needs any more.
func (m *run) retireShared(ctx context.Context) error {
	if len(m.results.retired) == 0 || m.results.first != nil {
		return nil // units that failed still need it, or may
	}
	v, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(m.batches) {
		objects, err := m.unneeded(ctx, v, p)
		if err != nil || len(objects) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		err = m.Journal.Do(ctx, catalog.Step{Phase: "retire-shared" + p.suffix()},
			func(ctx context.Context, _ *catalog.StepHandle) error {
				return retryForbidden(ctx, func() error { return m.removeAll(ctx, p, objects) })
			})
		if err != nil {
			return fmt.Errorf("retire shared objects: %w", err)
		}
	}
	return nil
}

// retryForbidden tries again what a webhook forbids: its cache may not know yet that the last user is
// gone.
func retryForbidden(ctx context.Context, fn func() error) error {
	const tries = 10
	return retry.Do(ctx, func(failures int, err error) (time.Duration, bool) {
		return time.Second / 2, failures < tries && apierrors.IsForbidden(err)
	}, func(context.Context) error { return fn() })
}

// unneeded returns the shared objects of a batch that nothing which stays on the source needs, in
// their order. What selects its users by label, or is there for all namespaces, is kept as long as
// it may have some.
func (m *run) unneeded(ctx context.Context, v *sourceCapture, p *batch) ([]restore.Object, error) {
	g := v.graph
	leaving := map[object.Ref]bool{}
	for _, o := range p.Copy.Shared.Objects {
		was, known := p.Source[o.Ref.String()]
		n := g.Node(o.Ref) // nil for a Secret that nothing names any more, which is not captured
		leaving[o.Ref] = known && o.Action != restore.Skip && (n == nil || n.UID == was.UID) &&
			o.GroupKind() != kube.NamespaceKind.GroupKind && !m.mayHaveUsers(g, o.Ref)
	}
	var stay []*graph.Node
	for _, n := range g.Nodes {
		if !leaving[n.Ref] && !orphaned(g, n.Ref) {
			stay = append(stay, n)
		}
	}
	for _, n := range g.Closure(stay) {
		delete(leaving, n.Ref)
	}
	doomed := map[string]object.Ref{}
	for ref, yes := range leaving {
		if yes {
			doomed[p.Source[ref.String()].UID] = ref
		}
	}
	if err := m.keepDifferent(ctx, doomed, leaving); err != nil || len(doomed) == 0 {
		return nil, err
	}
	findings, err := restore.Dependants(ctx, m.Source.Reader, doomed,
		func(r object.Ref) bool { return leaving[r] || orphaned(g, r) },
		func(object.Ref) string { return "" })
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(findings, func(f object.Finding) bool {
		return f.Severity >= object.Error
	}) {
		var errs []error
		for _, f := range findings {
			errs = append(errs, m.Journal.Emit(ctx, catalog.FindingEvent("", f)))
		}
		return nil, errors.Join(errs...) // they stay: they do no harm
	}
	return slices.DeleteFunc(slices.Clone(p.Copy.Shared.Objects),
		func(o restore.Object) bool { return !leaving[o.Ref] }), nil
}

// orphaned tells of a ClusterResourceSetBinding whose Cluster is gone: a ClusterResourceSet that
// had not heard of it may have made the Binding anew, and Cluster API takes it away.
func orphaned(g *graph.Graph, ref object.Ref) bool {
	return g.Rows.Row(ref.GroupKind()).BoundToCluster &&
		g.Node(object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
			Namespace: ref.Namespace, Name: ref.Name}) == nil
}

// keepDifferent leaves on the source what is not on the target as it is here: it did not get there,
// or was changed since.
func (m *run) keepDifferent(ctx context.Context, doomed map[string]object.Ref,
	leaving map[object.Ref]bool) error {
	for uid, ref := range doomed {
		why, err := m.differs(ctx, ref)
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		delete(doomed, uid)
		delete(leaving, ref)
		if err := m.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
			Code: object.CodeSharedKept, Ref: ref, Message: "it stays on the source: " + why,
			Hint: "compare both, and delete it on the source by hand when it is not needed there"})); err != nil {
			return err
		}
	}
	return nil
}

// differs says why a shared object of the source is not on the target as it is; "" when it is, or
// when it is gone from the source.
func (m *run) differs(ctx context.Context, ref object.Ref) (string, error) {
	on := func(side Mgmt) (*unstructured.Unstructured, error) {
		k, ok := kube.FindKind(side.Kinds, ref.GroupKind())
		if !ok {
			return nil, nil
		}
		u, err := side.Reader.Get(ctx, k, ref.Namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return u, err
	}
	here, err := on(m.Source)
	if err != nil || here == nil {
		return "", err
	}
	there, err := on(m.Target)
	if err != nil || there == nil || there.GetDeletionTimestamp() != nil {
		return "it is not on the target", err
	}
	// A run that died in the middle of removing it has left its marks.
	_, removing := here.GetAnnotations()[restore.AnnotationDeleteForMove]
	restore.Unannotate(here, restore.AnnotationDeleteForMove)
	for _, u := range []*unstructured.Unstructured{here, there} {
		unstructured.RemoveNestedField(u.Object, "metadata", "ownerReferences")
		if removing {
			u.SetFinalizers(nil)
		}
	}
	if there.GetAPIVersion() == here.GetAPIVersion() {
		if paths := equality.Differences(here.Object, there.Object, equality.Spec); len(paths) > 0 {
			return "it differs from the target's in " + strings.Join(paths, ", "), nil
		}
	}
	return "", nil
}

// mayHaveUsers tells of objects that Clusters which stay may use without naming them: what selects
// by label, what is named in fields of providers that no rule knows, and what is there for all
// namespaces. Classes and templates are named, so that the graph knows their users.
func (m *run) mayHaveUsers(g *graph.Graph, ref object.Ref) bool {
	switch {
	case ref.Namespace == "":
		return len(g.Clusters()) > 0
	case g.Rows.Row(ref.GroupKind()).UsersNamed:
		return false
	}
	return slices.ContainsFunc(g.Clusters(),
		func(c *graph.Node) bool { return c.Namespace == ref.Namespace })
}
