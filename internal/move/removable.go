package move

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// keepsCopyError says that the target refuses to remove an object of a pre-copy. The copy goes
// before a unit is given back, so that one which fails in its pause would stay paused.
type keepsCopyError struct {
	object.Ref
	Words string // of what refuses it
}

func (e *keepsCopyError) Error() string {
	return "it is not paused, since it could not be given back: the target refuses to remove the " +
		"copy of " + e.String() + " (" + e.Words + ")"
}

// Hint says what the operator can do.
func (e *keepsCopyError) Hint() string {
	return "change what refuses it on the target, or exempt the credentials of the move from it as " +
		"long as it runs; then resume the operation"
}

// checkRemovable asks the target, in dry-runs that store nothing, whether it lets remove again what
// the pre-copy of a unit has created: one object of each kind, once in a run for each namespace. It
// returns a *keepsCopyError when it does not, and the error of the removal of a pre-copy that did
// not come to its end and is left there. The finding retire-refused, overridden, answers for the
// target as well.
func (m *run) checkRemovable(ctx context.Context, unit string) error {
	if m.Plan.Spec.Force.Has(object.CodeRetireRefused) {
		return nil
	}
	m.mu.Lock()
	copied := m.pre.uids[unit] != nil
	m.mu.Unlock()
	if !copied {
		if err := m.undoPreCopy(ctx, unit); err != nil {
			return fmt.Errorf("remove what was copied of it before its pause: %w", err)
		}
		return nil
	}
	g, ctx := task.WithContext(ctx)
	g.SetLimit(dryRuns)
	for ref, uid := range m.notAskedYet(unit) {
		k, ok := kube.FindKind(m.Target.Kinds, ref.GroupKind())
		if !ok {
			continue
		}
		g.Go(func() error { return m.tryRemoval(ctx, k, ref, uid) })
	}
	return g.Wait()
}

// kindIn is the kind of an object, and its namespace.
func kindIn(ref object.Ref) object.Ref {
	ref.Name = ""
	return ref
}

// notAskedYet returns an object of each kind of the pre-copy of a unit that checkRemovable has not
// asked about in its namespace.
func (m *run) notAskedYet(unit string) map[object.Ref]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := map[object.Ref]object.Ref{}
	for ref := range m.pre.uids[unit] {
		first, is := of[kindIn(ref)]
		if !m.pre.removable[kindIn(ref)] && (!is || object.CompareRefs(ref, first) < 0) {
			of[kindIn(ref)] = ref
		}
	}
	asked := map[object.Ref]string{}
	for _, ref := range of {
		asked[ref] = m.pre.uids[unit][ref]
	}
	return asked
}

// tryRemoval is checkRemovable for one object. One that is gone is asked about with the next unit.
func (m *run) tryRemoval(ctx context.Context, k kube.Kind, ref object.Ref, uid string) error {
	live, err := on(ctx, m.Target, ref)
	if err != nil || live == nil || string(live.GetUID()) != uid {
		return err
	}
	r := &dryRemoval{prober: m.Target.Prober, node: &graph.Node{Ref: ref, UID: uid}, patient: true}
	was := metav1.ObjectMeta{UID: types.UID(uid), Finalizers: []string{"any"}}
	if k.Group == "" { // it has no finalizers, and is deleted without a patch
		was.ResourceVersion, was.Finalizers = live.GetResourceVersion(), live.GetFinalizers()
	}
	err = restore.Remove(ctx, m.Target.Reader, r, k, ref, was,
		func(*unstructured.Unstructured) error { return nil })
	if err != nil {
		return fmt.Errorf("ask whether the copy of %s can be removed: %w", ref, err)
	}
	if ofProvider.MatchString(r.del) {
		r.del = "" // it may allow that once the object has the annotation delete-for-move
	}
	if words := cmp.Or(r.patch, r.del); words != "" {
		return &keepsCopyError{ref, words}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pre.removable[kindIn(ref)] = true
	return nil
}
