package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// LateWriteError means that somebody has written to objects of a unit on the source after the unit
// was compared for its hand-over. The target does not have what was written, so what is left of the
// unit stays on the source, paused.
type LateWriteError struct {
	Writes []string // one per object: its ref, and what differs
}

// mostWrites is how many objects a LateWriteError names.
const mostWrites = 5

func (e *LateWriteError) Error() string {
	return "somebody wrote to the source after it was compared for the hand-over, and the target " +
		"does not have that: " + some(e.Writes)
}

// Code is that of the finding.
func (*LateWriteError) Code() object.Code { return object.CodeChangedLate }

// Hint says what to do next.
func (*LateWriteError) Hint() string {
	return "make the change on the target as well, or take it back on the source, and resume the " +
		"operation; or accept the workload cluster, and a resume removes it on the source as it is"
}

// HintKey names the command that accepts a unit.
func (*LateWriteError) HintKey() object.HintKey { return object.HintAccept }

// desired returns what users write of an object: all but its status, what API servers write, its
// owners, which the garbage collector may take off, and what a removal does to it first.
func desired(rows *capi.Table, u *unstructured.Unstructured) map[string]any {
	out := equality.Normal(rows, u.Object, equality.Spec)
	metadata, _ := out["metadata"].(map[string]any)
	delete(metadata, "ownerReferences")
	delete(metadata, "finalizers")
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, restore.AnnotationDeleteForMove)
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return out
}

// desiredID returns the id that is stored of what users write of an object.
func (b *batch) desiredID(rows *capi.Table, u *unstructured.Unstructured) (string, error) {
	text, err := json.Marshal(desired(rows, u))
	if err != nil {
		return "", fmt.Errorf("encode %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return b.contentID(text), nil
}

// isAsCopied reports whether users have written nothing to an object since it was copied.
func (b *batch) isAsCopied(rows *capi.Table, ref object.Ref, live *unstructured.Unstructured) (
	bool, error) {
	was := b.Source[ref.String()]
	if string(live.GetUID()) != was.UID || was.Desired == "" {
		return false, nil
	}
	text, err := json.Marshal(desired(rows, live))
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", ref, err)
	}
	return cmp.Or(b.copiedBy[ref], b).hasContent(was.Desired, text), nil
}

// forget drops the ids of a unit that is retired.
func (b *batch) forget(unit string) {
	for ref, was := range b.Source {
		if was.Unit == unit && was.Desired != "" {
			was.Desired, was.NoFinalizers = "", false
			b.Source[ref] = was
		}
	}
}

// versions are the resourceVersions of the objects of a batch, as lists show them, which of the
// others came or changed since the units of the batch were looked at with their neighbours, and
// what was created for its units since their snapshot.
type versions struct {
	of    map[string]objectState // by ref
	units map[string]bool        // those that are about to be removed
	users *users                 // may be nil
	rows  *capi.Table
	kinds []kube.Kind // those that a capture has

	mu      sync.Mutex
	seen    map[string]string // by ref
	changed []object.Ref
	created map[string][]string // since the snapshot, by unit
	// alone are unchanged objects of no workload cluster, and what they name.
	alone map[object.Ref][]graph.Need
}

// note notes one object; key is its ref as text.
func (v *versions) note(ref object.Ref, key string, metadata gjson.Result) {
	was, known := v.of[key]
	changed, alone := false, []graph.Need(nil)
	if v.users != nil && !v.units[was.Unit] && namesOthers(v.rows, ref.GroupKind()) {
		changed = v.users.changed(v.rows.Row(ref.GroupKind()), ref.Namespace, metadata)
		if u := v.users.known[metadata.Get("uid").String()]; u.alone && !changed {
			alone = u.needs
		}
	}
	createdFor := ""
	if !known {
		createdFor = v.createdFor(ref, metadata)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if known {
		v.seen[key] = metadata.Get("resourceVersion").String()
	}
	if createdFor != "" {
		v.created[createdFor] = append(v.created[createdFor], key)
	}
	if changed {
		v.changed = append(v.changed, ref)
	}
	if len(alone) > 0 {
		v.alone[ref] = alone
	}
}

// lateWrites returns, by unit, why units must not be retired: an error that is a *LateWriteError,
// or one of a request. Only objects with another resourceVersion than at the hand-over are read. A
// unit that the operator has accepted gets a warning instead. What is gone keeps no unit; it is
// reported.
func (m *run) lateWrites(ctx context.Context, b *batch, units []restore.Unit,
	seen map[string]string) map[string]error {
	var mu sync.Mutex
	writes, errs := map[string][]string{}, map[string]error{}
	gone := map[string][]string{}
	var g task.Group
	g.SetLimit(8)
	for _, u := range units {
		retiring, err := m.Journal.State(ctx, retireStep(u.Name))
		if err != nil {
			mu.Lock() // reads of earlier units go on
			errs[u.Name] = err
			mu.Unlock()
			continue
		}
		for _, o := range u.Objects {
			was, version := b.Source[o.Ref.String()], seen[o.Ref.String()]
			if o.Action == restore.Skip || was.Desired == "" || version == was.ResourceVersion ||
				version == "" && retiring != "" {
				continue
			}
			g.Go(func() error {
				why, isGone, err := m.readLateWrite(ctx, b, o.Ref, retiring == "")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					errs[u.Name] = err
				case why != "":
					writes[u.Name] = append(writes[u.Name], why)
				case isGone:
					gone[u.Name] = append(gone[u.Name], o.Ref.String())
				}
				return nil
			})
		}
	}
	g.Finish()
	m.reportGone(ctx, gone)
	for unit, found := range writes {
		late := &LateWriteError{Writes: found}
		if !m.accepted[unit] {
			errs[unit] = late
			continue
		}
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit,
			object.Finding{Severity: object.Warning, Code: late.Code(), Message: late.Error(),
				Hint: "nothing: the workload cluster was accepted as it is on the target"}))
	}
	return errs
}

