package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// ChangedError means that the source differs from what the copy was made from.
type ChangedError struct{ Why string }

func (e *ChangedError) Error() string { return "the source changed while it was paused: " + e.Why }

// Hint says what the operator can do.
func (e *ChangedError) Hint() string {
	return "find out who changes paused objects (a user, a GitOps controller), roll the operation " +
		"back, and move again"
}

func pauseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "pause"} }

// pause pauses a unit of the source: it sets lock and switch, then waits for every object that
// acknowledges a pause. A condition Paused=True that an earlier pause left behind would pass at
// once. So every object must show Paused=False before the switch is set.
func (m *run) pause(ctx context.Context, unit string, since time.Time) error {
	return m.Journal.Do(ctx, pauseStep(unit), func(ctx context.Context, h *catalog.StepHandle) error {
		ref, err := clusterRef(unit)
		if err != nil {
			return err
		}
		captured, err := m.captures.of(ctx, since, m.namespacesOf(unit))
		if err != nil {
			return err
		}
		nodes := nodesOf(captured.graph, unit)
		limit := m.pauseWait()
		if err := m.awaitAtWork(ctx, ref, nodes, limit); err != nil {
			return err
		}
		if err := m.armFor(ctx, unit, ref); err != nil {
			return err
		}
		m.startClock(unit)
		err = m.pauser.Change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
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
		if err == nil {
			err = m.confirmLock(ctx, h, ref)
		}
		if err != nil {
			return err
		}
		// after the lock: nothing is set under somebody else's
		if err := m.pauser.PauseOwn(ctx, nodes); err != nil {
			return err
		}
		return errors.Join(m.tooLong(m.awaitPaused(ctx, unit, limit)), h.SetUnit(catalog.UnitPaused))
	})
}

// namespacesOf returns the namespaces in which the plan, and that of its batch, has objects of a
// unit.
func (m *run) namespacesOf(unit string, batch ...restore.Unit) []string {
	namespace, _, _ := strings.Cut(unit, "/")
	found := []string{namespace}
	for _, u := range slices.Concat(m.Plan.Copy.Units, batch) {
		for _, o := range u.Objects {
			if u.Name == unit && o.Namespace != "" && !slices.Contains(found, o.Namespace) {
				found = append(found, o.Namespace)
			}
		}
	}
	return found
}

// awaitAtWork waits until every object of a unit shows Paused=False, except for objects that were
// paused before the move. It does not wait once the switch is set, by us or by somebody else.
func (m *run) awaitAtWork(ctx context.Context, ref object.Ref, nodes []*graph.Node,
	limit time.Duration) error {
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
	return m.await(ctx, nodes, "the source's objects to be at work before the pause", limit,
		func(n *graph.Node, u *unstructured.Unstructured) string {
			if n.Paused || !capi.PublishesPause(u.Object) || capi.PausedByUs(u.Object) {
				return ""
			}
			return capi.NotAcknowledged(u.Object, "False")
		})
}

// awaitPaused captures the source, waits until all objects of a unit acknowledged the pause and no
// provider blocks the move, and then for Tuning.Settle if controllers of some publish nothing. One
// that has acknowledged the pause of an object is in the middle of nothing with it, since it
// reconciles an object once at a time. What is written all the same is found before the hand-over
// (unchanged).
func (m *run) awaitPaused(ctx context.Context, unit string, limit time.Duration) error {
	captured, err := m.captures.of(ctx, time.Now(), m.namespacesOf(unit))
	if err != nil {
		return err
	}
	var silent atomic.Bool
	if err := m.await(ctx, nodesOf(captured.graph, unit), "the source's controllers to "+
		"acknowledge the pause", limit, noteSilent(&silent, m.pauser.NotPaused)); err != nil {
		return err
	}
	if !silent.Load() {
		return nil
	}
	return retry.Sleep(ctx, m.Tuning.Settle)
}

// noteSilent notes whether a problem is asked about an object whose controllers publish nothing of
// its pause.
func noteSilent(silent *atomic.Bool, problem fence.Problem) fence.Problem {
	return func(n *graph.Node, u *unstructured.Unstructured) string {
		if !capi.PublishesPause(u.Object) {
			silent.Store(true)
		}
		return problem(n, u)
	}
}

// await polls objects of the source until problem returns "" for all of them. An object that is
// gone has no problem.
func (m *run) await(ctx context.Context, nodes []*graph.Node, what string, limit time.Duration,
	problem fence.Problem) error {
	return m.pauser.Await(ctx, nodes, what, limit, problem)
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
		captured, err := m.captures.of(ctx, time.Time{}, m.namespacesOf(unit))
		if err != nil {
			return err
		}
		nodes := nodesOf(captured.graph, unit)
		if err := m.beforeUnpause(ctx, unit, ref, nodes); err != nil {
			return err
		}
		unpaused, staysPaused := false, false
		err = m.pauser.Change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
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

// beforeUnpause gives back what a pause set besides the switch of the Cluster: the objects of the
// unit that have one of their own, and the admission policy, which would deny to unpause the
// Cluster. It does so only when we hold the lock, or when a run died between the policy and the
// lock. A unit that another management cluster claimed since planning is not given back (I1).
func (m *run) beforeUnpause(ctx context.Context, unit string, cluster object.Ref,
	nodes []*graph.Node) error {
	ours, free := false, false
	if err := m.pauser.Change(ctx, cluster, func(u *unstructured.Unstructured) (bool, error) {
		annotations := u.GetAnnotations()
		_, fenced := annotations[capi.AnnotationFenced]
		if ours = m.locked(u); ours {
			if err := m.mayWrite(unit, u); err != nil {
				return false, err // a later run, on another host, has it
			}
		}
		free = annotations[capi.AnnotationOperation] == "" && !fenced && !capi.PausedByUs(u.Object)
		return false, nil
	}); err != nil || !ours && !free {
		return err
	}
	if ours {
		if err := m.mayReturn(ctx, unit); err != nil {
			return err
		}
	}
	if err := m.policy.Allow(ctx, cluster); err != nil || !ours {
		return err
	}
	return m.pauser.UnpauseOwn(ctx, nodes)
}

// mayReturn returns an error when another management cluster claimed a unit since planning: a
// restore, after the host of this move was lost.
func (m *run) mayReturn(ctx context.Context, unit string) error {
	for _, u := range m.Plan.Copy.Units {
		switch {
		case u.Name != unit:
		case m.Store == nil:
			return m.checkSeen(ctx, u)
		default:
			return ownership.CheckReturn(ctx, m.Store, m.request(u))
		}
	}
	return nil
}

// awaitReconciled waits until controllers reconcile an unpaused unit again. A timeout is only a
// finding: the source itself is what it was.
func (m *run) awaitReconciled(ctx context.Context, unit string, nodes []*graph.Node) {
	err := m.await(ctx, nodes, "the source's controllers to be at work again", m.Tuning.Wait,
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
