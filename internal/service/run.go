package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/task"
)

// runTable holds the runs of this process.
type runTable struct {
	// mu is held while an operation goes into running, so that the table and the catalog agree.
	mu sync.Mutex
	// stop ends the runs under way, waiting the attempts to resume an operation.
	stop, waiting map[catalog.OperationID]context.CancelCauseFunc
	// closing has the runs whose mirror is not closed. It is closed after the end is recorded.
	closing map[catalog.OperationID]chan struct{}
	// lost says why the catalog could not record the end of an operation.
	lost map[catalog.OperationID]error
	// failed gets the error after which the server is of no use.
	failed chan error
	// recordPause is the time between two tries to record an end.
	recordPause time.Duration
}

// recordPause is long enough that a disk that was full for a moment does not end the daemon.
const recordPause = 200 * time.Millisecond

func newRunTable() runTable {
	return runTable{
		stop:    map[catalog.OperationID]context.CancelCauseFunc{},
		waiting: map[catalog.OperationID]context.CancelCauseFunc{},
		closing: map[catalog.OperationID]chan struct{}{},
		lost:    map[catalog.OperationID]error{}, failed: make(chan error, 1),
		recordPause: recordPause,
	}
}

// operationRun is a run of an operation in the background. It implements schedule.Run.
type operationRun struct {
	begun catalog.Operation
	ended chan struct{} // closed once the end is recorded
	err   error         // how the run ended; set before ended is closed
	// stopped says that the run ended on request; set before ended is closed.
	stopped bool
}

// Operation returns the operation as it was when the run began.
func (r *operationRun) Operation() catalog.Operation { return r.begun }

// Wait waits until the end of the run is recorded and returns how it ended.
func (r *operationRun) Wait() error {
	<-r.ended
	return r.err
}

// Stopped reports whether the run ended on request. Call it after Wait.
func (r *operationRun) Stopped() bool { return r.stopped }

// start begins the run of an operation in the background. The error of run decides the state in
// which the operation ends; its context ends when the operation or the server is asked to stop.
//
// If ctx is cancelled, nothing is started. Pass the request's context to resume an operation, and
// the server's for a new one: it is recorded already, and a cancelled request must not leave it
// unstarted.
func (s *Server) start(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	run func(ctx context.Context, j *catalog.Journal) error) (*operationRun, error) {
	return s.startMirrored(ctx, c, id, mirrorTo{}, run)
}

// startMirrored is start with a mirror of the journal in a store. A new operation that cannot be
// started has failed.
func (s *Server) startMirrored(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	to mirrorTo, run func(ctx context.Context, j *catalog.Journal) error) (*operationRun, error) {
	r, err := s.tryStart(ctx, c, id, to, run)
	if err == nil {
		return r, nil
	}
	ctx = context.WithoutCancel(ctx)
	op, stateErr := c.Operation(ctx, id)
	if stateErr == nil && op.State == catalog.Planned {
		e := classify(err)
		_, stateErr = c.SetState(ctx, id, catalog.Failed, catalog.Outcome{Message: e.Message,
			Code: string(e.Reason)})
	}
	return nil, errors.Join(err, stateErr)
}

