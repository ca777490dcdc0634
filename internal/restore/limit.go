package restore

import (
	"context"
	"errors"
	"time"

	"github.com/mgmtd/mgmtd/internal/task"
)

// This file ends what comes before the release of a unit in time (Hooks.Limit), so that a caller
// whose units are paused meanwhile can give them back. A step of the journal goes on when its
// context ends, since what it has begun has to be recorded. So the limit is a value of that context
// as well: past it no further request begins, nor is one sent again. One that hangs, for example in
// a webhook, ends first.

type limitKey struct{}

// withLimit returns the context of a limit with the limit as a value.
func withLimit(limited context.Context) context.Context {
	return context.WithValue(limited, limitKey{}, limited)
}

// pastLimit returns the cause of the limit of ctx once it has passed, and nil before. The end of a
// run is none: what is in flight then comes to its end.
func pastLimit(ctx context.Context) error {
	limited, _ := ctx.Value(limitKey{}).(context.Context)
	if limited == nil || !errors.Is(limited.Err(), context.DeadlineExceeded) {
		return nil
	}
	return context.Cause(limited)
}

// limit returns the context of what comes before the release of a unit.
func (r *run) limit(ctx context.Context, u Unit) (context.Context, context.CancelFunc) {
	if r.Hooks.Limit == nil {
		return ctx, func() {}
	}
	limited, cancel := r.Hooks.Limit(ctx, u)
	if limited == ctx {
		return ctx, cancel
	}
	return withLimit(limited), cancel
}

// limitAll returns the context of what comes before all units. It has the limit that passes last,
// and none when one of the units has none.
func (r *run) limitAll(ctx context.Context) (context.Context, context.CancelFunc) {
	var last time.Time
	limited, cancel := ctx, context.CancelFunc(func() {})
	for _, u := range r.Plan.Units {
		if u.Blocked {
			continue
		}
		of, cancelThis := r.limit(ctx, u)
		at, has := of.Deadline()
		if of == ctx || !has {
			cancel()
			return ctx, cancelThis
		}
		if !at.After(last) {
			cancelThis()
			continue
		}
		cancel()
		last, limited, cancel = at, of, cancelThis
	}
	return limited, cancel
}

// failAll ends the units of a run that cannot begin with them, and returns its error. Past the
// limit each of them has failed for that.
func (r *run) failAll(ctx, limited context.Context, err error) error {
	past := pastLimit(limited)
	if past != nil {
		err = past
	}
	var g task.Group
	for _, u := range r.Plan.Units {
		if r.shared.preflight[u.Name] {
			continue
		}
		g.Go(func() error {
			if ctx.Err() == nil && r.Hooks.OnError != nil {
				r.Hooks.OnError(u, false)
			}
			r.reportFailure(ctx, u, past)
			r.failed(ctx, u)
			return nil
		})
	}
	g.Finish()
	return &IncompleteError{Failed: len(r.Plan.Units), First: err}
}
