package move

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// annotationBlockMove is set by providers on objects that must not be moved yet, and removed when
// they are ready (clusterctl contract).
const annotationBlockMove = "clusterctl.cluster.x-k8s.io/block-move"

// ChangedError means that the source differs from what the copy was made from.
type ChangedError struct{ Why string }

func (e *ChangedError) Error() string { return "the source changed while it was paused: " + e.Why }

// Hint says what the operator can do.
func (e *ChangedError) Hint() string {
	return "find out who changes paused objects (a user, a GitOps controller), roll the operation " +
		"back, and move again"
}

func pauseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "pause"} }

// change reads an object of the source, lets fn change it and writes it. It repeats that after a
// conflict.
func (m *run) change(ctx context.Context, ref object.Ref, fn func(u *unstructured.Unstructured) (
	changed bool, err error)) error {
	k, ok := kube.FindKind(m.Source.Kinds, ref.GroupKind())
	if !ok {
		return fmt.Errorf("the source no longer serves %s", ref.GroupKind())
	}
	var refused error // by fn
	err := kube.Retry(ctx, func() error {
		live, err := m.Source.Reader.Get(ctx, k, ref.Namespace, ref.Name)
		if err != nil {
			return err
		}
		var changed bool
		if changed, refused = fn(live); refused != nil || !changed {
			return refused
		}
		_, err = m.Source.Writer.Update(ctx, k, live)
		return err
	})
	if err != nil && refused == nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	return err
}

// pause pauses a unit of the source: it sets lock and switch, then waits for every object that
// acknowledges a pause. A condition Paused=True that an earlier pause left behind would pass at
// once. So every object must show Paused=False before the switch is set.
func (m *run) pause(ctx context.Context, unit string, since time.Time) error {
	return m.Journal.Do(ctx, pauseStep(unit), func(ctx context.Context, h *catalog.StepHandle) error {
		ref, err := clusterRef(unit)
		if err != nil {
			return err
		}
		captured, err := m.captures.after(ctx, since)
		if err != nil {
			return err
		}
		nodes := nodesOf(captured.graph, unit)
		if err := m.awaitAtWork(ctx, ref, nodes); err != nil {
			return err
		}
		err = m.change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
			if err := m.mayLock(unit, u); err != nil {
				return false, err
			}
			if u.GetDeletionTimestamp() != nil {
				return false, fmt.Errorf("%s is being deleted", ref)
			}
			locked := u.GetAnnotations()[capi.AnnotationOperation] == m.lock()
			capi.Annotate(u.Object, capi.AnnotationOperation, m.lock())
			return m.Rows.Pause(u.Object) || !locked, nil
		})
		if err != nil {
			return err
		}
		for _, n := range nodes { // after the lock: nothing is set under somebody else's
			if n.GroupKind() != capi.Cluster && m.Rows.Row(n.GroupKind()).Pause.Order() > 0 {
				if err := m.change(ctx, n.Ref, func(u *unstructured.Unstructured) (bool,
					error) {
					return m.Rows.Pause(u.Object), nil
				}); err != nil {
					return err
				}
			}
		}
		return errors.Join(m.awaitPaused(ctx, unit), h.SetUnit(catalog.UnitPaused))
	})
}

// awaitAtWork waits until every object of a unit shows Paused=False, except for objects that were
// paused before the move. It does not wait once the switch is set, by us or by somebody else.
func (m *run) awaitAtWork(ctx context.Context, ref object.Ref, nodes []*graph.Node) error {
	k, _ := kube.FindKind(m.Source.Kinds, ref.GroupKind())
	live, err := m.Source.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused")
	if paused || capi.PausedByUs(live.Object) {
		return nil
	}
	if _, annotated := live.GetAnnotations()[capi.AnnotationPaused]; annotated {
		return nil
	}
	return m.await(ctx, nodes, "the source's objects to be at work before the pause",
		func(n *graph.Node, u *unstructured.Unstructured) string {
			if n.Paused || !capi.PublishesPause(u.Object) || capi.PausedByUs(u.Object) {
				return ""
			}
			return capi.NotAcknowledged(u.Object, "False")
		})
}

// awaitPaused captures the source, waits until all objects of a unit acknowledged the pause and no
// provider blocks the move, and then for Tuning.Settle.
func (m *run) awaitPaused(ctx context.Context, unit string) error {
	captured, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return err
	}
	if err := m.await(ctx, nodesOf(captured.graph, unit), "the source's controllers to "+
		"acknowledge the pause", m.whyNotPaused); err != nil {
		return err
	}
	return retry.Sleep(ctx, m.Tuning.Settle) // for controllers that publish nothing
}

// whyNotPaused returns why an object does not count as paused yet; "" when it does.
func (m *run) whyNotPaused(_ *graph.Node, u *unstructured.Unstructured) string {
	if _, blocked := u.GetAnnotations()[annotationBlockMove]; blocked {
		return "its provider holds the move back (annotation " + annotationBlockMove + ")"
	}
	if capi.PublishesPause(u.Object) && m.Rows.Row(kindOf(u)).Pause.Acknowledged() {
		if why := capi.NotAcknowledged(u.Object, "True"); why != "" {
			return why
		}
	}
	if kindOf(u) == capi.Cluster {
		return capi.TopologyNotPaused(u.Object)
	}
	return ""
}

