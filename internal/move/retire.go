package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

func retireStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "retire"} }

// retireUnit deletes one unit, dependants first and the Cluster last, since it carries the lock.
// Only its ClusterResourceSetBinding comes after it: the ClusterResourceSet controller ignores the
// pause of a Cluster, and would create the Binding again and apply its resources once more. owned
// are objects that units of the round own on the source now.
func (m *run) retireUnit(ctx context.Context, b *batch, u restore.Unit,
	owned map[object.Ref]bool) error {
	return m.Journal.Do(ctx, retireStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		ref, err := clusterRef(u.Name)
		if err != nil {
			return err
		}
		// A Cluster that is gone was deleted by a run that died before it recorded the end of the
		// step.
		if err := m.holdLock(ctx, u.Name, true); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := m.stillMoved(ctx, u); err != nil {
			return err
		}
		if err := recordKept(ctx, h, b, u); err != nil {
			return err
		}
		if err := m.removeOwnerRefs(ctx, b, u, owned); err != nil {
			return err
		}
		var dependants, cluster, bindings []restore.Object
		for _, o := range u.Objects {
			switch {
			case o.Ref == ref:
				cluster = append(cluster, o)
			case m.Rows.Row(o.GroupKind()).BoundToCluster:
				bindings = append(bindings, o)
			default:
				dependants = append(dependants, o)
			}
		}
		for _, objects := range [][]restore.Object{dependants, cluster, bindings} {
			if err := m.removeAll(ctx, b, objects); err != nil {
				return err
			}
		}
		return h.SetUnit(catalog.UnitRetired)
	})
}

