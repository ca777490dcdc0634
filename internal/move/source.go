package move

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// annotationBlockMove is set by providers on what must not be moved yet, and removed when they are
// ready (clusterctl contract).
const annotationBlockMove = "clusterctl.cluster.x-k8s.io/block-move"

// LockedError says that another operation, or a later run of this one, is at work on a workload
// cluster.
type LockedError struct{ Workload, Holder string }

func (e *LockedError) Error() string {
	return "workload cluster " + e.Workload + " is locked by operation " + e.Holder
}

// Hint tells the operator what to do.
func (e *LockedError) Hint() string {
	operation, _, _ := strings.Cut(e.Holder, "/")
	return "resume operation " + operation + " or roll it back first"
}

// HintKey names the command that shows an operation.
func (e *LockedError) HintKey() object.HintKey { return object.HintOperation }

// ChangedError says that the source is not what the copy was made from.
type ChangedError struct{ Why string }

func (e *ChangedError) Error() string { return "the source changed while it was paused: " + e.Why }

// Hint tells the operator what to do.
func (e *ChangedError) Hint() string {
	return "find out who changes paused objects (a user, a GitOps controller), roll the operation " +
		"back, and move again"
}

func pauseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "pause"} }

// lock is what stands in the annotation of a source Cluster.
func (m *run) lock() string { return m.Operation + "/" + strconv.Itoa(m.Attempt) }

// mayWrite looks at the lock of a source Cluster: nil when it is ours, or of an earlier run of
// ours.
func (m *run) mayWrite(unit string, cluster *unstructured.Unstructured) error {
	held := cluster.GetAnnotations()[capi.AnnotationOperation]
	operation, attempt, _ := strings.Cut(held, "/")
	if n, err := strconv.Atoi(attempt); err == nil && operation == m.Operation && n <= m.Attempt {
		return nil
	}
	return &LockedError{Workload: unit, Holder: held}
}

// mayLock is mayWrite for the first write: the lock may be free, or one that was there at planning
// and is taken over by force. What stands still by somebody else's hand without a lock is a copy
// that is not at its end.
func (m *run) mayLock(unit string, cluster *unstructured.Unstructured) error {
	held := cluster.GetAnnotations()[capi.AnnotationOperation]
	if held == "" && !capi.PausedByUs(cluster.Object) || held != "" &&
		m.Plan.Spec.Force.Has(object.CodeLocked) &&
		m.Plan.Locks[unit] == held {
		return nil
	}
	return m.mayWrite(unit, cluster)
}

// holdLock makes sure that the lock is ours, with the number of this run, and that the Cluster
// stands still. Whoever ended the pause before the hand-over, when forward is false, keeps it from
// happening; after it, the pause is set again.
func (m *run) holdLock(ctx context.Context, unit string, forward bool) error {
	ref, err := clusterRef(unit)
	if err != nil {
		return err
	}
	again := false
	err = m.change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
		if err := m.mayWrite(unit, u); err != nil {
			return false, err
		}
		paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		if again = !paused || !capi.PausedByUs(u.Object); again && !forward {
			return false, &ChangedError{Why: "somebody ended the pause of " + ref.String()}
		}
		held := u.GetAnnotations()[capi.AnnotationOperation]
		restore.Annotate(u, capi.AnnotationOperation, m.lock())
		if again {
			m.Rows.Pause(u.Object)
			if err := unstructured.SetNestedField(u.Object, true, "spec", "paused"); err != nil {
				return false, err
			}
		}
		return again || held != m.lock(), nil
	})
	if err != nil || !again {
		return err
	}
	_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit,
		object.Finding{Severity: object.Error, Code: object.CodePauseEnded, Ref: ref,
			Message: "somebody ended the pause of the source's Cluster after its hand-over; it is " +
				"paused again", Hint: "look for a GitOps controller that applies it, and for what both " +
				"sides did meanwhile"}))
	return m.awaitStand(ctx, unit)
}

// change reads an object of the source and writes what fn makes of it, until both are of the same
// moment.
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

