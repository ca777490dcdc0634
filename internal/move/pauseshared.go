package move

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/restore"
)

func pauseSharedStep() catalog.Step { return catalog.Step{Phase: "pause-shared"} }

// pauseShared pauses, before the first batch, the shared objects of the plan that nothing on the
// source may begin to use any more (capi.Row.PausedShared). They stay paused until they are retired
// there, or the move is rolled back.
func (m *run) pauseShared(ctx context.Context) error {
	if len(m.pausedShared()) == 0 {
		return nil
	}
	return m.Journal.Do(ctx, pauseSharedStep(), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return m.changeShared(ctx, m.Rows.Pause)
	})
}

// unpauseShared gives back the switches that pauseShared set.
func (m *run) unpauseShared(ctx context.Context) error {
	if len(m.pausedShared()) == 0 {
		return nil
	}
	return m.Journal.Undo(ctx, pauseSharedStep(), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return m.changeShared(ctx, m.Rows.Unpause)
	})
}

func (m *run) pausedShared() []restore.Object {
	return slices.DeleteFunc(slices.Clone(m.Plan.Copy.Shared.Objects), func(o restore.Object) bool {
		return o.Action == restore.Skip || !m.Rows.Row(o.GroupKind()).PausedShared
	})
}

// changeShared changes the objects of pausedShared on the source. One that is gone has no switch.
func (m *run) changeShared(ctx context.Context, fn func(obj map[string]any) bool) error {
	for _, o := range m.pausedShared() {
		err := m.pauser.Change(ctx, o.Ref, func(u *unstructured.Unstructured) (bool, error) {
			return fn(u.Object), nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("pause of shared objects on the source: %w", err)
		}
	}
	return nil
}
