package restore

import (
	"fmt"

	"github.com/mgmtd/mgmtd/internal/object"
)

// unpausedError says that somebody ended the pause of a workload cluster in the middle of its
// restore.
type unpausedError struct{ Unit string }

func (e *unpausedError) Error() string {
	return "the workload cluster " + e.Unit + " is not paused any more on the target, and not all " +
		"of its objects are there"
}

// Hint says what to do next.
func (e *unpausedError) Hint() string {
	return "pause it at once (spec.paused: true), find out whether its controllers made new " +
		"Machines, then resume"
}

// deletedError says that an object that this restore created, adopted or relies on was deleted, or
// is being deleted.
type deletedError struct{}

func (e *deletedError) Error() string { return "it was deleted on the target, or is being deleted" }

// Hint says what to do next.
func (e *deletedError) Hint() string {
	return "find out who deleted it; then run the restore again as a new operation, which adopts " +
		"what is equal and creates what is missing"
}

// HintKey names the commands that plan again.
func (e *deletedError) HintKey() object.HintKey { return object.HintPlan }

// terminatingError says that an object was refused because the target is deleting its namespace.
type terminatingError struct{ Err error }

func (e *terminatingError) Error() string { return e.Err.Error() }

func (e *terminatingError) Unwrap() error { return e.Err }

// Hint says what to do next.
func (e *terminatingError) Hint() string {
	return "let the deletion of the namespace finish, or read its conditions for what holds it; " +
		"then run the restore again as a new operation"
}

// HintKey names the commands that plan again.
func (e *terminatingError) HintKey() object.HintKey { return object.HintPlan }

// notOwnedError says that an object on the target is not the one that this operation created or
// adopted.
type notOwnedError struct{ Ref object.Ref }

func (e *notOwnedError) Error() string {
	return "the target has an object of this name that this operation did not create"
}

// Hint says what to do next.
func (e *notOwnedError) Hint() string {
	return "it came after the plan was made: find out who made it, then plan again (roll a move " +
		"back before that); the new plan adopts it or says how it differs"
}

// HintKey names the commands that plan again.
func (e *notOwnedError) HintKey() object.HintKey { return object.HintPlan }

// OperationAtWorkError says that another operation is at work on an object: it has its lock.
type OperationAtWorkError struct{ Operation string }

func (e *OperationAtWorkError) Error() string {
	return "operation " + e.Operation + " is at work on it"
}

// Hint says what to do next.
func (e *OperationAtWorkError) Hint() string {
	return "resume operation " + e.Operation + " or roll it back; when neither can be, since its " +
		"target is gone for good, remove the annotation " + annotationOperation + " from the object " +
		"(of a workload cluster: from its Cluster)"
}

// HintKey names the command that shows an operation.
func (e *OperationAtWorkError) HintKey() object.HintKey { return object.HintOperation }

// copyAtWorkError says that a copy which is to be taken back is at work.
type copyAtWorkError struct{ Unit string }

func (e *copyAtWorkError) Error() string {
	return "the copy of " + e.Unit + " on the target is at work, or not ours any more: nothing of " +
		"it is removed"
}

// Hint says what to do next.
func (e *copyAtWorkError) Hint() string {
	return "another operation or somebody released it; find out which management cluster has this " +
		"workload cluster before anything else"
}

// IncompleteError says that something was changed and work is left: units failed, or a finding of
// post-flight is left. A resume continues.
type IncompleteError struct {
	// Left were not begun, or not released: the canary or too many others failed, or Stopped is set.
	Failed, Blocked, Left int
	// Stopped: Machines came or went after a release, so nothing further was released.
	Stopped bool
	First   error
}

func (e *IncompleteError) Error() string {
	switch {
	case e.First != nil:
		text := fmt.Sprintf("units failed: %d", e.Failed)
		if e.Left > 0 {
			text += fmt.Sprintf(", not released: %d", e.Left)
		}
		if e.Blocked > 0 {
			text += fmt.Sprintf(", blocked by pre-flight: %d", e.Blocked)
		}
		if e.Stopped {
			text += ", stopped before the next release"
		}
		return fmt.Sprintf("%s; the first: %v", text, e.First)
	case e.Left > 0:
		return fmt.Sprintf("units not released: %d, blocked by pre-flight: %d; none failed", e.Left,
			e.Blocked)
	default:
		return fmt.Sprintf("units blocked by pre-flight: %d; all others are restored", e.Blocked)
	}
}

func (e *IncompleteError) Unwrap() error { return e.First }

// FindingsError says that findings of a pre-flight block the whole restore. Nothing was changed.
type FindingsError struct {
	Findings []object.Finding
	Canary   string // set when the findings of the canary block the others
}

func (e *FindingsError) Error() string {
	var first string
	n := 0
	for _, f := range e.Findings {
		if f.Severity >= object.Error {
			if n == 0 {
				first = f.String()
			}
			n++
		}
	}
	if e.Canary != "" {
		return fmt.Sprintf("the canary %s is blocked, so nothing runs; its first finding: %s", e.Canary,
			first)
	}
	if n == 1 {
		return "pre-flight: " + first
	}
	return fmt.Sprintf("pre-flight: %d findings block it, the first: %s", n, first)
}

// Hint says what to do next.
func (e *FindingsError) Hint() string {
	return "the plan lists all findings and what to do about each"
}

// HintKey names the commands that show a plan.
func (e *FindingsError) HintKey() object.HintKey { return object.HintPlan }

// PlanChangedError says that a reviewed plan is not the one that would run now.
type PlanChangedError struct{ Want, Got string }

func (e *PlanChangedError) Error() string {
	return fmt.Sprintf("plan changed: reviewed %.12s, would run %.12s", e.Want, e.Got)
}

// Hint says what to do next.
func (e *PlanChangedError) Hint() string {
	return "objects, owners, pause states or findings differ from the reviewed plan: " +
		"plan again and review the new one"
}

// HintKey names the commands that plan again.
func (e *PlanChangedError) HintKey() object.HintKey { return object.HintPlan }

// differentError says that copies have lost or changed values of the snapshot, so that their
// workload cluster stays paused.
type differentError struct {
	Objects int
	First   string // one of them, with the paths
}

func (e *differentError) Error() string {
	return fmt.Sprintf("verify: %d objects on the target have lost or changed values of the "+
		"snapshot, the first: %s", e.Objects, e.First)
}

// Hint says what to do next.
func (e *differentError) Hint() string {
	return "find out what changes them on the target (a webhook, a policy, a controller that does " +
		"not pause) and stop it, then resume the operation; or restore again and accept the difference"
}

// HintKey names the flag that accepts a difference.
func (e *differentError) HintKey() object.HintKey { return object.HintAcceptDifference }