// removeOwnerRefs removes the owner references to a unit from shared objects, and from those of the
// unit that stay. Otherwise the garbage collector would delete such an object with its last owner,
// although others need it. Somebody may have made the unit an owner since the snapshot (owned).
func (m *run) removeOwnerRefs(ctx context.Context, b *batch, u restore.Unit,
	owned map[object.Ref]bool) error {
	leaving := map[types.UID]bool{}
	in := map[object.Ref]bool{}
	var stay []restore.Object
	for _, o := range u.Objects {
		if o.Action == restore.Skip {
			stay = append(stay, o)
			continue
		}
		in[o.Ref] = true
		leaving[types.UID(b.Source[o.Ref.String()].UID)] = true
	}
	for _, o := range b.Copy.Shared.Objects {
		if o.Action != restore.Skip {
			stay = append(stay, o)
		}
	}
	for _, o := range stay {
		if !owned[o.Ref] && (o.Action == restore.Skip || !slices.ContainsFunc(o.Owners,
			func(r object.Ref) bool { return in[r] })) {
			continue
		}
		err := m.pauser.Change(ctx, o.Ref, func(live *unstructured.Unstructured) (bool, error) {
			return restore.RemoveOwnerRefs(live, leaving), nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// errOtherObject ends a removal: the object of this name is not the one that was copied.
var errOtherObject = errors.New("another object has this name")

// removeAll removes objects from the source, those of the last wave first. The owners of a shared
// object that stays stay as well: the garbage collector would delete it with them.
func (m *run) removeAll(ctx context.Context, b *batch, objects []restore.Object) error {
	var owners ownersOfKept
	for _, wave := range slices.Backward(restore.Waves(objects)) {
		var g task.Group
		g.SetLimit(8)
		for _, o := range wave {
			was, known := b.Source[o.Ref.String()]
			k, served := kube.FindKind(m.Source.Kinds, o.GroupKind())
			if !known || o.Action == restore.Skip ||
				o.GroupKind() == kube.NamespaceKind.GroupKind {
				continue
			}
			g.Go(func() error {
				if !served {
					return m.isServed(ctx, o.Ref)
				}
				if kept, owns := owners.of(was.UID); owns {
					return errors.Join(m.addKept(ctx, b, o, &owners),
						m.keptShared(ctx, o.Ref, "it stays on the source: it owns "+kept.String()+
							", which stays; what else it owned there may be on the target alone", hintCompare))
				}
				return m.remove(ctx, b, k, o, was, &owners)
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// isServed returns a *newKindError for an object of a kind that the source serves by now: a resume
// removes it. What it does not serve is gone.
func (m *run) isServed(ctx context.Context, ref object.Ref) error {
	kinds, err := m.Source.Reader.Kinds(ctx)
	if err != nil {
		return err
	}
	if _, served := kube.FindKind(kinds, ref.GroupKind()); served {
		return &newKindError{ref}
	}
	return nil
}

// remove removes one object from the source, in the version that was copied, or after mayRemove has
// compared it. A shared object or a Binding that was created again is left alone: other units need
// it. So is a shared object that differs from that of the target. Of shared objects that are left,
// it adds the owners.
func (m *run) remove(ctx context.Context, b *batch, k kube.Kind, o restore.Object, was objectState,
	owners *ownersOfKept) error {
	// The host may have been suspended, and another one gone on with the operation meanwhile.
	if err := m.Journal.Alive(ctx); err != nil {
		return err
	}
	err := restore.Remove(ctx, m.Source.Reader, m.Source.Writer, k, o.Ref, knownOf(o, was),
		func(live *unstructured.Unstructured) error { return m.mayRemove(ctx, b, o, live) })
	kept, differs := errors.AsType[*keptError](err)
	switch {
	case differs:
		return errors.Join(m.addKept(ctx, b, o, owners),
			m.keptShared(ctx, o.Ref, kept.Error(), hintCompare))
	case errors.Is(err, errOtherObject) && was.Unit == "":
		return m.addKept(ctx, b, o, owners)
	case errors.Is(err, errOtherObject) && m.Rows.Row(o.GroupKind()).BoundToCluster:
		return nil
	case errors.Is(err, errOtherObject):
		return &ChangedError{Why: o.Ref.String() + " was deleted and created again"}
	case err != nil:
		return fmt.Errorf("%s: %w", o.Ref, err)
	}
	return nil
}

// knownOf returns what is known of an object for its removal; nothing when it has to be read first:
// a Cluster has the lock, and of Secrets and ConfigMaps those are always compared that are shared,
// or may have finalizers.
func knownOf(o restore.Object, was objectState) (known metav1.ObjectMeta) {
	if o.GroupKind() == capi.Cluster || o.Group == "" && (was.Unit == "" || !was.NoFinalizers) {
		return known
	}
	known.UID = types.UID(was.UID)
	if was.Desired != "" || was.Unit == "" {
		known.ResourceVersion = was.ResourceVersion
	}
	if !was.NoFinalizers {
		known.Finalizers = []string{"which are not known"}
	}
	return known
}

// mayRemove checks an object right before its removal: it must be the one that was copied, nobody
// may have written what the target does not have, and a Cluster must be paused and carry the lock.
// For any other object of a unit, the Cluster of the unit must carry the lock, unless it is gone.
func (m *run) mayRemove(ctx context.Context, b *batch, o restore.Object,
	live *unstructured.Unstructured) error {
	was := b.Source[o.Ref.String()]
	if string(live.GetUID()) != was.UID {
		return errOtherObject
	}
	if was.Unit == "" {
		why, err := m.differsFrom(ctx, b, o.Ref, live)
		if err == nil && why != "" {
			err = &keptError{why: why}
		}
		return err
	}
	if o.GroupKind() == capi.Cluster {
		if paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused"); !paused {
			return &ChangedError{Why: "somebody ended the pause of " + o.Ref.String()}
		}
		if err := m.mayWrite(o.Namespace+"/"+o.Name, live); err != nil {
			return err
		}
	} else if err := m.checkLock(ctx, was.Unit); err != nil {
		return err
	}
	return m.mayRemoveUnitObject(ctx, b, o.Ref, live)
}
