package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// ChangedError means that the source differs from what the copy was made from.
type ChangedError struct{ Why string }

func (e *ChangedError) Error() string { return "the source changed while it was paused: " + e.Why }

// Hint says what the operator can do.
func (e *ChangedError) Hint() string {
	return "find out who changes paused objects (a user, a GitOps controller), then resume the " +
		"operation"
}

func lockStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "lock"} }

func pauseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "pause"} }

// lockUnit locks a unit of the source, which works on it until it is paused. A condition
// Paused=True that an earlier pause left behind would pass for a new one at once. So every object
// must show Paused=False first. Objects whose controllers take long to acknowledge a pause are
// paused here, each by itself, and pause waits for them.
func (m *run) lockUnit(ctx context.Context, unit string, from look) error {
	return m.Journal.Do(ctx, lockStep(unit), func(ctx context.Context, h *catalog.StepHandle) error {
		return errors.Join(m.lockFirst(ctx, h, from), h.SetUnit(catalog.UnitLocked))
	})
}

// lockFirst waits until the source works on a unit, arms the admission policy for it, and locks it.
func (m *run) lockFirst(ctx context.Context, h *catalog.StepHandle, from look) error {
	unit := h.Step().Unit
	ref, nodes, err := m.sourceUnit(ctx, unit, from)
	if err != nil {
		return err
	}
	if err := m.awaitAtWork(ctx, unit, ref, from); err != nil {
		return err
	}
	if err := m.armFor(ctx, unit, ref); err != nil {
		return err
	}
	if err := m.takeLock(ctx, h, ref, nodes, false); err != nil {
		return err
	}
	return m.pauseFirst(ctx, unit, ref, nodes)
}

// pauseFirst pauses what PauseFirst does, under the lock of this run.
func (m *run) pauseFirst(ctx context.Context, unit string, ref object.Ref,
	nodes []*graph.Node) error {
	m.noteSwitches(unit, nodes)
	_, err := m.pauser.PauseFirst(ctx, nodes)
	return m.underLock(ctx, unit, ref, nodes, err)
}

// pauseOwn pauses what PauseOwn does, under the lock of this run.
func (m *run) pauseOwn(ctx context.Context, unit string, ref object.Ref,
	nodes []*graph.Node) error {
	m.noteSwitches(unit, nodes)
	_, err := m.pauser.PauseOwn(ctx, nodes)
	return m.underLock(ctx, unit, ref, nodes, err)
}

// noteSwitches notes the objects of a unit of which this run may set the switches.
func (m *run) noteSwitches(unit string, nodes []*graph.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.switched[unit] == nil {
		m.switched[unit] = map[string]*graph.Node{}
	}
	for _, n := range nodes {
		m.switched[unit][n.UID] = n
	}
}

// switchedOf returns the objects of a unit of which a run may have set the switches: those that
// this run has set, which are all then, or else those that a capture shows: it is younger than any
// earlier run.
func (m *run) switchedOf(ctx context.Context, unit string) (object.Ref, []*graph.Node, error) {
	m.mu.Lock()
	switched := m.switched[unit]
	nodes := slices.Collect(maps.Values(switched))
	m.mu.Unlock()
	if len(nodes) == 0 {
		return m.switchedBefore(ctx, unit)
	}
	slices.SortFunc(nodes, func(a, b *graph.Node) int { return strings.Compare(a.UID, b.UID) })
	ref, err := clusterRef(unit)
	return ref, nodes, err
}

