package main

import (
	"context"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// lastWord bounds a call that is made although the command's context has ended, to read the state
// of the operation.
const lastWord = 10 * time.Second

// clocksApart is by how much the start time of our operation in the catalog may be before our own
// clock: the catalog may round it down.
const clocksApart = time.Second

// outcome is what a run of an operation came to, as seen by this command.
type outcome struct {
	operation *mgmtv1.Operation
	findings  []*mgmtv1.Finding
	// cause is why this command stopped the run; nil when it did not.
	cause *service.Error
	// detached: the run goes on in the daemon.
	detached bool
	// lost: the operation could not be followed to its end, for instance since the disk of its catalog
	// is full. It may have changed something that operation does not have.
	lost bool
}

// starter is the call that starts or resumes an operation.
type starter func(context.Context) (*mgmtv1.Operation, error)

// carryOut starts an operation, shows its progress until its run ends, prints the result, and
// returns the exit code as an error. id is the id of an operation that is resumed, which is then
// p.operation, and empty for a new one.
func (p *program) carryOut(ctx context.Context, c *connection, id string, start starter) error {
	begun := time.Now().Add(-clocksApart)
	if id != "" { // it has begun, whatever becomes of this call
		p.prepareForAtOnce(c)
	}
	op, err := p.start(ctx, c, id, start)
	if err != nil {
		return err
	}
	p.operation = op
	p.prepareForAtOnce(c)
	p.say("operation %s", op.GetId())
	if id == "" {
		begun = time.Time{}
	}
	o, err := p.followOwn(ctx, c, op, begun)
	if err != nil {
		return err
	}
	return p.report(o)
}

// start calls start. An interrupt cancels the call, but the operation may have begun. In that case
// start searches for it, because it decides the exit code.
func (p *program) start(ctx context.Context, c *connection, id string, start starter) (
	*mgmtv1.Operation, error) {
	begun := time.Now().Add(-clocksApart)
	op, err := start(ctx)
	if err == nil || ctx.Err() == nil {
		return op, err
	}
	if c.stop == nil {
		p.say("the daemon may have begun it all the same; to see:\n  %s", p.commandLine("operation",
			"list"))
		return nil, err
	}
	c.stop()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	request := &mgmtv1.GetOperationRequest{Id: id}
	if id == "" {
		request.Id = "latest"
	}
	resp, lateErr := c.operations.GetOperation(late, request)
	if lateErr != nil || (id == "" && resp.GetOperation().GetCreateTime().AsTime().Before(begun)) {
		return nil, err
	}
	return resp.GetOperation(), nil
}

// followOwn follows an operation that this command has started. When the command's context ends,
// the operation is stopped between two steps and followed to its end; in a daemon it goes on, and
// only following it ends. Events of an earlier run, before since, are not shown again.
func (p *program) followOwn(ctx context.Context, c *connection, op *mgmtv1.Operation,
	since time.Time) (*outcome, error) {
	if c.stop == nil {
		o, err := p.followQuietly(ctx, c, op.GetId(), since)
		if ctx.Err() != nil {
			return &outcome{operation: p.latest(ctx, c, op), detached: true}, nil
		}
		if err != nil {
			p.say("the daemon may go on with operation %s all the same; to watch it:\n  %s", op.GetId(),
				p.commandLine("operation", "watch", op.GetId()))
		}
		return o, err
	}
	said := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(said)
		p.say("stopping between two steps; interrupt again to stop at once")
		c.stop()
	})
	defer func() {
		if !unregister() {
			<-said // so that it does not print after the result
		}
	}()
	o, err := p.followQuietly(context.WithoutCancel(ctx), c, op.GetId(), since)
	if err != nil {
		// The run may have changed something: its state decides the exit code, if the server still
		// answers.
		e := service.FromStatus(err)
		p.say("mgmtctl: watch operation %s: %s", op.GetId(), e.Message)
		if hint, _ := p.hintOf(e); hint != "" {
			p.say("hint: %s", hint)
		}
		o = &outcome{operation: p.latest(ctx, c, op), lost: true}
	}
	if ctx.Err() != nil {
		o.cause = service.FromStatus(context.Cause(ctx))
	}
	return o, nil
}

// latest returns the current state of an operation, or the last known one when the server does not
// answer.
func (p *program) latest(ctx context.Context, c *connection,
	op *mgmtv1.Operation) *mgmtv1.Operation {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	if resp, err := c.operations.GetOperation(ctx,
		&mgmtv1.GetOperationRequest{Id: op.GetId()}); err == nil {
		return resp.GetOperation()
	}
	return op
}

// followQuietly shows the progress of an operation on stderr until its run ends.
func (p *program) followQuietly(ctx context.Context, c *connection, id string, since time.Time) (
	*outcome, error) {
	progress := p.newProgress()
	defer progress.end()
	silence := p.listen(ctx, c, id)
	defer silence.stop()
	return p.follow(ctx, c, id, func(e *mgmtv1.Event) {
		silence.note(e)
		if !e.GetTime().AsTime().Before(since) {
			progress.show(e)
		}
	})
}

// follow calls show for each event of an operation, until its run ends.
func (p *program) follow(ctx context.Context, c *connection, id string,
	show func(*mgmtv1.Event)) (*outcome, error) {
	o, err := p.followEvents(ctx, c, id, show)
	if err != nil {
		return nil, err
	}
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: id})
	if err != nil {
		return nil, err
	}
	o.operation = resp.GetOperation()
	return o, nil
}

// isEnd reports whether a run has ended in state s.
func isEnd(s mgmtv1.OperationState) bool {
	switch s {
	case mgmtv1.OperationState_OPERATION_STATE_PLANNED, mgmtv1.OperationState_OPERATION_STATE_RUNNING,
		mgmtv1.OperationState_OPERATION_STATE_UNSPECIFIED,
		mgmtv1.OperationState_OPERATION_STATE_UNKNOWN:
		return false
	default:
		return true
	}
}

// exitCode returns the exit code of an outcome. The server decides it, except for an interrupt,
// which only this process knows.
func (o *outcome) exitCode() int {
	op := o.operation
	state := op.GetState()
	left := service.ExitError
	if o.cause != nil {
		left = o.cause.ExitCode()
	} else if o.detached {
		left = service.ExitInterrupted
	}
	lost := o.lost && !isEnd(state) && slices.Contains(changing, op.GetKind())
	if op.GetChanged() || lost {
		left = service.ExitIncomplete
	}
	stopped := state == mgmtv1.OperationState_OPERATION_STATE_STOPPED
	switch {
	case state == mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED,
		state == mgmtv1.OperationState_OPERATION_STATE_ROLLED_BACK:
		return int(op.GetExitCode())
	case op.GetExitCode() != 0 && !(stopped && o.cause != nil):
		return int(op.GetExitCode())
	default:
		return left
	}
}