// pause brings a unit of the source to a stand: lock and switch, then the acknowledgement of every
// object that gives one. A True that is left from an earlier pause would pass at once, so before
// the switch is set every object has to have shown that it is at work.
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
			restore.Annotate(u, capi.AnnotationOperation, m.lock())
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
		return errors.Join(m.awaitStand(ctx, unit), h.SetUnit(catalog.UnitPaused))
	})
}

// awaitAtWork waits until every object of a unit shows that it is not paused, but for those that
// were paused before. Once the switch is set by us it waits no more.
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
			if n.Paused || !restore.PublishesPause(u) || capi.PausedByUs(u.Object) {
				return ""
			}
			return restore.NotAcknowledged(u, "False")
		})
}

// awaitStand waits for the acknowledgements of a pause, for the objects as they are after it was
// set, and for providers that hold a move back.
func (m *run) awaitStand(ctx context.Context, unit string) error {
	captured, err := m.captures.after(ctx, time.Now())
	if err != nil {
		return err
	}
	if err := m.await(ctx, nodesOf(captured.graph, unit), "the source's controllers to "+
		"acknowledge the pause", m.standing); err != nil {
		return err
	}
	return retry.Sleep(ctx, m.Tuning.Settle) // for controllers that publish nothing
}

// standing says why an object does not stand still yet; "" when it does.
func (m *run) standing(_ *graph.Node, u *unstructured.Unstructured) string {
	if _, blocked := u.GetAnnotations()[annotationBlockMove]; blocked {
		return "its provider holds the move back (annotation " + annotationBlockMove + ")"
	}
	if restore.PublishesPause(u) && m.Rows.Row(kindOf(u)).Pause.Acknowledged() {
		if why := restore.NotAcknowledged(u, "True"); why != "" {
			return why
		}
	}
	if kindOf(u) == capi.Cluster {
		return restore.TopologyNotPaused(u)
	}
	return ""
}

func kindOf(u *unstructured.Unstructured) object.GroupKind {
	gvk := u.GroupVersionKind()
	return object.GroupKind{Group: gvk.Group, Kind: gvk.Kind}
}

// await polls objects of the source until problem finds none with any of them. One that is gone is
// none.
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
			continue // nothing says whether it is paused
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

// unpause gives a unit of the source back as it was. wait waits until its controllers work again;
// the next pause does so, too, before it begins.
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
		gave, stays := false, false
		err = m.change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
			if !m.locked(u) {
				return false, nil // never paused by us, or given back by a run that died then
			}
			if err := m.mayWrite(unit, u); err != nil {
				return false, err
			}
			gave = true
			m.Rows.Unpause(u.Object)
			restore.Unannotate(u, capi.AnnotationOperation)
			paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
			_, annotated := u.GetAnnotations()[capi.AnnotationPaused]
			stays = paused || annotated
			return true, nil
		})
		if err != nil {
			return err
		}
		if wait && gave && !stays {
			m.awaitWorking(ctx, unit, nodes)
		}
		return h.SetUnit(state)
	})
}

// locked tells whether a source Cluster carries the lock of this operation, whichever run took it.
func (m *run) locked(cluster *unstructured.Unstructured) bool {
	operation, _, _ := strings.Cut(cluster.GetAnnotations()[capi.AnnotationOperation], "/")
	return operation == m.Operation
}

// unpauseOwn gives back, before its Cluster, what has a pause of its own in a unit that is locked
// by us.
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

// awaitWorking waits for controllers to take up what was given back. That they do not is told: the
// source is as it was.
func (m *run) awaitWorking(ctx context.Context, unit string, nodes []*graph.Node) {
	err := m.await(ctx, nodes, "the source's controllers to be at work again",
		func(n *graph.Node, u *unstructured.Unstructured) string {
			if n.Paused || !restore.PublishesPause(u) {
				return ""
			}
			return restore.NotAcknowledged(u, "False")
		})
	if err != nil && ctx.Err() == nil {
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit,
			object.Finding{Severity: object.Warning, Code: object.CodeNotWorking, Message: err.Error(),
				Hint: "look at the logs of the source's controllers"}))
	}
}