// switchedBefore is switchedOf for what earlier runs have set. What belonged to the unit in the
// plan may not any more: somebody deleted the Cluster, or another one has come to use it as well.
// It is left alone when it belongs to another unit by now, which may be handed over.
func (m *run) switchedBefore(ctx context.Context, unit string) (object.Ref, []*graph.Node, error) {
	ref, nodes, err := m.sourceUnit(ctx, unit, look{captures: m.captures})
	if err != nil || len(nodes) > 0 && len(m.switches[unit]) == 0 {
		return ref, nodes, err
	}
	there, since := len(nodes) > 0, time.Time{}
	if !there {
		since = time.Now() // the Cluster is gone
	}
	captured, err := m.captures.graphOf(ctx, since, m.namespacesOf(unit))
	if err != nil {
		return ref, nil, err
	}
	for _, ref := range m.switches[unit] {
		n := captured.graph.Node(ref)
		if n != nil && n.Unit == "" && (!n.Shared || there) && !m.switchedFor(n.UID) {
			of := *n
			of.Unit = unit
			nodes = append(nodes, &of)
		}
	}
	return ref, nodes, nil
}

// switchedFor reports whether this run may have set the switch of an object for a unit.
func (m *run) switchedFor(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range m.switched {
		if of[uid] != nil {
			return true
		}
	}
	return false
}

// underLock checks that this run holds the lock of a unit, of whose objects it has just set
// switches: err is the error of that. A run without the lock takes back what it has set, also
// before: a give-back leaves a workload cluster without our lock alone. It is a process that was
// suspended after it had seen the lock, or somebody has removed that.
func (m *run) underLock(ctx context.Context, unit string, ref object.Ref, nodes []*graph.Node,
	err error) error {
	holder, readErr := m.lockHolder(ctx, ref)
	if readErr != nil || holder == m.lock() {
		return errors.Join(err, readErr)
	}
	return m.withoutLock(ctx, unit, nodes, errors.Join(err,
		&LockedError{Workload: unit, Holder: holder, Lock: m.lock()}))
}

// withoutLock takes back the switches that this run has set, when err is that it has lost its lock.
// It leaves what another run has set, or has found set and relies on: that has the lock of the
// other run by then. Once a hand-over was begun, all switches stay: the target may work (I1).
func (m *run) withoutLock(ctx context.Context, unit string, nodes []*graph.Node, err error) error {
	if _, lost := errors.AsType[*LockedError](err); !lost {
		return err
	}
	if state, unknown := m.Journal.State(ctx, handOverStep(unit)); unknown != nil || isBegun(state) {
		return errors.Join(err, unknown)
	}
	return errors.Join(err, m.pauser.TakeBack(ctx, nodes))
}

// pause pauses a unit of the source that is locked, and waits for the acknowledgements of the
// objects that it had then; snapshotPaused looks for others. What PauseFirst has paused comes
// first, while the workload cluster is at work, and the units of a batch wait for each other before
// their Clusters are paused. That may take a minute: when the run is to end by then, nothing is.
func (m *run) pause(ctx context.Context, unit string, of *readyGroup, together *meeting) error {
	defer together.leave(unit)
	run := ctx // the context of the step does not end with it
	return m.Journal.Do(ctx, pauseStep(unit), func(ctx context.Context, h *catalog.StepHandle) error {
		if err := beginSince(ctx, h); err != nil {
			return err
		}
		ref, err := clusterRef(unit)
		if err != nil {
			return err
		}
		nodes := m.known(of, unit)
		if err := m.checkServed(nodes); err != nil {
			return err
		}
		holder, err := m.lockHolder(ctx, ref)
		switch {
		case err != nil:
		case holder != m.lock(): // an earlier run locked it, or died while it gave it back
			err = m.lockFirst(ctx, h, of.look)
		default:
			err = m.pauseFirst(ctx, unit, ref, nodes) // those that are new
		}
		if err != nil {
			return err
		}
		if err := m.awaitFirst(ctx, nodes); err != nil {
			return err
		}
		followed := m.pauser.Follow(ctx, nodes)
		defer followed.Close()
		if err := together.wait(run, unit); err != nil {
			return err
		}
		if run.Err() != nil {
			return context.Cause(run)
		}
		m.startClock(unit)
		if err := recordSince(ctx, h, m.pausedFrom(unit)); err != nil {
			return err
		}
		if err := m.takeLock(ctx, h, ref, nodes, true); apierrors.IsNotFound(err) {
			return errors.Join(err, h.Record(ctx,
				catalog.Value{Key: sinceValue, Data: json.RawMessage(noSince)})) // nothing is paused
		} else if err != nil {
			return err
		}
		if err := m.pauseOwn(ctx, unit, ref, nodes); err != nil {
			return err
		}
		followed.Versions().Forget() // what is polled is read as it is after the pause
		limited, cancel := m.limitBatch(ctx, []string{unit})
		defer cancel()
		err = m.awaitAcknowledged(limited, followed, nodes, m.pauseWait())
		return errors.Join(m.tooLong(err), h.SetUnit(catalog.UnitPaused))
	})
}