func kindOf(u *unstructured.Unstructured) object.GroupKind {
	gvk := u.GroupVersionKind()
	return object.GroupKind{Group: gvk.Group, Kind: gvk.Kind}
}

// await polls objects of the source until problem returns "" for all of them. An object that is
// gone has no problem.
func (m *run) await(ctx context.Context, nodes []*graph.Node, what string,
	problem func(n *graph.Node, u *unstructured.Unstructured) string) error {
	return restore.Wait(ctx, restore.WaitError{Side: "source", What: what}, m.Tuning.Wait, nodes,
		func(ctx context.Context, nodes []*graph.Node) ([]*graph.Node, string, error) {
			return m.problems(ctx, nodes, problem)
		})
}

func (m *run) problems(ctx context.Context, nodes []*graph.Node, problem func(n *graph.Node,
	u *unstructured.Unstructured) string) (left []*graph.Node, first string, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, n := range nodes {
		k, ok := kube.FindKind(m.Source.Kinds, n.GroupKind())
		if pause := m.Rows.Row(n.GroupKind()).Pause; !ok || pause.Passive() || pause.Late() {
			continue // it has no pause that we know
		}
		m.slots <- struct{}{}
		g.Go(func() error {
			defer func() { <-m.slots }()
			u, err := m.Source.Reader.Get(ctx, k, n.Namespace, n.Name)
			var why string
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil && kube.Transient(err):
				why = err.Error()
			case err != nil:
				return fmt.Errorf("%s: %w", n.Ref, err)
			default:
				why = problem(n, u)
			}
			if why != "" {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, n)
				if first == "" {
					first = n.Ref.String() + ": " + why
				}
			}
			return nil
		})
	}
	// first: in which order a return reads a variable and calls a function is not specified
	err = g.Wait()
	return left, first, err
}

// unpause undoes the pause of a unit of the source. With wait it waits until the controllers
// reconcile the unit again. Without it, the next pause waits for that.
func (m *run) unpause(ctx context.Context, unit string, wait bool, state catalog.UnitState) error {
	return m.Journal.Undo(ctx, pauseStep(unit), func(ctx context.Context,
		h *catalog.StepHandle) error {
		ref, err := clusterRef(unit)
		if err != nil {
			return err
		}
		captured, err := m.captures.after(ctx, time.Time{})
		if err != nil {
			return err
		}
		nodes := nodesOf(captured.graph, unit)
		if err := m.unpauseOwn(ctx, ref, nodes); err != nil {
			return err
		}
		unpaused, staysPaused := false, false
		err = m.change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
			if !m.locked(u) {
				return false, nil // never paused by us, or unpaused by a run that died afterwards
			}
			if err := m.mayWrite(unit, u); err != nil {
				return false, err
			}
			unpaused = true
			m.Rows.Unpause(u.Object)
			capi.Unannotate(u.Object, capi.AnnotationOperation)
			paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
			_, annotated := u.GetAnnotations()[capi.AnnotationPaused]
			staysPaused = paused || annotated
			return true, nil
		})
		if err != nil {
			return err
		}
		if wait && unpaused && !staysPaused {
			m.awaitReconciled(ctx, unit, nodes)
		}
		return h.SetUnit(state)
	})
}

// unpauseOwn unpauses the objects of a unit that have a switch of their own. It comes before the
// Cluster is unpaused, which also frees the lock, and does nothing unless we hold the lock.
func (m *run) unpauseOwn(ctx context.Context, cluster object.Ref, nodes []*graph.Node) error {
	ours := false
	if err := m.change(ctx, cluster, func(u *unstructured.Unstructured) (bool, error) {
		ours = m.locked(u)
		return false, nil
	}); err != nil || !ours {
		return err
	}
	for _, n := range nodes {
		if n.GroupKind() == capi.Cluster || m.Rows.Row(n.GroupKind()).Pause.Order() == 0 {
			continue
		}
		if err := m.change(ctx, n.Ref, func(u *unstructured.Unstructured) (bool,
			error) {
			return m.Rows.Unpause(u.Object), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// awaitReconciled waits until controllers reconcile an unpaused unit again. A timeout is only a
// finding: the source itself is what it was.
func (m *run) awaitReconciled(ctx context.Context, unit string, nodes []*graph.Node) {
	err := m.await(ctx, nodes, "the source's controllers to be at work again",
		func(n *graph.Node, u *unstructured.Unstructured) string {
			if n.Paused || !capi.PublishesPause(u.Object) {
				return ""
			}
			return capi.NotAcknowledged(u.Object, "False")
		})
	if err != nil && ctx.Err() == nil {
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit,
			object.Finding{Severity: object.Warning, Code: object.CodeNotWorking, Message: err.Error(),
				Hint: "read the logs of the source's controllers"}))
	}
}
