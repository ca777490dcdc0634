package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Open opens the catalog, classifies the operations that a dead process left running, and reads
// the schedules. A daemon calls it before it serves. Errors are those of the catalog:
// *catalog.LockedError when another process holds it.
func (s *Server) Open(ctx context.Context) error {
	c, err := s.openCatalog(ctx)
	if err != nil {
		return err
	}
	return s.openSchedules(ctx, c)
}

// Start resumes operations of the previous process, and begins the schedules, the verifies, the
// copies, the watch for management clusters that come back and the deletion of old operations. Call
// it after Open.
func (s *Server) Start(ctx context.Context) error {
	c, err := s.openCatalog(ctx)
	if err != nil {
		return err
	}
	if err := s.resumeInterrupted(ctx, c); err != nil {
		return err
	}
	s.background("schedules", s.scheduler.Run)
	s.background("verifies", s.verifier.Run)
	s.background("copies", s.copier.Run)
	s.background("fences", s.fences.run)
	s.background("forget", func(ctx context.Context) { s.forgetRegularly(ctx, c) })
	return nil
}

// diedMessage is the message of an operation whose process died.
const diedMessage = "the process at work on it died"

// classifyInterrupted sets the state of an operation that is running, or planned, in the catalog
// although no process works on it.
func (s *Server) classifyInterrupted(ctx context.Context, c *catalog.Catalog,
	op catalog.Operation) error {
	state, why := catalog.Stopped, catalog.Outcome{Message: diedMessage,
		Code: string(ReasonIncomplete), Cause: catalog.StopProcessDied}
	if op.StopCause == catalog.StopRequested { // somebody was about to stop it
		why.Cause = op.StopCause
	}
	switch {
	case op.State == catalog.Planned:
		state, why = catalog.Failed, catalog.Outcome{Message: diedMessage + " before it began; it " +
			"changed nothing", Code: string(ReasonInternal)}
	case s.cfg.Daemon:
		switch {
		case op.Kind == catalog.KindCopy:
			state, why = catalog.Failed, catalog.Outcome{Message: diedMessage +
				"; the next run continues", Code: string(ReasonInternal)}
		case op.Kind.Restarts():
			state, why = catalog.Failed, catalog.Outcome{Message: diedMessage +
				"; the next run starts from scratch",
				Code: string(ReasonInternal)}
		case op.Kind == catalog.KindRestore:
			state, why = s.waitsForOperator(op, why)
		} // a move is resumed from Stopped
	}
	s.cfg.Log.Warn("operation was interrupted", "operation", op.ID, "kind", op.Kind, "state", state,
		"message", why.Message)
	_, err := c.SetState(ctx, op.ID, state, why)
	return err
}

// waitsForOperator returns the state of an interrupted restore. A daemon resumes none by itself:
// the source may have come back meanwhile (invariant I1), and from a store that is encrypted it
// cannot, because identities are not stored.
func (s *Server) waitsForOperator(op catalog.Operation, why catalog.Outcome) (catalog.State,
	catalog.Outcome) {
	if op.Back {
		return catalog.Stopped, why // a rollback reads no snapshot and releases nothing
	}
	why.Message += "; a restore is never resumed by itself: make sure that the source is still " +
		"dead, and resume it"
	l, err := s.location(op.Location)
	if err == nil && l.Store.Plain {
		why.HintKey = object.HintResume
		return catalog.Stopped, why
	}
	why.Message += " with an identity, which is not stored"
	why.HintKey = object.HintResumeWithIdentity
	return catalog.NeedsIdentity, why
}

// resumeInterrupted resumes, in the background, what the previous daemon left and may be
// resumed by itself.
func (s *Server) resumeInterrupted(ctx context.Context, c *catalog.Catalog) error {
	stopped, err := c.Operations(ctx, catalog.OperationFilter{Kinds: []catalog.Kind{catalog.KindMove,
		catalog.KindRestore}, States: []catalog.State{catalog.Stopped}})
	if err != nil {
		return err
	}
	for _, op := range stopped {
		if !resumable(op) {
			continue
		}
		wait, cancel := context.WithCancelCause(s.ctx)
		s.runs.mu.Lock()
		s.runs.waiting[op.ID] = cancel
		s.runs.mu.Unlock()
		s.running.Go(func() {
			defer cancel(nil)
			_ = s.panicked(task.Call(func() error { s.retryResume(wait, c, op); return nil }), "resume",
				op.ID)
		})
	}
	return nil
}

// resumable reports whether a daemon resumes an operation when it starts: a move, and the rollback
// of a restore, which releases nothing. What an operator stopped stays stopped.
func resumable(op catalog.Operation) bool {
	return (op.Kind == catalog.KindMove || op.Back) && !op.GivenUp && op.State == catalog.Stopped &&
		(op.StopCause == catalog.StopProcessDied ||
			op.StopCause == catalog.StopDaemonEnded)
}

