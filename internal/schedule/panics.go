package schedule

import (
	"context"
	"log/slog"
	"time"

	"github.com/mgmtd/mgmtd/internal/task"
)

// panicPause is the time between a panic in a loop and its next try.
const panicPause = time.Minute

// again runs a loop until it ends, and again after a panic in it: the loops of other locations and
// copies go on, and nobody would notice that one of them does not. The panic is logged, and counted
// by panicked where that is not nil.
func again(ctx context.Context, log *slog.Logger, panicked func(error), loop func()) {
	task.Again(ctx, panicPause, func(err error) { report(log, panicked, err) }, loop)
}

func report(log *slog.Logger, panicked func(error), err error) {
	if panicked != nil {
		panicked(err)
		return
	}
	log.Error("panic", "error", err)
}
