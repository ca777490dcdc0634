package move

import (
	"context"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
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
	back bool
	wait time.Duration    // how long a side may take to answer
	away map[string]error // by the name of the side
}

// watchSides asks both sides during a run of a move, or its rollback (back), whether they answer: a
// run that waits for one of them looks like one that hangs. The caller calls end with the result of
// the run. When that failed or was stopped, and a side does not answer, this is a finding: what was
// not done may have no other reason, and there may be a way on without that side.
func watchSides(ctx context.Context, o Options, back bool) (end func(error)) {
	return newSideWatch(o, back, sideWait).begin(ctx)
}

func newSideWatch(o Options, back bool, wait time.Duration) *sideWatch {
	return &sideWatch{Options: o, back: back, wait: wait, away: map[string]error{}}
}

// begin is watchSides.
func (w *sideWatch) begin(ctx context.Context) (end func(error)) {
	watching, stop := context.WithCancel(ctx)
	var g task.Group
	g.Go(func() error {
		for retry.Sleep(watching, sideInterval) == nil {
			for _, side := range []Mgmt{w.Source, w.Target} {
				_ = w.ask(watching, side)
			}
		}
		return nil
	})
	return func(failure error) {
		stop()
		g.Finish()
		if failure != nil {
			w.report(context.WithoutCancel(ctx))
		}
	}
}

// ask asks a side whether it answers, and writes into the history when that has changed. It returns
// why it does not, and nil when that is not known.
func (w *sideWatch) ask(ctx context.Context, side Mgmt) error {
	if side.Reader == nil { // it is only named
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, w.wait)
	defer cancel()
	_, err := side.Reader.Get(asking, kube.NamespaceKind, "", "kube-system")
	if ctx.Err() != nil {
		return nil
	}
	if !kube.Unanswered(err) && asking.Err() == nil {
		err = nil // also when it refuses to tell
	}
	text := ""
	switch was := w.away[side.Name]; {
	case err != nil && was == nil:
		text = fmt.Sprintf("management cluster %s does not answer: %v", side.Name, err)
	case err == nil && was != nil:
		text = fmt.Sprintf("management cluster %s answers again", side.Name)
	}
	w.away[side.Name] = err
	if text != "" {
		_ = w.Journal.Emit(context.WithoutCancel(ctx),
			catalog.Event{Type: catalog.EventMessage, Message: text})
	}
	return err
}

// report asks both sides once more, and reports those that do not answer. A rollback has no way
// without the source.
func (w *sideWatch) report(ctx context.Context) {
	for _, s := range []struct {
		side Mgmt
		code object.Code
		hint string
	}{{w.Source, object.CodeSourceAway, SourceAwayHint},
		{w.Target, object.CodeTargetAway, TargetAwayHint}} {
		err := w.ask(ctx, s.side)
		if err == nil || w.back && s.code == object.CodeSourceAway {
			continue
		}
		_ = w.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
			Code: s.code, Message: fmt.Sprintf("management cluster %s does not answer: %v", s.side.Name,
				err), Hint: s.hint}))
	}
}
