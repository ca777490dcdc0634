package move

import (
	"context"
	"encoding/json"
	"errors"
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

func pausePoolsStep() catalog.Step { return catalog.Step{Phase: "pause-pools"} }

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

// pausePools pauses the pools, and journals which it paused: one that an earlier move has left
// paused is not given back by this one.
func (m *run) pausePools(ctx context.Context) error {
	pools := m.pools()
	if len(pools) == 0 {
		return nil
	}
	return m.Journal.Do(ctx, pausePoolsStep(), func(ctx context.Context,
		h *catalog.StepHandle) error {
		return m.changeShared(ctx, pools, func(u *unstructured.Unstructured) (bool, error) {
			if capi.PausedByUs(u.Object) {
				return false, nil
			}
			m.Rows.Pause(u.Object)
			return true, h.Record(ctx, catalog.Value{Key: refOf(u).String(), Data: pausedByMove})
		})
	})
}

func refOf(u *unstructured.Unstructured) object.Ref {
	gvk := u.GroupVersionKind()
	return object.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// unpausePools gives back in a rollback the pools that pausePools has paused, but for those of
// which a user is retired: these are reported. It needs no target: there, a pool is at work only
// after its users are released, which no rollback takes back.
func (m *run) unpausePools(ctx context.Context) error {
	if len(m.pools()) == 0 {
		return nil
	}
	err := m.Journal.Undo(ctx, pausePoolsStep(), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return m.givePoolsBack(ctx, func(restore.Object) bool { return true })
	})
	return errors.Join(err, m.reportPools(ctx))
}

// unpausePoolsLeft gives back the pools whose users have all left the move.
func (m *run) unpausePoolsLeft(ctx context.Context) error {
	return m.givePoolsBack(ctx, func(o restore.Object) bool {
		return !slices.ContainsFunc(o.Users, func(unit string) bool { return !m.hasLeft(unit) })
	})
}

// givePoolsBack unpauses those of the pools that this move has paused and of which no user is
// retired.
func (m *run) givePoolsBack(ctx context.Context, is func(o restore.Object) bool) error {
	pools := m.pools()
	if len(pools) == 0 {
		return nil
	}
	paused, err := m.Journal.Values(ctx, pausePoolsStep())
	if err != nil {
		return err
	}
	retired := m.usersOf(func(u restore.Unit) bool { return !m.results.retired[u.Name] }).moves
	pools = slices.DeleteFunc(pools, func(o restore.Object) bool {
		return paused[o.Ref.String()] == nil || retired[o.Ref] || !is(o)
	})
	return m.changeShared(ctx, pools, func(u *unstructured.Unstructured) (bool, error) {
		return m.Rows.Unpause(u.Object), nil
	})
}

// reportPools reports the pools that are paused on the source when a run ends.
func (m *run) reportPools(ctx context.Context) error {
	const hint = "move the other workload clusters that use it as well; or take the addresses of " +
		"those that were moved out of the pool of the source, and remove its annotations " +
		capi.AnnotationPaused + " and " + capi.AnnotationWasPaused + " there"
	for _, o := range m.pools() {
		live, err := on(ctx, m.Source, o.Ref)
		if err != nil {
			return err
		}
		if live == nil || !capi.PausedByUs(live.Object) {
			continue
		}
		if err := m.keptShared(ctx, o.Ref, "it is paused on the source, which does not know the "+
			"addresses of what was moved", hint); err != nil {
			return err
		}
	}
	return nil
}
