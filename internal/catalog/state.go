package catalog

import (
	"fmt"
	"slices"
)

// Kind says what an operation does.
type Kind string

// The kinds of operation.
const (
	KindSnapshot Kind = "snapshot"
	KindRestore  Kind = "restore"
	KindMove     Kind = "move"
	KindVerify   Kind = "verify"
	KindPrune    Kind = "prune"
	KindCopy     Kind = "copy"
)

// allKinds are the kinds of operation.
var allKinds = []Kind{KindSnapshot, KindRestore, KindMove, KindVerify, KindPrune, KindCopy}

// CheckKind returns an error for a word that is no kind of operation.
func CheckKind(word string) error { return Kind(word).check() }

// Restarts reports whether an operation of the kind is begun again instead of being resumed.
func (k Kind) Restarts() bool {
	return k == KindSnapshot || k == KindVerify || k == KindPrune || k == KindCopy
}

func (k Kind) check() error { return oneOf("operation kind", k, allKinds...) }

// State is the state of an operation.
//
//	planned ──▶ running ──┬──▶ succeeded
//	               ▲      ├──▶ rolled-back
//	               │      ├──▶ stopped ────────┐
//	               │      ├──▶ failed ─────────┤
//	               │      └──▶ needs-identity ─┤
//	               └────────── resume ─────────┘
//
// An operation works, also on a rollback, in running only. A process that dies leaves its
// operation running; the next process that opens the catalog finds it with Catalog.Interrupted and
// moves it to stopped, or to needs-identity. One that was left planned goes to failed: it has no
// plan, and is begun again instead of being resumed. succeeded and rolled-back are final, but for
// the rollback of what a restore has left paused.
type State string

// The states of an operation.
const (
	// Planned: the plan is stored, nothing has changed yet.
	Planned State = "planned"
	// Running: at work in the process that has the catalog open, or interrupted.
	Running State = "running"
	// Succeeded: everything is done. Final.
	Succeeded State = "succeeded"
	// Stopped: ended between two steps, on request or by a crash; can be resumed.
	Stopped State = "stopped"
	// Failed: ended with units that failed or are blocked; can be resumed.
	Failed State = "failed"
	// RolledBack: undone before the hand-over. Final.
	RolledBack State = "rolled-back"
	// NeedsIdentity: waits for an identity, which is never stored; can be resumed with one.
	NeedsIdentity State = "needs-identity"
)

// allStates are the states of an operation.
var allStates = []State{Planned, Running, Succeeded, Stopped, Failed, RolledBack, NeedsIdentity}

// transitions lists the states that can follow a state.
var transitions = map[State][]State{
	Planned:       {Running, Failed}, // the process died before it began
	Running:       {Succeeded, Stopped, Failed, RolledBack, NeedsIdentity},
	Succeeded:     {Running},          // the rollback of a restore that left everything paused
	Stopped:       {Running, Stopped}, // with another reason
	Failed:        {Running},
	RolledBack:    nil,
	NeedsIdentity: {Running},
}

// Ended reports whether the operation, or its present run, is over: nothing more happens without a
// resume.
func (s State) Ended() bool { return s != Planned && s != Running }

// Final reports whether the operation is over and no resume is left to do.
func (s State) Final() bool { return s == Succeeded || s == RolledBack }

// CanBecome reports whether an operation may go from s to the next state.
func (s State) CanBecome(next State) bool { return slices.Contains(transitions[s], next) }

func (s State) check() error {
	if _, ok := transitions[s]; !ok {
		return fmt.Errorf("operation state %q: unknown", s)
	}
	return nil
}

// StopCause says what ended the last run of an operation that is stopped, or waits for an
// identity.
type StopCause string

// The causes of a stop; empty for an operation that is in another state.
const (
	// StopRequested: an operator asked for it, or interrupted mgmtctl.
	StopRequested StopCause = "requested"
	// StopDaemonEnded: the daemon ended in good order.
	StopDaemonEnded StopCause = "daemon-ended"
	// StopProcessDied: the process that ran the operation died.
	StopProcessDied StopCause = "process-died"
	// StopElsewhere: another host runs it, or ran it when it was lost. Only an operator resumes it.
	StopElsewhere StopCause = "elsewhere"
)

func (c StopCause) check() error {
	return oneOf("stop cause", c, "", StopRequested, StopDaemonEnded, StopProcessDied,
		StopElsewhere)
}

// UnitState is the state of a unit within its operation. The flow (restore, move) decides which
// state follows which; the catalog only stores it.
type UnitState string

// The states of a unit.
const (
	UnitPending UnitState = "pending"
	UnitCopied  UnitState = "copied"
	// UnitLocked: the operation has its lock. What takes long to acknowledge a pause is paused, such
	// as its MachineHealthChecks, and the pause of all of it may have begun.
	UnitLocked     UnitState = "locked"
	UnitPaused     UnitState = "paused"
	UnitHandedOver UnitState = "handed-over"
	UnitReleased   UnitState = "released"
	UnitRetired    UnitState = "retired"
	UnitBlocked    UnitState = "blocked"
	UnitRolledBack UnitState = "rolled-back"
	// UnitGivenBack: the source reconciles it again, and its copy may be left on the target, paused.
	UnitGivenBack UnitState = "given-back"
)

func (s UnitState) check() error {
	return oneOf("unit state", s, UnitPending, UnitCopied, UnitLocked, UnitPaused, UnitHandedOver,
		UnitReleased, UnitRetired, UnitBlocked, UnitRolledBack, UnitGivenBack)
}

// StepState is the recorded state of a step. A step without a record was never begun.
//
//	none, undone, undo-failed ──Do──▶ begun ──┬──▶ done
//	                                    ▲     └──▶ failed ──┐
//	                                    └───────── Do ──────┘
//
//	begun, done, failed ──Undo──▶ undoing ──┬──▶ undone
//	                                 ▲      └──▶ undo-failed ──┐
//	                                 └────────── Undo ─────────┘
//
// A crash leaves begun or undoing, which the next Do or Undo treats like failed and undo-failed.
type StepState string

// The states of a step.
const (
	StepBegun      StepState = "begun"
	StepDone       StepState = "done"
	StepFailed     StepState = "failed"
	StepUndoing    StepState = "undoing"
	StepUndone     StepState = "undone"
	StepUndoFailed StepState = "undo-failed"
)

func (s StepState) check() error {
	return oneOf("step state", s, StepBegun, StepDone, StepFailed, StepUndoing, StepUndone,
		StepUndoFailed)
}

func oneOf[T ~string](what string, got T, known ...T) error {
	if !slices.Contains(known, got) {
		return fmt.Errorf("%s %q: unknown", what, got)
	}
	return nil
}
