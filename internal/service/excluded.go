package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// excluded are the other runs beside which a restore or a move does not run: of restores and moves
// of this catalog on the same management clusters, since one could release what the other removes.
// Two moves are kept apart by the locks of their workload clusters. The zero value excludes none.
type excluded struct {
	self catalog.Operation // its ID may be empty
	on   []string          // the UIDs of the management clusters
	// forward: self releases or hands over, so that only rollbacks count.
	forward bool
	// byItself: no operator asked for this resume. self is the operation as it was when its plan was
	// read; an operator may have imported it from another host since, or turned it back.
	byItself bool
}

// check returns an *Error for a run that is excluded and under way. It is called before anything is
// prepared, and once more as the run begins (beginRun): two may be prepared at the same time.
func (e excluded) check(ctx context.Context, c *catalog.Catalog) error {
	if e.byItself {
		now, err := c.Operation(ctx, e.self.ID)
		if err != nil {
			return err
		}
		if !resumable(now) || now.Back != e.self.Back {
			return &Error{Reason: ReasonIncomplete, Message: fmt.Sprintf("operation %s is not as it was "+
				"when its plan was read: somebody resumed it or turned it back", e.self.ID),
				Hint: "look at the operation, and resume it or roll it back"}
		}
	}
	if len(e.on) == 0 {
		return nil
	}
	running, err := c.Operations(ctx, catalog.OperationFilter{Kinds: []catalog.Kind{catalog.KindMove,
		catalog.KindRestore}, States: []catalog.State{catalog.Running}})
	for _, op := range running {
		if op.ID == e.self.ID || op.Kind == catalog.KindMove && e.self.Kind == catalog.KindMove ||
			e.forward && !op.Back {
			continue
		}
		if slices.Contains(e.on, op.Target.UID) || slices.Contains(e.on, op.Source.UID) {
			return &Error{Reason: ReasonLocked, Message: fmt.Sprintf("operation %s is running on the same "+
				"management cluster: one could release what the other removes", op.ID),
				Hint: "wait for its end", HintKey: object.HintWatch}
		}
	}
	return err
}
