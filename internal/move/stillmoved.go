package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// This file makes sure that the target still has a unit, right before it is removed from the source
// (I2). The journal knows only that it was well there, perhaps days ago: since then the target may
// have been restored from a backup of its etcd.

// NotOnTargetError means that the target does not work on a unit any more that was released there.
// What is left of it on the source stays, paused.
type NotOnTargetError struct{ Why string }

func (e *NotOnTargetError) Error() string {
	return "it was released on the target, and " + e.Why
}

// Code is that of the finding.
func (*NotOnTargetError) Code() object.Code { return object.CodeNotOnTarget }

// Hint says what to do next.
func (*NotOnTargetError) Hint() string {
	return "its paused copy on the source stays: find out what happened on the target, such as a " +
		"restore of its etcd from a backup, before anything else"
}

// stillMoved returns an error unless the target works on a unit: a *NotOnTargetError; an
// *ownership.OwnedError when the workload cluster was brought back to the source, or its record is
// gone. Where it has moved on to a third management cluster, the target is not asked.
func (m *run) stillMoved(ctx context.Context, u restore.Unit) error {
	elsewhere, again, err := m.movedOn(ctx, u)
	if err != nil || elsewhere {
		return err
	}
	ref, err := clusterRef(u.Name)
	if err != nil {
		return err
	}
	live, err := read(ctx, m.Target, ref)
	if err != nil {
		return fmt.Errorf("look whether the target still has it: %w", err)
	}
	m.mu.Lock()
	uid := m.released[u.Name]
	m.mu.Unlock()
	switch {
	case live == nil:
		return &NotOnTargetError{"its Cluster is not there any more"}
	case uid != "" && string(live.GetUID()) != uid && !again && !m.accepted[u.Name]:
		return &NotOnTargetError{"another Cluster of this name is there now"}
	case live.GetDeletionTimestamp() != nil:
		return &NotOnTargetError{"its Cluster is being deleted there"}
	case capi.PausedByUs(live.Object):
		return &NotOnTargetError{"an operation has paused its Cluster there, or it is there as it was " +
			"before the release"}
	}
	return nil
}

// movedOn asks the ownership record of a unit whether a third management cluster has taken it over
// since its hand-over (elsewhere), or the target once more by another operation (again).
func (m *run) movedOn(ctx context.Context, u restore.Unit) (elsewhere, again bool, err error) {
	if m.Plan.Spec.NoFence {
		return false, false, nil
	}
	err = ownership.Check(ctx, m.Store, m.request(u))
	owned, ok := errors.AsType[*ownership.OwnedError](err)
	switch {
	case !ok:
		return false, false, err
	case owned.By.UID == m.Plan.Target.UID:
		return false, true, nil
	case owned.By.UID == "" || owned.By.UID == m.Plan.Source.UID:
		return false, false, err
	}
	return true, false, nil
}