// awaitFirst waits for the acknowledgements of what PauseFirst has paused. The workload cluster is
// at work meanwhile, so that MaxPause limits no such wait.
func (m *run) awaitFirst(ctx context.Context, nodes []*graph.Node) error {
	return m.await(ctx, m.pauser.First(nodes), acknowledgement, m.Tuning.Wait, m.pauser.NotPaused)
}

// sourceUnit returns the Cluster and the objects of a unit, as a look shows them.
func (m *run) sourceUnit(ctx context.Context, unit string, from look) (object.Ref,
	[]*graph.Node, error) {
	ref, err := clusterRef(unit)
	if err != nil {
		return ref, nil, err
	}
	captured, err := from.captures.graphOf(ctx, from.since, m.namespacesOf(unit))
	if err != nil {
		return ref, nil, err
	}
	return ref, nodesOf(captured.graph, unit), nil
}

// acknowledgement is what the units of a batch wait for once they are paused.
const acknowledgement = "the source's controllers to acknowledge the pause"

// takeLock writes the lock of this run to the Cluster of a unit, and with pause its switch as well.
// nodes are the objects of the unit.
func (m *run) takeLock(ctx context.Context, h *catalog.StepHandle, cluster object.Ref,
	nodes []*graph.Node, pause bool) error {
	unit := h.Step().Unit
	err := m.pauser.Change(ctx, cluster, func(u *unstructured.Unstructured) (bool, error) {
		may := m.mayLock
		if pause { // this run has locked it: without that, somebody has given it back since
			may = m.mayWrite
		}
		if err := may(unit, u); err != nil {
			return false, err
		}
		if u.GetDeletionTimestamp() != nil {
			return false, &deletingError{cluster}
		}
		if err := m.Journal.Alive(ctx); err != nil { // after the read, as in changeShared
			return false, err
		}
		locked := u.GetAnnotations()[capi.AnnotationOperation] == m.lock()
		capi.Annotate(u.Object, capi.AnnotationOperation, m.lock())
		return pause && m.Rows.Pause(u.Object) || !locked, nil
	})
	if err != nil {
		return m.withoutLock(ctx, unit, nodes, err)
	}
	return m.confirmLock(ctx, h, cluster, nodes)
}

