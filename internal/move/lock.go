package move

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
)

// LockedError means that another operation, or a later run of this one, works on a workload
// cluster, or did: then Holder is "".
type LockedError struct {
	Workload, Holder string
	Lock             string // that of this run
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return "the lock of workload cluster " + e.Workload + " is gone"
	}
	return "workload cluster " + e.Workload + " is locked by operation " + e.Holder
}

// Hint says what the operator can do.
func (e *LockedError) Hint() string {
	operation, _, _ := strings.Cut(e.Holder, "/")
	if operation == "" {
		return "find out which host has gone on with this operation; when none has, somebody removed " +
			"the annotation " + capi.AnnotationOperation + " from the Cluster: write it again, with the " +
			"value " + e.Lock
	}
	return "resume operation " + operation + " or roll it back first"
}

// HintKey names the command that shows an operation.
func (e *LockedError) HintKey() object.HintKey { return object.HintOperation }

// lock returns the lock of this run: the value of the annotation on the Clusters of the source.
func (m *run) lock() string { return m.Operation + "/" + strconv.Itoa(m.Attempt) }

// mayWrite checks the lock of a source Cluster before a write. It returns nil when this run or an
// earlier run of the operation holds the lock, and a *LockedError otherwise.
func (m *run) mayWrite(unit string, cluster *unstructured.Unstructured) error {
	return m.mayHold(unit, cluster.GetAnnotations()[capi.AnnotationOperation])
}

// mayHold is mayWrite for the lock that is held.
func (m *run) mayHold(unit, held string) error {
	operation, attempt, _ := strings.Cut(held, "/")
	if n, err := strconv.Atoi(attempt); err == nil && operation == m.Operation && n <= m.Attempt {
		return nil
	}
	return &LockedError{Workload: unit, Holder: held, Lock: m.lock()}
}

// mayLock checks the lock before the first write to a source Cluster. The lock must be free, or be
// the one seen at planning when Force contains the code locked. A Cluster with our pause mark but
// no lock is an unfinished copy of another operation and is refused.
func (m *run) mayLock(unit string, cluster *unstructured.Unstructured) error {
	held := cluster.GetAnnotations()[capi.AnnotationOperation]
	if held == "" && !capi.PausedByUs(cluster.Object) || held != "" &&
		m.Plan.Spec.Force.Has(object.CodeLocked) &&
		m.Plan.Locks[unit] == held {
		return nil
	}
	return m.mayHold(unit, held)
}

// maySwitch checks the lock of an object of a unit before a write to its switch. Where it has none,
// as by a fence and by earlier versions, or that of another operation, which may have left it
// behind, the lock of the Cluster decides.
func (m *run) maySwitch(ctx context.Context, unit, held string) error {
	if operation, _, _ := strings.Cut(held, "/"); operation == m.Operation {
		return m.mayHold(unit, held)
	}
	ref, err := clusterRef(unit)
	if err != nil {
		return err
	}
	holder, err := m.lockHolder(ctx, ref)
	if err != nil {
		return err
	}
	return m.mayHold(unit, holder)
}

// holdLock writes the lock of this run and verifies that the Cluster is paused. Before the
// hand-over (forward is false) a pause that somebody ended is a *ChangedError. After the hand-over
// the Cluster is paused again.
func (m *run) holdLock(ctx context.Context, unit string, forward bool) error {
	ref, err := clusterRef(unit)
	if err != nil {
		return err
	}
	again := false // it stays true: a write that is tried again may have taken effect before
	err = m.pauser.Change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
		if err := m.mayWrite(unit, u); err != nil {
			return false, err
		}
		paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		ended := !paused || !capi.PausedByUs(u.Object)
		if ended && !forward {
			return false, &ChangedError{Why: "somebody ended the pause of " + ref.String()}
		}
		if ended && !again { // reported before the write: this process may end right after it
			m.reportPauseEnded(ctx, unit, ref)
			again = true
		}
		held := u.GetAnnotations()[capi.AnnotationOperation]
		capi.Annotate(u.Object, capi.AnnotationOperation, m.lock())
		if ended {
			m.Rows.Pause(u.Object)
			if err := unstructured.SetNestedField(u.Object, true, "spec", "paused"); err != nil {
				return false, err
			}
		}
		return ended || held != m.lock(), nil
	})
	if err != nil || !again {
		return err
	}
	now := look{captures: m.captures, since: time.Now()}
	_, err = m.awaitPaused(ctx, unit, now, nil, m.Tuning.Wait)
	return err
}

// reportPauseEnded reports a Cluster of the source that this run is about to pause again.
func (m *run) reportPauseEnded(ctx context.Context, unit string, ref object.Ref) {
	_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit,
		object.Finding{Severity: object.Error, Code: object.CodePauseEnded, Ref: ref,
			Message: "somebody ended the pause of the source's Cluster after its hand-over; this " +
				"run pauses it again", Hint: "search for a GitOps controller that applies it, and for what " +
				"both sides did meanwhile"}))
}

// confirmLock records the lock that was just set. When another host has taken over the operation
// meanwhile, that record is refused, and the lock and the pause are taken back: the other host may
// have ended the operation already, so that nobody else would. A lock of the other host has a
// higher number and stays. nodes are the objects of the unit.
func (m *run) confirmLock(ctx context.Context, h *catalog.StepHandle, ref object.Ref,
	nodes []*graph.Node) error {
	err := h.Record(ctx, catalog.Value{Key: "lock", Data: json.RawMessage(strconv.Quote(m.lock()))})
	if err == nil {
		err = h.Sync(ctx)
	}
	if _, fenced := errors.AsType[*mirror.FencedError](err); !fenced {
		return err
	}
	ours := false
	back := func(write bool) error {
		return m.pauser.Change(ctx, ref, func(u *unstructured.Unstructured) (bool, error) {
			if ours = u.GetAnnotations()[capi.AnnotationOperation] == m.lock(); !ours || !write {
				return false, nil
			}
			m.Rows.Unpause(u.Object)
			capi.Unannotate(u.Object, capi.AnnotationOperation)
			return true, nil
		})
	}
	readErr := back(false)
	if !ours {
		return errors.Join(err, readErr)
	}
	return errors.Join(err, m.policy.TakeBack(ctx, ref), m.pauser.UnpauseOwn(ctx, nodes),
		back(true))
}

// lockHolder returns the lock of a Cluster of the source; "" when it has none.
func (m *run) lockHolder(ctx context.Context, cluster object.Ref) (holder string, err error) {
	err = m.pauser.Change(ctx, cluster, func(u *unstructured.Unstructured) (bool, error) {
		holder = u.GetAnnotations()[capi.AnnotationOperation]
		return false, nil
	})
	return holder, err
}

// checkLock returns a *LockedError unless this run or an earlier one holds the lock of a unit, or
// its Cluster is gone from the source. It also returns an error when another host has taken over.
func (m *run) checkLock(ctx context.Context, unit string) error {
	ref, err := clusterRef(unit)
	if err != nil {
		return err
	}
	holder, err := m.lockHolder(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return m.Journal.Alive(ctx)
	case err != nil:
		return err
	}
	return errors.Join(m.mayHold(unit, holder), m.Journal.Alive(ctx))
}

// locked reports whether any run of this operation holds the lock of a source Cluster.
func (m *run) locked(cluster *unstructured.Unstructured) bool {
	operation, _, _ := strings.Cut(cluster.GetAnnotations()[capi.AnnotationOperation], "/")
	return operation == m.Operation
}
