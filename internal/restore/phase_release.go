package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

func releaseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "release"} }

// MayBeAccepted reports whether a unit was released: then its state may be accepted by the
// operator, also after post-flight, since observing may fail later.
func MayBeAccepted(ctx context.Context, j *catalog.Journal, unit string) (bool, error) {
	released, err := j.State(ctx, releaseStep(unit))
	return released != "", err
}

// release lets the target's controllers work on the unit: one write to its Cluster, and one to each
// other object that has a switch, in the order of switched. From a Cluster that was paused on the
// source it only removes our annotations. A unit with an object that must not be released is left
// as it is, and its release is not begun (*notReadyError). So is one of which an object is gone
// since an earlier release (*lostError), until the operator accepts it.
func (r *run) release(ctx context.Context, u Unit) error {
	begun, err := r.releaseBegun(ctx, u)
	if err != nil {
		return err
	}
	if err := r.checkReady(ctx, u); err != nil {
		return err
	}
	return r.Journal.Do(ctx, releaseStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		for _, o := range r.switched(u) {
			err := r.passLost(u, o, begun, r.releaseObject(ctx, u, o, begun))
			if err != nil {
				return fmt.Errorf("release %s: %w", o.Ref, err)
			}
		}
		return h.SetUnit(catalog.UnitReleased)
	})
}

// unpauseFirst unpauses what a move away from here may have left paused by itself. It comes after
// the release, so that an object which cannot be written does not keep the workload cluster from
// its work. One that is gone is a matter of the post-flight.
func (r *run) unpauseFirst(ctx context.Context, u Unit) error {
	objects := r.pausedFirst(u)
	if len(objects) == 0 {
		return nil
	}
	return r.Journal.Do(ctx, catalog.Step{Unit: u.Name, Phase: "unpause-first"},
		func(ctx context.Context, _ *catalog.StepHandle) error {
			for _, o := range objects {
				err := r.releaseObject(ctx, u, o, true)
				if err != nil && !isLost(o, err) {
					return fmt.Errorf("unpause %s: %w", o.Ref, err)
				}
			}
			return nil
		})
}

// switched returns the objects of a unit that have a switch of their own, in the order in which a
// release unsets them.
func (r *run) switched(u Unit) []Object {
	order := func(o Object) int { return r.Rows.Row(o.GroupKind()).Pause.Order() }
	var out []Object
	for _, o := range u.Objects {
		if o.Action != Skip && order(o) > 0 {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b Object) int { return order(a) - order(b) })
	return out
}

// pausedFirst returns the objects of a unit that a move away from here may have left paused, each
// by itself (capi.Table.PauseFirst): a release of their Cluster alone would leave them so.
func (r *run) pausedFirst(u Unit) []Object {
	return slices.DeleteFunc(slices.Clone(u.Objects), func(o Object) bool {
		return o.Action != Adopt || !r.Rows.Row(o.GroupKind()).PausesFirst()
	})
}

// releaseObject unpauses an object. A Cluster also gets the epoch of its ownership record. An
// object that must not be released stays as it is (*notReadyError). begun is that of readiness.
func (r *run) releaseObject(ctx context.Context, u Unit, o Object, begun bool) error {
	mark := ""
	if o.GroupKind() == capi.Cluster && r.Hooks.EpochMark != nil {
		mark = r.Hooks.EpochMark(u)
	}
	return r.changeReady(ctx, o, begun, func(live *unstructured.Unstructured) bool {
		changed := r.Rows.Unpause(live.Object)
		if changed {
			capi.Unannotate(live.Object, capi.AnnotationFenced) // of a Cluster that came back
			if _, locked := r.lockHolder(live); locked {
				capi.Unannotate(live.Object, annotationOperation) // left behind, see checkLock
			}
		}
		if changed && mark != "" {
			capi.Annotate(live.Object, capi.AnnotationEpoch, mark)
		}
		return changed
	})
}

// repause pauses a released unit; a resume releases it again. It is for units that are not healthy
// and must not be reconciled until the cause is found. An object that cannot be paused does not
// keep the others at work.
func (r *run) repause(ctx context.Context, u Unit) error {
	return r.Journal.Undo(ctx, releaseStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		var errs []error
		paused := false
		for _, o := range slices.Backward(r.switched(u)) {
			err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
				return r.Rows.Pause(live.Object)
			})
			paused = paused || err == nil && o.GroupKind() == capi.Cluster
			if err != nil && !isLost(o, err) {
				errs = append(errs, fmt.Errorf("pause %s again: %w", o.Ref, err))
			}
		}
		if paused {
			errs = append(errs, h.SetUnit(catalog.UnitHandedOver))
		}
		return errors.Join(errs...)
	})
}

// isLost reports whether err says that an object of a unit is not on the target any more, or is
// about to go. The Cluster is what a unit cannot be without.
func isLost(o Object, err error) bool {
	_, deleted := errors.AsType[*deletedError](err)
	_, replaced := errors.AsType[*notOwnedError](err)
	return o.GroupKind() != capi.Cluster && (deleted || replaced || apierrors.IsNotFound(err))
}

// lostError says that an object of a unit is gone from the target since the unit was released, or
// is being deleted.
type lostError struct{ err error }

func (e *lostError) Error() string {
	return "not all of it is there since its release: " + e.err.Error()
}

func (e *lostError) Unwrap() error { return e.err }

// Hint says what to do next.
func (e *lostError) Hint() string {
	return "find out what removed it; when the workload cluster is as you want it without it, " +
		"accept the workload cluster and resume the operation"
}

// HintKey names the command that accepts a unit.
func (e *lostError) HintKey() object.HintKey { return object.HintAccept }

// passLost returns the error of a release of an object: none for one that is gone since an earlier
// release (begun) of a unit which the operator accepts, and a *lostError for one of another unit.
func (r *run) passLost(u Unit, o Object, begun bool, err error) error {
	switch {
	case err == nil || !begun || !isLost(o, err):
		return err
	case r.accepted[u.Name]:
		return nil
	}
	return &lostError{err}
}
