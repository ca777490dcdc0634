package restore

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
)

func releaseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "release"} }

// release hands the unit to the target's controllers: one write to its Cluster. Of a Cluster that
// was paused on the source it only removes our notes.
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

// switched are the objects of a unit with a pause of their own of this sort.
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

// repause takes a release back: the unit is paused again, and a resume releases it again. It is for
// units that are not healthy and must not be worked on meanwhile.
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
