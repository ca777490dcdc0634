package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/task"
)

// What the operator can do when one side of a move does not answer any more.
const (
	TargetAwayHint = "if the target does not come back soon, a rollback without it gives back to " +
		"the source what was not handed over, and leaves the paused copies on the target"
	SourceAwayHint = "if the source does not come back soon, a resume without it releases on the " +
		"target what was handed over, which needs an identity unless the store is plain, and leaves " +
		"the rest"
)

const (
	// sideInterval is how often a run asks whether both sides answer.
	sideInterval = 10 * time.Second
	// sideWait is how long a side may take to answer that it is there.
	sideWait = 5 * time.Second
)

// sideWatch knows which sides of a move answer.
type sideWatch struct {
	Options
	back  bool
	wait  time.Duration // how long a side may take to answer
	sides [2]watchedSide
}

// watchedSide is a side that is watched.
type watchedSide struct {
	name   string // as the history has it: both may have one name
	reader *kube.Reader
	away   error // why it does not answer; nil when it does, or that is not known
}

func newSideWatch(o Options, back bool, wait time.Duration) *sideWatch {
	return &sideWatch{Options: o, back: back, wait: wait, sides: [2]watchedSide{
		{name: "source " + o.Source.Name, reader: o.Source.Reader},
		{name: "target " + o.Target.Name, reader: o.Target.Reader}}}
}

// watched calls run, which is a run of a move or its rollback (back), and asks both sides meanwhile
// whether they answer: a run that waits for one of them looks like one that hangs. When it failed
// or was stopped, and a side does not answer, this is a finding: what was not done may have no
// other reason, and there may be a way on without that side. The error is that of run.
func watched(ctx context.Context, o Options, back bool, run func() error) (err error) {
	end := newSideWatch(o, back, sideWait).begin(ctx)
	defer func() { err = end(err) }() // also after a panic
	return run()
}

// begin begins to ask. The caller calls end with the error of the run, and uses what it returns.
func (w *sideWatch) begin(ctx context.Context) (end func(error) error) {
	watching, stop := context.WithCancel(ctx)
	var g task.Group
	g.Go(func() error {
		for retry.Sleep(watching, sideInterval) == nil {
			w.ask(watching)
		}
		return nil
	})
	return func(failure error) error {
		stop()
		err := g.Wait() // nothing but a panic
		if failure == nil {
			return nil
		}
		if _, takenOver := errors.AsType[*mirror.FencedError](errors.Join(failure,
			context.Cause(ctx))); takenOver {
			return failure // that host knows better
		}
		w.report(context.WithoutCancel(ctx))
		if err != nil {
			return errors.Join(failure, err)
		}
		return failure
	}
}

// ask asks both sides whether they answer, and writes into the history what has changed.
func (w *sideWatch) ask(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, w.wait)
	defer cancel()
	var g task.Group
	var away [2]error
	for i, side := range w.sides {
		if side.reader != nil { // else it is only named
			g.Go(func() error { away[i] = side.reader.Answers(asking); return nil })
		}
	}
	if g.Finish(); ctx.Err() != nil {
		return
	}
	for i := range w.sides {
		side := &w.sides[i]
		text := ""
		switch {
		case away[i] != nil && side.away == nil:
			text = fmt.Sprintf("the %s does not answer: %v", side.name, away[i])
		case away[i] == nil && side.away != nil:
			text = fmt.Sprintf("the %s answers again", side.name)
		}
		if side.away = away[i]; text != "" {
			_ = w.Journal.Emit(context.WithoutCancel(ctx),
				catalog.Event{Type: catalog.EventMessage, Message: text})
		}
	}
}

// report asks both sides once more, and reports those that do not answer. A finding has a hint when
// there is a way on without that side, which needs the other one.
func (w *sideWatch) report(ctx context.Context) {
	if w.ask(ctx); w.sides[0].away != nil || w.sides[1].away != nil {
		w.ask(ctx) // once more: a connection may have died that was made long ago
	}
	source, target := w.sides[0], w.sides[1]
	op, err := w.Catalog.Operation(ctx, w.Journal.Operation())
	if err != nil {
		return
	}
	if source.away != nil {
		f := object.Finding{Severity: object.Warning, Code: object.CodeSourceAway,
			Message: fmt.Sprintf("the %s does not answer: %v", source.name, source.away)}
		if !w.back && target.away == nil && inState(op, catalog.UnitHandedOver) {
			f.Hint = SourceAwayHint
		}
		_ = w.Journal.Emit(ctx, catalog.FindingEvent("", f))
	}
	if target.away != nil {
		f := object.Finding{Severity: object.Warning, Code: object.CodeTargetAway,
			Message: fmt.Sprintf("the %s does not answer: %v", target.name, target.away)}
		if source.away == nil && source.reader != nil && inState(op, catalog.UnitPending,
			catalog.UnitLocked, catalog.UnitPaused, catalog.UnitCopied) {
			f.Hint = TargetAwayHint
		}
		_ = w.Journal.Emit(ctx, catalog.FindingEvent("", f))
	}
}

// inState reports whether a workload cluster of an operation is in one of these states.
func inState(op catalog.Operation, states ...catalog.UnitState) bool {
	for unit, state := range op.Units {
		if unit != "" && slices.Contains(states, state) {
			return true
		}
	}
	return false
}