const (
	resumeWait     = 5 * time.Second
	resumeLongWait = time.Minute
)

// retryResume resumes an operation, and retries until the management clusters and the store
// answer, and no other operation excludes it: after a power cut they may start later than the
// daemon.
func (s *Server) retryResume(ctx context.Context, c *catalog.Catalog, op catalog.Operation) {
	log := s.cfg.Log.With("operation", string(op.ID), "kind", string(op.Kind))
	for wait := resumeWait; ; wait = min(2*wait, resumeLongWait) {
		now, err := c.Operation(ctx, op.ID)
		if err != nil || !now.Updated.Equal(op.Updated) {
			return // an operator resumed or stopped it
		}
		if _, err = s.resumeOperation(ctx, c, now, resumption{byItself: true}); err == nil {
			log.Info("operation resumed")
			return
		}
		if ctx.Err() != nil {
			return
		}
		if as[*modify.MismatchError](err) {
			s.waitForModifiers(ctx, c, op, err)
			return
		}
		e := classify(err)
		if e.Reason != ReasonUnreachable && e.Reason != ReasonStoreUnreachable &&
			e.Reason != ReasonLocked { // beside another one that was resumed as well
			log.Error("operation cannot be resumed by itself", "error", err, slog.String("hint", e.Hint))
			return
		}
		log.Warn("operation waits to be resumed", "error", err, "wait", wait)
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// waitForModifiers records that a move waits for its resource modifiers, which only an operator
// has. It may run again at the next start.
func (s *Server) waitForModifiers(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	why error) {
	s.cfg.Log.Error("operation cannot be resumed by itself", "operation", op.ID, "error", why)
	_, err := c.SetState(ctx, op.ID, catalog.Stopped, catalog.Outcome{Message: op.Message + "; " +
		why.Error() + ": resume it with them", Code: string(ReasonIncomplete),
		HintKey: object.HintResumeWithModifiers, Cause: op.StopCause})
	if err != nil {
		s.cfg.Log.Error("record why an operation waits", "operation", op.ID, "error", err)
	}
}

// resumption is what an operator gives to go on with an operation, in either direction.
type resumption struct {
	identity  []byte           // in memory for this run only
	modifiers *modify.Document // as identity
	// giveUp: go on although the mirror takes no more records.
	giveUp bool
	// byItself: no operator asked for it.
	byItself bool
	// withoutSource: the source of a move does not answer.
	withoutSource bool
	// withoutTarget: the target of a move does not answer. goWithoutStore: the operator lets the
	// rollback do without the store, too. storeAway is why it does.
	withoutTarget, goWithoutStore bool
	storeAway                     error
}

// resumptionFromProto reads a request to do a work: to resume or roll back. Errors are usage
// errors.
func resumptionFromProto(work object.Work, req interface {
	GetIdentity() []byte
	GetForceCodes() []string
}) (resumption, error) {
	forced, err := forcedFromProto(work, req.GetForceCodes())
	return resumption{identity: req.GetIdentity(), giveUp: forced.Has(object.CodeNoMirror),
		withoutTarget: work == object.Returns, goWithoutStore: forced.Has(object.CodeStoreAway)}, err
}

// resumeOperation begins another run of an operation that has ended but is not final, by its
// stored plan. A move continues in the direction that was requested last.
func (s *Server) resumeOperation(ctx context.Context, c *catalog.Catalog, op catalog.Operation,
	how resumption) (*operationRun, error) {
	switch op.Kind {
	case catalog.KindRestore:
		if op.Back {
			return s.rollBackRestore(ctx, c, op, how)
		}
		var stored storedRestore
		if err := readPlan(ctx, c, op, &stored); err != nil {
			return nil, err
		}
		return s.resumeRestore(ctx, c, op, stored, how)
	case catalog.KindMove:
		if how.withoutSource {
			return s.goForward(ctx, c, op, how)
		}
		return s.resumeMove(ctx, c, op, op.Back, how)
	default: // the others are begun again instead
	}
	return nil, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("operation %s is a %s, which "+
		"cannot be resumed", op.ID, op.Kind), Hint: "run the command again instead"}
}

// readPlan reads the stored plan of an operation.
func readPlan(ctx context.Context, c *catalog.Catalog, op catalog.Operation, stored any) error {
	text, err := c.Plan(ctx, op.ID)
	if err != nil {
		return planError(op, err)
	}
	if err := json.Unmarshal(text, stored); err != nil {
		return fmt.Errorf("decode plan of operation %s: %w", op.ID, err)
	}
	return nil
}

// planError returns the error of a resume whose plan could not be read.
func planError(op catalog.Operation, err error) error {
	if errors.Is(err, catalog.ErrNotFound) {
		return &Error{Reason: ReasonUsage, Message: fmt.Sprintf("operation %s ended in pre-flight and "+
			"changed nothing", op.ID), Hint: fmt.Sprintf("run the %s again instead", op.Kind)}
	}
	return err
}
