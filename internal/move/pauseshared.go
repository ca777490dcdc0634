package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

func pauseSharedStep() catalog.Step { return catalog.Step{Phase: "pause-shared"} }

// pauseShared pauses, before the first batch, the shared objects of the plan that nothing on the
// source may begin to use any more (capi.Row.PausedShared). They stay paused until they are
// retired there, or the move is rolled back. One in which its controllers are in the middle of
// something since planning stays at work, and its batch leaves it out.
func (m *run) pauseShared(ctx context.Context) error {
	objects := m.pausedShared(m.Plan.Copy)
	if len(objects) == 0 {
		return nil
	}
	return m.Journal.Do(ctx, pauseSharedStep(), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		return m.changeShared(ctx, objects, func(u *unstructured.Unstructured) (bool, error) {
			row := m.Rows.RowOf(u.Object)
			if gate := row.Pause.Gate(); gate != nil {
				if _, harmful := gate.Unsettled(u.Object); harmful {
					return false, nil
				}
			}
			return m.Rows.Pause(u.Object), nil
		})
	})
}

// unpauseShared gives back the switches that pauseShared set. An object whose copy is at work on
// the target, released for a workload cluster that was moved before, stays paused (I1).
func (m *run) unpauseShared(ctx context.Context) error {
	objects := m.pausedShared(m.Plan.Copy)
	if len(objects) == 0 {
		return nil
	}
	if !m.hasTarget() {
		return m.leaveSharedPaused(ctx, objects)
	}
	return m.Journal.Undo(ctx, pauseSharedStep(), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		free, err := m.notAtWork(ctx, objects)
		if err != nil {
			return err
		}
		return m.changeShared(ctx, free, func(u *unstructured.Unstructured) (bool, error) {
			return m.Rows.Unpause(u.Object), nil
		})
	})
}

// notAtWork returns the objects that have no copy at work on the target, and reports the others: it
// may be a copy that another move has made.
func (m *run) notAtWork(ctx context.Context, objects []restore.Object) ([]restore.Object, error) {
	var free []restore.Object
	for _, o := range objects {
		there, err := on(ctx, m.Target, o.Ref)
		switch {
		case err != nil:
			return nil, err
		case there == nil || m.Rows.StillPaused(there.Object):
			free = append(free, o)
			continue
		}
		if err := m.keptShared(ctx, o.Ref, "it stays paused on the source: it is at work on the "+
			"target", "leave its pause there alone while the target works with it"); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// pausedShared returns the objects of a plan that pauseShared pauses.
func (m *run) pausedShared(p restore.Plan) []restore.Object {
	return slices.DeleteFunc(slices.Clone(p.Shared.Objects), func(o restore.Object) bool {
		return o.Action == restore.Skip || !m.Rows.Row(o.GroupKind()).PausedShared
	})
}

// changeShared changes objects on the source, unless another host has taken the operation over. One
// that is gone has no switch.
func (m *run) changeShared(ctx context.Context, objects []restore.Object,
	fn func(u *unstructured.Unstructured) (bool, error)) error {
	mine := func(u *unstructured.Unstructured) (bool, error) {
		changed, err := fn(u)
		if err == nil && changed {
			err = m.Journal.Alive(ctx) // after the read: a later write of that host makes ours fail
		}
		return changed, err
	}
	for _, o := range objects {
		if err := m.pauser.Change(ctx, o.Ref, mine); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("pause of shared objects on the source: %w", err)
		}
	}
	return nil
}

// stillPaused returns a plan of a batch without the objects of pausedShared that are at work on
// the source, or were changed there since they were copied: their copies are not released (I1).
// Without the source, which cannot be asked, these are all of them; and what is created late waits
// for the source, too, since there it cannot be paused.
func (m *run) stillPaused(ctx context.Context, b *batch) (restore.Plan, error) {
	p := b.Copy
	p.Shared.Objects = slices.Clone(p.Shared.Objects)
	for i, o := range p.Shared.Objects {
		pausedShared := m.Rows.Row(o.GroupKind()).PausedShared
		if o.Action != restore.Skip && !m.hasSource() && (pausedShared || o.Late) {
			p.Shared.Objects[i].Action = restore.Skip
			if err := m.waitsForSource(ctx, o.Ref); err != nil {
				return p, err
			}
			continue
		}
		if o.Action == restore.Skip || !pausedShared {
			continue
		}
		why, err := m.changedShared(ctx, b, o.Ref)
		if err != nil {
			return p, err
		}
		if why == "" {
			continue
		}
		p.Shared.Objects[i].Action = restore.Skip
		f := object.Finding{Severity: object.Error, Code: object.CodeNotPaused, Ref: o.Ref,
			Message: "its copy stays paused on the target: on the source " + why,
			Hint: "find out who changed it there; it must not be at work on both management clusters: " +
				"keep it paused on one of them"}
		if err := m.Journal.Emit(ctx, catalog.FindingEvent("", f)); err != nil {
			return p, err
		}
		m.failShared(fmt.Errorf("%s: %s", o.Ref, f.Message))
	}
	return p, nil
}

// waitsForSource reports a shared object that a run without the source does not release.
func (m *run) waitsForSource(ctx context.Context, ref object.Ref) error {
	return m.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
		Code: object.CodeSharedKept, Ref: ref, Message: "it is not released on the target: " +
			m.Source.Name + " cannot be asked whether it is at work there", Hint: "resume the operation " +
			"when " + m.Source.Name + " answers"}))
}

// changedShared says how an object of the source is not as it was copied; "" when it is, or is
// gone.
func (m *run) changedShared(ctx context.Context, b *batch, ref object.Ref) (string, error) {
	now, err := on(ctx, m.Source, ref)
	if err != nil || now == nil {
		return "", err
	}
	if !m.Rows.StillPaused(now.Object) {
		return "it is not paused any more", nil
	}
	was, err := decode(b.contents, ref)
	if err != nil {
		return "", err
	}
	for _, u := range []*unstructured.Unstructured{was, now} {
		unstructured.RemoveNestedField(u.Object, "metadata", "ownerReferences") // of retired units
	}
	if paths := equality.Differences(m.Rows, was.Object, now.Object, equality.Spec); len(paths) > 0 {
		return "it was changed in " + strings.Join(paths, ", "), nil
	}
	return "", nil
}

// failShared makes the run incomplete: a shared object is left for a resume.
func (m *run) failShared(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results.first == nil {
		m.results.first = err
	}
}

// on reads an object of a side; nil when it is not there.
func on(ctx context.Context, side Mgmt, ref object.Ref) (*unstructured.Unstructured, error) {
	return onIn(ctx, side, ref, "")
}

// onLike is on in the version in which like, the object of the other side, was read, if this side
// serves it: the sides may store a kind in different versions, and two versions cannot be compared.
func onLike(ctx context.Context, side Mgmt, ref object.Ref, like *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return onIn(ctx, side, ref, like.GroupVersionKind().Version)
}

func onIn(ctx context.Context, side Mgmt, ref object.Ref, version string) (
	*unstructured.Unstructured, error) {
	k, ok := kube.FindKind(side.Kinds, ref.GroupKind())
	if !ok {
		return nil, nil
	}
	if slices.Contains(k.Served, version) {
		k.Version = version
	}
	u, err := side.Reader.Get(ctx, k, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return u, err
}
