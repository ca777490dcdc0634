package move

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file pauses the pools of addresses that units share, on the source, from before the first
// pause of a unit to the end. When a unit is retired, the source does not know its addresses any
// more: a pool at work there would give them to the next Machine of a unit that is not moved yet.

// pausePoolsStep is a step of each run: somebody may have ended a pause since the last one.
func pausePoolsStep(attempt int) catalog.Step {
	return catalog.Step{Phase: "pause-pools", Wave: attempt}
}

var pausedByMove = json.RawMessage("true")

// pools returns the pools of the plan that are paused on the source. What only units use that the
// plan blocks stays at work with them, and so do pools whose ranges the operator has answered for.
func (m *run) pools() []restore.Object {
	if m.Plan.Spec.Force.Has(object.CodePoolShared) {
		return nil
	}
	blocked := map[string]bool{}
	for _, u := range m.Plan.Copy.Units {
		blocked[u.Name] = u.Blocked
	}
	return slices.DeleteFunc(slices.Clone(m.Plan.Copy.Shared.Objects), func(o restore.Object) bool {
		return o.Action == restore.Skip || !m.Rows.Row(o.GroupKind()).PausesPool() ||
			!slices.ContainsFunc(o.Users, func(unit string) bool { return !blocked[unit] })
	})
}

// poolsInUse returns those of the pools of which not all users are back on the source.
func (m *run) poolsInUse() []restore.Object {
	return slices.DeleteFunc(m.pools(), func(o restore.Object) bool {
		return !slices.ContainsFunc(o.Users, func(unit string) bool { return !m.isBack(unit) })
	})
}

// pausePools pauses the pools that are in use, and journals which it paused: one that an earlier
// move has left paused is not given back by this one. It sets again what somebody has unset.
func (m *run) pausePools(ctx context.Context) error {
	pools := m.poolsInUse()
	if len(pools) == 0 {
		return nil
	}
	return m.Journal.Do(ctx, pausePoolsStep(m.Attempt), func(ctx context.Context,
		h *catalog.StepHandle) error {
		return m.changeShared(ctx, pools, func(u *unstructured.Unstructured) (bool, error) {
			marked := capi.PausedByUs(u.Object)
			if changed := m.Rows.Pause(u.Object); marked || !changed {
				return changed, nil // an earlier run has recorded it, or an earlier move needs it
			}
			err := h.Record(ctx, catalog.Value{Key: refOf(u).String(), Data: pausedByMove})
			if err == nil {
				err = h.Sync(ctx) // a rollback on another host has to know it, too
			}
			return true, err
		})
	})
}

func refOf(u *unstructured.Unstructured) object.Ref {
	gvk := u.GroupVersionKind()
	return object.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// unpausePools gives back in a rollback the pools that pausePools has paused, but for those that a
// unit uses which is handed over (forward) or stuck, and reports those that stay paused. It needs
// no target: there, a pool is at work only after its users are released, which no rollback takes
// back.
func (m *run) unpausePools(ctx context.Context, forward []string,
	stuck map[string]bool) (errs []error) {
	back := func(unit string) bool { return !slices.Contains(forward, unit) && !stuck[unit] }
	for _, err := range []error{m.givePoolsBack(ctx, back), m.reportPools(ctx)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// givePoolsBack unpauses those of the pools that this move has paused, of whose users is says all,
// and of which none was moved: the source does not know the addresses of that any more. It may run
// again.
func (m *run) givePoolsBack(ctx context.Context, is func(unit string) bool) error {
	paused, err := m.pausedPools(ctx)
	if err != nil {
		return err
	}
	for _, o := range m.pools() {
		if !paused[o.Ref.String()] || slices.ContainsFunc(o.Users,
			func(unit string) bool { return !is(unit) }) {
			continue
		}
		if moved, err := m.anyMoved(ctx, o.Users); err != nil {
			return err
		} else if moved {
			continue
		}
		if err := m.changeShared(ctx, []restore.Object{o}, func(u *unstructured.Unstructured) (bool,
			error) {
			return m.Rows.Unpause(u.Object), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// isBack reports whether the source has a unit, and this move does not pause it any more.
func (m *run) isBack(unit string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.Units[unit]
	return m.results.gone[unit] || state == catalog.UnitRolledBack || state == catalog.UnitGivenBack ||
		state == catalog.UnitBlocked
}

// pausedPools returns the pools that runs of this move have paused.
func (m *run) pausedPools(ctx context.Context) (map[string]bool, error) {
	paused := map[string]bool{}
	for attempt := 1; attempt <= m.Attempt; attempt++ {
		values, err := m.Journal.Values(ctx, pausePoolsStep(attempt))
		if err != nil {
			return nil, err
		}
		for ref := range values {
			paused[ref] = true
		}
	}
	return paused, nil
}

// anyMoved reports whether one of units was moved since the plan (movedSince).
func (m *run) anyMoved(ctx context.Context, units []string) (bool, error) {
	moved, err := m.movedSince(ctx, units)
	return len(moved) > 0, err
}

// reportPools reports the pools that are paused on the source when a run ends, and why, and those
// whose pause somebody has ended since this move has begun, although a user of them was moved.
func (m *run) reportPools(ctx context.Context) error {
	paused, err := m.pausedPools(ctx)
	if err != nil {
		return err
	}
	pausedNow, err := m.Journal.State(ctx, pausePoolsStep(m.Attempt))
	if err != nil {
		return err
	}
	for _, o := range m.pools() {
		live, err := on(ctx, m.Source, o.Ref)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		moved, err := m.anyMoved(ctx, o.Users)
		if err != nil {
			return err
		}
		why, hint := whyPoolIsPaused(moved, paused[o.Ref.String()])
		if !m.Rows.StillPaused(live.Object) {
			if !moved || pausedNow != catalog.StepDone && !paused[o.Ref.String()] {
				continue
			}
			why, hint = "somebody has ended its pause on the source, which does not know the addresses "+
				"of what was moved, and may give them to other Machines", "pause it there by the "+
				"annotation "+capi.AnnotationPaused+", and find out which addresses it has given since"
		}
		if err := m.keptShared(ctx, o.Ref, why, hint); err != nil {
			return err
		}
	}
	return nil
}

// whyPoolIsPaused says why a pool stays paused on the source: by moved, whether one of its users
// was moved, and ours, whether this move has paused it.
func whyPoolIsPaused(moved, ours bool) (why, hint string) {
	const annotations = "remove its annotations " + capi.AnnotationPaused + " and " +
		capi.AnnotationWasPaused + " there"
	switch {
	case moved:
		return "it is paused on the source, which does not know the addresses of what was moved",
			"move the other workload clusters that use it as well; or take the addresses of those that " +
				"were moved out of the pool of the source, and " + annotations
	case ours:
		return "it is paused on the source until this operation ends",
			"resume the operation, or roll it back"
	}
	return "an earlier operation has paused it on the source", "end that operation; if it is " +
		"forgotten, and no workload cluster that uses the pool was moved, " + annotations
}