// tryStart is startMirrored for an operation that stays as it is when it cannot be started. The
// mirror is begun before the operation goes into running: another host may have taken it over.
func (s *Server) tryStart(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	to mirrorTo, run func(ctx context.Context, j *catalog.Journal) error) (*operationRun, error) {
	if err := s.awaitClosed(ctx, c, id); err != nil {
		return nil, err
	}
	m, err := s.beginMirror(ctx, c, id, to)
	if err != nil {
		return nil, err
	}
	r := &operationRun{ended: make(chan struct{})}
	op, ctx, err := s.beginRun(ctx, c, id, to, r.ended)
	if err != nil {
		return nil, errors.Join(err, m.close(ctx))
	}
	j := c.Journal(id, m.journal())
	began := time.Now()
	s.metrics.runBegan(op.Kind)
	r.begun = op
	s.running.Go(func() {
		err := task.Call(func() error { return run(ctx, j) })
		_ = s.panicked(err, "operation", id)
		if lost := m.confirm(context.WithoutCancel(ctx)); as[*mirror.FencedError](lost) {
			err = errors.Join(err, lost)
		}
		state, why := s.outcome(ctx, c, id, err)
		if now, err := c.Operation(context.WithoutCancel(ctx), id); err == nil {
			op = now
		}
		s.metrics.runEnded(op, state, time.Since(began))
		s.logEnd(op, state, why)
		s.endRun(id)
		s.recordEnd(c, id, state, why)
		if err := m.close(context.WithoutCancel(ctx)); err != nil {
			s.cfg.Log.Warn("the store has no record of how the operation ended; mend the cause and resume "+
				"it once more", "operation", op.ID, "error", err)
		}
		if state == catalog.Succeeded {
			s.settleReleased(context.WithoutCancel(ctx), c, id)
		}
		r.err, r.stopped = err, why.Cause == catalog.StopRequested
		s.runClosed(id, r)
		if !s.cfg.Daemon { // a daemon does it by a timer
			s.forgetOperations(context.WithoutCancel(ctx), c)
		}
	})
	return r, nil
}

// awaitClosed waits until the mirror of the last run of an operation is closed: the next run would
// take its last record for that of another host. *catalog.TransitionError when the operation runs.
func (s *Server) awaitClosed(ctx context.Context, c *catalog.Catalog,
	id catalog.OperationID) error {
	op, err := c.Operation(context.WithoutCancel(ctx), id)
	if err == nil && op.State == catalog.Running {
		err = &catalog.TransitionError{ID: id, From: op.State, To: catalog.Running}
	}
	if err != nil {
		return err
	}
	s.runs.mu.Lock()
	closing := s.runs.closing[id]
	s.runs.mu.Unlock()
	if closing == nil {
		return nil
	}
	select {
	case <-closing:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runClosed ends a run: its end is recorded, and its mirror closed.
func (s *Server) runClosed(id catalog.OperationID, r *operationRun) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if s.runs.closing[id] == r.ended {
		delete(s.runs.closing, id)
	}
	close(r.ended)
}

// logEnd logs the end of an operation of a daemon; standalone, mgmtctl prints it.
func (s *Server) logEnd(op catalog.Operation, state catalog.State, why catalog.Outcome) {
	if !s.cfg.Daemon {
		return
	}
	level := slog.LevelInfo
	if state == catalog.Failed {
		level = slog.LevelError
	}
	s.cfg.Log.Log(s.ctx, level, "operation ended", "operation", op.ID, "kind", op.Kind, "state", state,
		"message", why.Message)
}

// beginRun moves an operation into running, unless one of others runs, and returns the context of
// its run.
func (s *Server) beginRun(request context.Context, c *catalog.Catalog, id catalog.OperationID,
	to mirrorTo, ended chan struct{}) (catalog.Operation, context.Context, error) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	for _, ctx := range []context.Context{s.ctx, request} {
		if ctx.Err() != nil {
			return catalog.Operation{}, nil, context.Cause(ctx)
		}
	}
	if err := to.others.check(s.ctx, c); err != nil {
		return catalog.Operation{}, nil, err
	}
	op, err := c.SetState(s.ctx, id, catalog.Running, catalog.Outcome{Back: to.back})
	if err != nil {
		return op, nil, err
	}
	s.runs.closing[id] = ended
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.runs.stop[id] = cancel
	return op, ctx, nil
}

func (s *Server) endRun(id catalog.OperationID) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if cancel := s.runs.stop[id]; cancel != nil {
		cancel(nil)
		delete(s.runs.stop, id)
	}
}