// namespacesOf returns the namespaces in which the plan, and that of its batch, has objects of a
// unit, and of those that are moved together with it: they share captures.
func (m *run) namespacesOf(unit string, batch ...restore.Unit) []string {
	m.mu.Lock()
	units := append([]string{unit}, m.together[unit]...)
	m.mu.Unlock()
	var found []string
	for _, unit := range units {
		namespace, _, _ := strings.Cut(unit, "/")
		found = append(append(found, namespace), m.namespaces[unit]...)
	}
	for _, u := range batch {
		if slices.Contains(units, u.Name) {
			found = append(found, namespacesIn(u)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// goTogether notes that units are moved together.
func (m *run) goTogether(units []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, unit := range units {
		m.together[unit] = units
	}
}

// awaitAtWork waits until every object of a unit shows Paused=False, except for objects that were
// paused before the move. It does not wait once the switch is set, by us or by somebody else.
func (m *run) awaitAtWork(ctx context.Context, unit string, ref object.Ref,
	from look) error {
	k, _ := kube.FindKind(m.Source.Kinds, ref.GroupKind())
	live, err := m.Source.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused")
	if paused || m.Rows.StillPaused(live.Object) {
		return nil
	}
	if _, annotated := live.GetAnnotations()[capi.AnnotationPaused]; annotated {
		return nil
	}
	problem := func(n *graph.Node, u *unstructured.Unstructured) string {
		if n.Paused || !capi.PublishesPause(u.Object) || m.Rows.StillPaused(u.Object) {
			return ""
		}
		return capi.NotAcknowledged(u.Object, "False")
	}
	v, err := from.captures.of(ctx, from.since, m.namespacesOf(unit))
	if err != nil {
		return err
	}
	nodes, err := m.withProblem(v, nodesOf(v.graph, unit), problem)
	if err != nil {
		return err
	}
	return m.await(ctx, nodes, "the source's objects to be at work before the pause", m.Tuning.Wait,
		problem)
}

// unpause undoes the pause of a unit of the source, and its lock. With wait it waits until the
// controllers reconcile the unit again. Without it, the next pause waits for that.
func (m *run) unpause(ctx context.Context, unit string, wait bool, state catalog.UnitState) error {
	undo := func(ctx context.Context, h *catalog.StepHandle) error {
		return m.unpauseIn(ctx, h, unit, wait, state)
	}
	if err := m.Journal.Undo(ctx, pauseStep(unit), undo); err != nil {
		return err
	}
	return m.Journal.Undo(ctx, lockStep(unit), undo) // one that died in between was never paused
}

// unpauseIn is unpause in one of the two steps.
func (m *run) unpauseIn(ctx context.Context, h *catalog.StepHandle, unit string, wait bool,
	state catalog.UnitState) error {
	ref, nodes, err := m.switchedOf(ctx, unit)
	if err != nil {
		return err
	}
	begun := h.Step().Phase == pauseStep(unit).Phase
	if err := m.beforeUnpause(ctx, unit, ref, nodes, begun); apierrors.IsNotFound(err) {
		if gone, listErr := m.isGone(ctx, ref); gone {
			return m.unpauseGone(ctx, h, ref, nodes, state)
		} else if listErr != nil {
			return listErr
		}
		return err
	} else if err != nil {
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
	err = h.Record(ctx, catalog.Value{Key: sinceValue, Data: json.RawMessage(noSince)})
	return errors.Join(err, h.SetUnit(state))
}

// beforeUnpause gives back what a pause set besides the switch of the Cluster: the objects of the
// unit that have one of their own, and the admission policy, which would deny to unpause the
// Cluster. It does so only when we hold the lock, or when a run died between the policy and the
// lock. A unit that another management cluster claimed since planning is not given back (I1), nor
// is one whose pause was begun, and which is paused without a lock (*LockedError).
func (m *run) beforeUnpause(ctx context.Context, unit string, cluster object.Ref,
	nodes []*graph.Node, begun bool) error {
	ours, free, unlocked := false, false, false
	if err := m.pauser.Change(ctx, cluster, func(u *unstructured.Unstructured) (bool, error) {
		annotations := u.GetAnnotations()
		_, fenced := annotations[capi.AnnotationFenced]
		if ours = m.locked(u); ours {
			if err := m.mayWrite(unit, u); err != nil {
				return false, err // a later run, on another host, has it
			}
		}
		unlocked = annotations[capi.AnnotationOperation] == "" && !fenced
		free = unlocked && !capi.PausedByUs(u.Object)
		return false, nil
	}); err != nil {
		return err
	}
	if !ours && !free {
		if unlocked && begun {
			return m.mayHold(unit, "")
		}
		return nil
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