// reportGone reports the objects of units that somebody deleted on the source after the hand-over.
func (m *run) reportGone(ctx context.Context, gone map[string][]string) {
	for unit, refs := range gone {
		slices.Sort(refs)
		_ = m.Journal.Emit(context.WithoutCancel(ctx), catalog.FindingEvent(unit, object.Finding{
			Severity: object.Warning, Code: object.CodeDeletedOnSource, Unit: unit,
			Message: fmt.Sprintf("%d of its objects were deleted on the source after the hand-over, and "+
				"the target has them, the first: %s", len(refs), refs[0]),
			Hint: "if that was meant, make the same change on the target"}))
	}
}

// readLateWrite is lateWrite of an object that is read, and says whether it is gone. One that was
// created again is left to its removal. To delete an object is a write as well, unless the move
// itself removes its unit (first is false).
func (m *run) readLateWrite(ctx context.Context, b *batch, ref object.Ref, first bool) (why string,
	gone bool, err error) {
	live, err := on(ctx, m.Source, ref)
	switch {
	case err != nil:
		return "", false, fmt.Errorf("compare %s with what was handed over: %w", ref,
			kube.SafeError(ref.GroupKind(), err))
	case live == nil:
		return "", first, nil
	case string(live.GetUID()) != b.Source[ref.String()].UID:
		return "", false, nil
	case first && live.GetDeletionTimestamp() != nil:
		return ref.String() + ", which somebody deletes", false, nil
	}
	why, err = m.lateWrite(ctx, b, ref, live)
	return why, false, err
}

// lateWrite returns what somebody has written to an object of the source since it was compared for
// the hand-over of its unit; "" when nobody has, or when the target has the same by now.
func (m *run) lateWrite(ctx context.Context, b *batch, ref object.Ref,
	live *unstructured.Unstructured) (string, error) {
	was := b.Source[ref.String()]
	if was.Desired == "" || live.GetResourceVersion() == was.ResourceVersion {
		return "", nil
	}
	if as, err := b.isAsCopied(m.Rows, ref, live); as || err != nil {
		return "", err
	}
	now := desired(m.Rows, live)
	there, err := onLike(ctx, m.Target, ref, live)
	switch {
	case err != nil:
		return "", fmt.Errorf("compare %s with the target: %w", ref, kube.SafeError(ref.GroupKind(), err))
	case there == nil:
		return ref.String() + ", which the target does not have", nil
	}
	var paths []string
	if there.GetAPIVersion() == live.GetAPIVersion() {
		unpaused := live.DeepCopy() // as the release gave the switch back on the target
		m.Rows.Unpause(unpaused.Object)
		paths = equality.Differences(m.Rows, desired(m.Rows, unpaused), desired(m.Rows, there),
			equality.Spec)
		if len(paths) == 0 {
			return "", nil
		}
	}
	if old, err := decode(b.contents, ref); err == nil {
		if id, err := b.desiredID(m.Rows, old); err == nil && id == was.Desired {
			paths = equality.Differences(m.Rows, desired(m.Rows, old), now, equality.Spec)
		}
	}
	if len(paths) == 0 {
		return ref.String(), nil
	}
	return ref.String() + " (" + strings.Join(paths, ", ") + ")", nil
}

// mayRemoveUnitObject checks an object of a unit right before its removal, when it is not in the
// version that was handed over.
func (m *run) mayRemoveUnitObject(ctx context.Context, b *batch, ref object.Ref,
	live *unstructured.Unstructured) error {
	unit := b.Source[ref.String()].Unit
	if m.accepted[unit] {
		return nil
	}
	why, err := m.lateWrite(ctx, b, ref, live)
	if err == nil && why != "" {
		err = &LateWriteError{Writes: []string{why}}
	}
	return err
}

// keptError ends the removal of a shared object that differs from that of the target.
type keptError struct{ why string }

func (e *keptError) Error() string { return "it stays on the source: " + e.why }