// stopRun asks a running operation to end between two steps. An operation that the daemon would
// resume, now or after its next start, stays stopped.
func (s *Server) stopRun(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) error {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if cancel := s.runs.stop[id]; cancel != nil {
		// On record before it ends: the process may die first.
		err := c.UpdateOperation(ctx, id,
			func(op *catalog.Operation) { op.StopCause = catalog.StopRequested })
		cancel(errStopping)
		return err
	}
	if cancel := s.runs.waiting[id]; cancel != nil {
		cancel(errStopping)
	}
	op, err := c.Operation(ctx, id)
	if err == nil && resumable(op) {
		_, err = c.SetState(ctx, id, catalog.Stopped, catalog.Outcome{Message: errStopping.Message,
			Code: op.Code, Cause: catalog.StopRequested})
	}
	return err
}

// recordEnd records how an operation ended, and retries for a while. When that fails, it closes the
// catalog: otherwise watchers would wait forever. The next process finds the operation interrupted.
func (s *Server) recordEnd(c *catalog.Catalog, id catalog.OperationID, state catalog.State,
	why catalog.Outcome) {
	const tries = 5
	var err error
	for range tries {
		if _, err = c.SetState(s.ctx, id, state, why); err == nil {
			return
		}
		time.Sleep(s.runs.recordPause)
	}
	s.runs.mu.Lock()
	s.runs.lost[id] = err
	s.runs.mu.Unlock()
	_ = c.Close()
	select {
	case s.runs.failed <- fmt.Errorf("record the end of operation %s: %w", id, err):
	default: // one is enough
	}
}

// closedReason returns, for the error of a closed catalog about an operation, why it was closed. It
// returns any other error as it is.
func (s *Server) closedReason(id catalog.OperationID, err error) error {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if lost := s.runs.lost[id]; lost != nil && errors.Is(err, catalog.ErrClosed) {
		return lost
	}
	return err
}

// untouchedError marks an error after which nothing has changed, although a step was begun.
type untouchedError struct{ error }

// Unwrap returns the error.
func (e *untouchedError) Unwrap() error { return e.error }

// outcome returns the state of an operation that ended with err, whose context was ctx. After a
// change, any error is INCOMPLETE: work is left.
func (s *Server) outcome(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	err error) (catalog.State, catalog.Outcome) {
	if err == nil {
		return catalog.Succeeded, catalog.Outcome{}
	}
	if fenced, ok := errors.AsType[*mirror.FencedError](errors.Join(err, context.Cause(ctx))); ok {
		e := classify(fenced)
		return catalog.Stopped, catalog.Outcome{Message: e.Message + " (" + e.Hint + ")",
			HintKey: e.HintKey, Code: string(e.Reason), Cause: catalog.StopElsewhere}
	}
	if errors.Is(err, errRolledBack) {
		return catalog.RolledBack, catalog.Outcome{}
	}
	e := classify(err)
	op, readErr := c.Operation(context.WithoutCancel(ctx), id)
	if readErr != nil {
		// An operation that cannot be read has no kind and counts as unchanged.
		op = catalog.Operation{ID: id}
	}
	state, why := catalog.Failed, catalog.Outcome{Message: e.Message}
	if ctx.Err() != nil {
		e.Reason = ReasonInterrupted
		state, why = catalog.Stopped, catalog.Outcome{Message: errStopping.Message,
			Cause: catalog.StopRequested}
		if errors.Is(context.Cause(ctx), errDaemonEnds) {
			e.Hint = ""
			why = catalog.Outcome{Message: errDaemonEnds.Message, Cause: catalog.StopDaemonEnded}
			if op.Kind == catalog.KindRestore && op.Changed {
				state, why = s.waitsForOperator(op, why)
			}
		}
	}
	why.Untouched = as[*untouchedError](err)
	switch {
	case op.Changed && !why.Untouched:
		e.Reason = ReasonIncomplete
	case e.Reason == ReasonIncomplete:
		e.Reason = ReasonFindings // everything is blocked
	}
	if e.Hint != "" {
		why.Message += " (" + e.Hint + ")"
		why.HintKey = e.HintKey
	}
	why.Code = string(e.Reason)
	return state, why
}
