package restore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// isCreated reports whether a run of the plan creates an object, and does not only complete what
// another operation or a pre-copy created. In a plan from marks, a lost operation created it.
func (r *run) isCreated(o Object) bool {
	return o.Action == Create && (o.UID == "" || o.Ours && r.Plan.FromMarks)
}

// undoStep undoes a step. In a plan from marks nothing was done before: removing is a step of its
// own there.
func (r *run) undoStep(ctx context.Context, step catalog.Step, fn func(ctx context.Context,
	h *catalog.StepHandle) error) error {
	if r.Plan.FromMarks {
		step.Phase = "undo-" + step.Phase
		return r.Journal.Do(ctx, step, fn)
	}
	return r.Journal.Undo(ctx, step, fn)
}

// checkUnreleased makes sure that no release of a unit was begun: its controllers may have been at
// work, whatever the Cluster says by now.
func (r *run) checkUnreleased(ctx context.Context, u Unit) error {
	state, err := r.Journal.State(ctx, releaseStep(u.Name))
	if err == nil && state != "" {
		err = &copyAtWorkError{u.Name}
	}
	return err
}

func (r *run) undoUnit(ctx context.Context, o UndoOptions, u Unit) error {
	if u.Name != "" {
		if err := errors.Join(r.checkUnreleased(ctx, u), r.checkStillPaused(ctx, u)); err != nil {
			return err
		}
		if err := r.undoOwners(ctx, u.Name); err != nil {
			return err
		}
		if err := r.undoStep(ctx, r.clusterStatusStep(u.Name),
			func(context.Context, *catalog.StepHandle) error { return nil }); err != nil {
			return err // the Cluster goes with its wave
		}
	}
	list := Waves(u.Objects)
	slices.Reverse(list)
	for _, wave := range list {
		err := r.undoStep(ctx, r.createStep(u.Name, wave[0].Wave), func(ctx context.Context,
			h *catalog.StepHandle) error {
			// Somebody may end the pause at any time: then a MachineSet replaces what is removed.
			if err := r.checkStillPaused(ctx, u); err != nil {
				return err
			}
			return r.undoWave(ctx, h, o, wave)
		})
		if _, atWork := errors.AsType[*copyAtWorkError](err); atWork {
			return err // its Machines stay held
		}
		if err != nil { // of what is gone already, a resume has to do these steps again
			return errors.Join(err, r.undoReality(ctx, u))
		}
	}
	return r.undoReality(ctx, u)
}

// noUID is the journaled UID of an object that a rollback has removed: a resume may create it
// again.
var noUID = json.RawMessage(`""`)

// undoWave removes what a run created of a wave, or leaves it. When it fails, the journal forgets
// the UIDs of what it has removed.
func (r *run) undoWave(ctx context.Context, h *catalog.StepHandle, o UndoOptions,
	wave []Object) error {
	var mu sync.Mutex
	var removed []catalog.Value
	err := r.each(wave, func(obj Object) error {
		r.Journal.Progress("objects undone", r.done.Add(1), r.total)
		switch {
		case !r.isCreated(obj):
			return nil
		case obj.GroupKind() == kube.NamespaceKind.GroupKind, o.Needed[obj.Ref]:
			return r.leave(ctx, obj, o.StayPaused[obj.Ref])
		}
		gone, err := r.removeObject(ctx, o.Remover, obj)
		if gone {
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, catalog.Value{Key: obj.Ref.String(), Data: noUID})
		}
		return err
	})
	if err == nil || len(removed) == 0 {
		return err
	}
	return errors.Join(err, h.Record(ctx, removed...))
}

// undoReality gives back the Machines that are held from remediation, of those that stay, and
// undoes the steps that changed what waves had made, and that has gone with them: a resume which
// restores the unit again has to do them again.
func (r *run) undoReality(ctx context.Context, u Unit) error {
	if err := r.resumeRemediation(ctx, u); err != nil {
		return err
	}
	unit := u.Name
	steps := []catalog.Step{renewStep(unit), resumeRemediationStep(unit)}
	for wave, last := 0, false; !last; wave++ {
		steps = append(steps, holdStep(unit, wave))
		state, err := r.Journal.State(ctx, holdStep(unit, wave))
		if err != nil {
			return err
		}
		last = state == ""
	}
	for _, step := range steps {
		state, err := r.Journal.State(ctx, step)
		if err == nil && state != "" {
			err = r.Journal.Undo(ctx, step,
				func(context.Context, *catalog.StepHandle) error { return nil })
		}
		if err != nil {
			return err
		}
	}
	return nil
}
