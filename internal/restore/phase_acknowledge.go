package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// waitAcknowledged waits until the target's controllers have seen every object of the unit and
// acknowledge its pause. A controller that lags behind its watch would, once the pause ends, act on
// the Machines that it can see: too few. An object has to be acknowledged when the source published
// its condition Paused, and, since the source may be older than that condition, when the target
// publishes it for objects of its kind and the controller gets as far as the pause. One that is
// never acknowledged leaves the unit paused, with an error that names it: a resume goes on once its
// controller works, and before that nothing proves what the controller has seen.
// verified says that verify comes next, which asks for the acknowledgements of a unit that is as
// its pre-copy is.
func (r *run) waitAcknowledged(ctx context.Context, u Unit, verified bool) error {
	if r.Hooks.OnWritten != nil {
		r.Hooks.OnWritten(u)
	}
	untouched := r.isUntouched(u)
	if untouched && verified {
		return nil
	}
	wanted, silent, err := r.acknowledging(ctx, u)
	if err == nil {
		wanted, silent, err = r.leaveLost(ctx, u, wanted, silent)
	}
	if err != nil {
		return err
	}
	if err := r.awaitPause(ctx, wanted); err != nil || untouched {
		return err // its pre-copy has waited for what follows
	}
	// for controllers that publish nothing, and for the caches of those that do
	if err := retry.Sleep(ctx, r.Tuning.Settle); err != nil {
		return err
	}
	late, err := r.nowPublished(ctx, silent)
	if err != nil || len(late) == 0 {
		return err
	}
	if err := r.awaitPause(ctx, late); err != nil {
		return err
	}
	return retry.Sleep(ctx, r.Tuning.Settle)
}

// acknowledging returns the objects of a unit whose controllers have to acknowledge the pause, and
// those whose controllers publish nothing as far as is known.
func (r *run) acknowledging(ctx context.Context, u Unit) (wanted, silent []Object, err error) {
	for _, o := range early(u.Objects) {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case capi.PublishesPause(source.Object):
			wanted = append(wanted, o)
		case r.Rows.Row(o.GroupKind()).Pause.Acknowledged():
			published, err := r.publishers.sample(ctx, r.Reader, r.kinds[o.GroupKind()])
			if err != nil {
				return nil, nil, err
			}
			if published {
				wanted = append(wanted, o)
			} else {
				silent = append(silent, o)
			}
		}
	}
	return wanted, silent, nil
}

// leaveLost takes out of the objects of a unit those that are gone since it was released and paused
// again, or are being deleted, as Machines after a rollout are: they do not come back, and a
// controller that has not seen them does no harm. Until the operator accepts the unit, they are a
// *lostError. A Cluster stays: without it nothing can be released.
func (r *run) leaveLost(ctx context.Context, u Unit, wanted, silent []Object) (_, _ []Object,
	err error) {
	begun, err := r.releaseBegun(ctx, u)
	if err != nil || !begun {
		return wanted, silent, err
	}
	lost, first, err := r.problems(ctx, slices.Concat(wanted, silent), nil,
		func(Object, *unstructured.Unstructured, *unstructured.Unstructured) string { return "" })
	lost = slices.DeleteFunc(lost, func(o Object) bool { return o.GroupKind() == capi.Cluster })
	if err != nil || len(lost) == 0 {
		return wanted, silent, err
	}
	if !r.accepted[u.Name] {
		return nil, nil, &lostError{errors.New(first)}
	}
	is := func(o Object) bool {
		return slices.ContainsFunc(lost, func(l Object) bool { return l.Ref == o.Ref })
	}
	return slices.DeleteFunc(wanted, is), slices.DeleteFunc(silent, is), nil
}

// awaitPause waits until the pause of each object is acknowledged. What is copied while the source
// is at work is read once more after that.
func (r *run) awaitPause(ctx context.Context, objects []Object) error {
	return r.wait(ctx, objects, "the target's controllers to acknowledge the pause",
		r.Hooks.PreCopy == nil, unseenPause)
}

// unseenPause says that a controller of the target has not acknowledged the pause of an object.
func unseenPause(_ Object, source, live *unstructured.Unstructured) string {
	if !capi.PublishesPause(source.Object) && !capi.ReadsPause(live.Object) {
		return ""
	}
	return capi.NotAcknowledged(live.Object, "True")
}

// nowPublished returns those of objects whose kind is published by now. On a target that was empty,
// the first objects of a kind are copies.
func (r *run) nowPublished(ctx context.Context, objects []Object) (published []Object, err error) {
	_, _, err = r.problems(ctx, objects, nil,
		func(o Object, _, live *unstructured.Unstructured) string {
			if capi.PublishesPause(live.Object) {
				r.publishers.add(o.GroupKind())
			}
			return ""
		})
	for _, o := range objects {
		if r.publishers.has(o.GroupKind()) {
			published = append(published, o)
		}
	}
	return published, err
}

// inspect reports whether the unit's Cluster carries a pause that an operation set, which the
// release ends, or that somebody else set, which stays. It is neither when somebody has ended it.
func (r *run) inspect(ctx context.Context, u Unit) (byUs, byHand bool, err error) {
	for _, o := range early(u.Objects) {
		if o.GroupKind() != capi.Cluster {
			continue
		}
		live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if err != nil {
			return false, false, fmt.Errorf("%s: %w", o.Ref, err)
		}
		return isPaused(live) && capi.PausedByUs(live.Object), isPausedByHand(live), nil
	}
	return false, false, nil
}
