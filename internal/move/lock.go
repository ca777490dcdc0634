package move

import (
	"context"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

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
	if held == "" && !restore.PausedByUs(cluster) || held != "" &&
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
		if again = !paused || !restore.PausedByUs(u); again && !forward {
			return false, &ChangedError{Why: "somebody ended the pause of " + ref.String()}
		}
		held := u.GetAnnotations()[capi.AnnotationOperation]
		restore.Annotate(u, capi.AnnotationOperation, m.lock())
		if again {
			restore.Pause(u)
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

// locked tells whether a source Cluster carries the lock of this operation, whichever run took it.
func (m *run) locked(cluster *unstructured.Unstructured) bool {
	operation, _, _ := strings.Cut(cluster.GetAnnotations()[capi.AnnotationOperation], "/")
	return operation == m.Operation
}
