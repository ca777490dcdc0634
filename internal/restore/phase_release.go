package restore

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
)

func releaseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "release"} }

// release lets the target's controllers work on the unit: one write to its Cluster. From a Cluster
// that was paused on the source it only removes our annotations.
func (r *run) release(ctx context.Context, u Unit) error {
	return r.Journal.Do(ctx, releaseStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		// the Cluster is the last
		for _, how := range []capi.PauseSwitch{capi.PauseAnnotation, capi.PauseSpec} {
			for _, o := range switched(u, how) {
				if err := r.releaseObject(ctx, o); err != nil {
					return fmt.Errorf("release %s: %w", o.Ref, err)
				}
			}
		}
		return h.SetUnit(catalog.UnitReleased)
	})
}

// switched returns the objects of a unit that have this pause switch.
func switched(u Unit, how capi.PauseSwitch) []Object {
	var out []Object
	for _, o := range u.Objects {
		if o.Action != Skip && capi.PauseOf(o.GroupKind()) == how {
			out = append(out, o)
		}
	}
	return out
}

func (r *run) releaseObject(ctx context.Context, o Object) error {
	return r.change(ctx, o, Unpause)
}

// repause pauses a released unit; a resume releases it again. It is for units that are not healthy
// and must not be reconciled until the cause is found.
func (r *run) repause(ctx context.Context, u Unit) error {
	return r.Journal.Undo(ctx, releaseStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		for _, how := range []capi.PauseSwitch{capi.PauseSpec, capi.PauseAnnotation} {
			for _, o := range switched(u, how) {
				if err := r.change(ctx, o, Pause); err != nil {
					return fmt.Errorf("pause %s again: %w", o.Ref, err)
				}
			}
		}
		return h.SetUnit(catalog.UnitHandedOver)
	})
}
