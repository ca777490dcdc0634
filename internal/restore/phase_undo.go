package restore

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
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// UndoOptions are the inputs of Undo.
type UndoOptions struct {
	RunOptions // Plan, Reader, Writer, Kinds, Operation, Journal and Hooks.StepSuffix are needed
	Remover    Remover
	Lister     lister
	// Units to undo, by name. None of them may be released.
	Units []string
	// Shared: shared objects are removed as well, but for those in Needed. Namespaces always stay:
	// other objects in them are not of this operation.
	Shared bool
	Needed map[object.Ref]bool
	// StayPaused are those in Needed that are left paused.
	StayPaused map[object.Ref]bool
}

// Needed returns those of ours, shared copies on a target, that the other objects there need by
// now, or that are at work there and have a Gate, with what they need.
func Needed(g *graph.Graph, c Contents, rows *capi.Table, ours map[object.Ref]bool) (
	map[object.Ref]bool, error) {
	var others []*graph.Node
	for _, n := range g.Nodes {
		if !ours[n.Ref] {
			others = append(others, n)
			continue
		}
		if rows.Row(n.GroupKind()).Pause.Gate() == nil {
			continue
		}
		obj, err := marked(c, n.Ref)
		if err != nil {
			return nil, err
		}
		if !rows.StillPaused(obj) {
			others = append(others, n)
		}
	}
	needed := map[object.Ref]bool{}
	for _, n := range g.Closure(others) {
		needed[n.Ref] = ours[n.Ref]
	}
	return needed, nil
}

// Undo removes what a run created on the target: the objects of units, dependants first, and then
// the shared ones. Objects that were adopted, or that another operation created, stay. Only
// objects whose UID is journaled, or which carry this operation's mark, are touched. A unit whose
// release was begun is refused (*copyAtWorkError). Undo may run again after any crash.
func Undo(ctx context.Context, o UndoOptions) error {
	r := newRun(ctx, o.RunOptions)
	if err := r.prepareRun(ctx); err != nil {
		return err
	}
	var parts []Unit
	for _, u := range r.Plan.Units {
		if slices.Contains(o.Units, u.Name) && !u.Blocked {
			parts = append(parts, u)
		}
	}
	if o.Shared {
		parts = append(parts, r.Plan.Shared)
	}
	if err := r.findMarked(ctx, parts); err != nil {
		return err
	}
	if err := r.checkCascade(ctx, o.Lister, parts); err != nil {
		return err
	}
	for _, u := range parts {
		if err := r.undoUnit(ctx, o, u); err != nil {
			return fmt.Errorf("%s: %w", u.Name, err)
		}
	}
	return nil
}

// findMarked finds the objects of waves that a run began and did not end: their UIDs may not be
// journaled yet. After a take-over from another host a wave without a record may have been begun,
// too.
func (r *run) findMarked(ctx context.Context, parts []Unit) error {
	imported, err := r.Journal.Imported(ctx)
	if err != nil {
		return err
	}
	for _, u := range parts {
		for _, wave := range Waves(u.Objects) {
			state, err := r.Journal.State(ctx, r.createStep(u.Name, wave[0].Wave))
			if err != nil {
				return err
			}
			if state == "" && !imported || state == catalog.StepDone || state == catalog.StepUndone {
				continue
			}
			if err := r.each(wave, func(o Object) error { return r.findMark(ctx, o) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) findMark(ctx context.Context, o Object) error {
	if !r.isCreated(o) || r.uid(o.Ref) != "" {
		return nil
	}
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && r.isMarked(live) {
		r.setUID(o.Ref, string(live.GetUID()))
	}
	return err
}

// checkCascade finds objects on the target that the garbage collector would delete with what is
// removed.
func (r *run) checkCascade(ctx context.Context, on lister, parts []Unit) error {
	toDelete := map[string]object.Ref{}
	for _, u := range parts {
		for _, o := range u.Objects {
			if uid := r.uid(o.Ref); r.isCreated(o) && uid != "" {
				toDelete[uid] = o.Ref
			}
		}
	}
	if len(toDelete) == 0 {
		return nil
	}
	planned := map[object.Ref]bool{}
	for _, u := range r.Plan.parts() {
		for _, o := range u.Objects {
			planned[o.Ref] = planned[o.Ref] || !u.Blocked
		}
	}
	findings, err := Dependants(ctx, on, toDelete, func(ref, _ object.Ref) bool {
		return planned[ref] ||
			r.Rows.Row(ref.GroupKind()).BoundToCluster // its controller deletes it with its Cluster
	}, func(ref object.Ref) string { return r.unitOf[ref] })
	if err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f object.Finding) bool {
		return f.Severity >= object.Error
	}) {
		return &FindingsError{Findings: findings}
	}
	return nil
}

// leave leaves an object of ours on the target and removes our annotations from it. One that must
// not be released stays paused (*notReadyError), and so do one that the caller says (stay), a pool
// that awaits workload clusters and, in a move, an object with a Gate: the source has it again.
func (r *run) leave(ctx context.Context, o Object, stay bool) error {
	gated := r.Rows.Row(o.GroupKind()).Pause.Gate() != nil
	if gated && (r.Plan.Spec.SourceAtWork || r.Plan.FromMarks) {
		return r.kept(ctx, o, "it stays on the target as it is: it is at work there, or another object "+
			"names it", hintKeepPaused)
	}
	acts := r.checkCopies(ctx, o, r.ownUnits(nil))
	if acts != nil && !actsOnCopy(acts) {
		return acts
	}
	paused := false
	err := r.changeReady(ctx, o, gated, func(live *unstructured.Unstructured) bool {
		_, marked := live.GetAnnotations()[annotationOperation]
		capi.Unannotate(live.Object, annotationOperation)
		if paused = capi.PausedByUs(live.Object); stay || len(o.Awaits) > 0 || acts != nil {
			return marked
		}
		return r.Rows.Unpause(live.Object) || marked
	})
	if err == nil && acts != nil && paused {
		return r.kept(ctx, o, acts.Error(), "it is released by the operation that ends last there; "+
			"if none has it in its plan, end its pause by hand then")
	}
	if _, notOwned := errors.AsType[*notOwnedError](err); notOwned || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// hintKeepPaused is the hint about an object that two management clusters have.
const hintKeepPaused = "find out which management cluster has it, and leave it paused on the " +
	"other one"

// kept reports a shared object that Undo does not remove.
func (r *run) kept(ctx context.Context, o Object, why, hint string) error {
	return r.Journal.Emit(ctx, catalog.FindingEvent("", object.Finding{Severity: object.Warning,
		Code: object.CodeSharedKept, Ref: o.Ref, Message: why, Hint: hint}))
}

// checkStillPaused makes sure that the copy of a unit is still the paused one that this operation
// created: if it were removed while controllers work on it, they would replace its Machines. Of a
// Cluster that was there before, any pause will do: it stays.
func (r *run) checkStillPaused(ctx context.Context, u Unit) error {
	if !creates(u) {
		return nil // nothing of it is removed
	}
	for _, o := range u.Objects {
		if o.GroupKind() != capi.Cluster || o.Action == Skip {
			continue
		}
		live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		ours := r.checkOurs(o.Ref, live) == nil
		paused := r.isPausedCopy(live) || o.Action == Adopt && isPaused(live)
		if ours && !paused || !ours && r.hasCreated(u) {
			return &copyAtWorkError{u.Name}
		}
	}
	return nil
}

// isPausedCopy reports whether a Cluster of ours is still paused as it was created. One that is
// fenced, or that a move away from here has locked, is paused as well, but was at work here before.
// Without a journal the Cluster itself has to say all of that.
func (r *run) isPausedCopy(live *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused")
	_, fenced := live.GetAnnotations()[capi.AnnotationFenced]
	_, locked := r.lockHolder(live)
	return paused && capi.PausedByUs(live.Object) && !fenced && !locked &&
		(!r.Plan.FromMarks || copyProblem(live) == nil)
}

// hasCreated reports whether any object of a unit is known to be ours: journaled, or marked.
func (r *run) hasCreated(u Unit) bool {
	return slices.ContainsFunc(u.Objects, func(o Object) bool {
		return r.isCreated(o) && r.uid(o.Ref) != ""
	})
}

// Why a removal ends: somebody else's object of this name stays, and so does one with a Gate that
// was released, since its controllers may have used the machine of it for something else by now.
var (
	errNotOurs = errors.New("not ours")
	errAtWork  = errors.New("it stays on the target: it is at work there")
)

func (r *run) removeObject(ctx context.Context, w Remover, o Object) (gone bool, err error) {
	err = Remove(ctx, r.Reader, w, r.kinds[o.GroupKind()], o.Ref, metav1.ObjectMeta{},
		func(live *unstructured.Unstructured) error {
			switch {
			case r.checkOurs(o.Ref, live) != nil:
				return errNotOurs
			case o.GroupKind() == capi.Cluster && !r.isPausedCopy(live):
				return &copyAtWorkError{r.unitOf[o.Ref]}
			case r.Rows.Row(o.GroupKind()).Pause.Gate() != nil && !r.Rows.StillPaused(live.Object):
				return errAtWork
			}
			return r.Journal.Alive(ctx) // after the read, as in change
		})
	switch {
	case errors.Is(err, errNotOurs):
		return false, nil
	case errors.Is(err, errAtWork):
		return false, r.kept(ctx, o, errAtWork.Error(), hintKeepPaused)
	}
	return err == nil, err
}

// undoOwners removes the owner references of a unit from shared objects, which the garbage
// collector would delete together with their last owner. Owners that were on the target before stay
// there, and keep what they own.
func (r *run) undoOwners(ctx context.Context, unit string) error {
	return r.undoStep(ctx, r.ownersStep(unit), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		adopted := r.adopted(unit)
		var objects []Object
		for _, o := range r.Plan.Shared.Objects {
			if o.Action != Skip && slices.ContainsFunc(o.Owners,
				func(owner object.Ref) bool { return r.unitOf[owner] == unit }) {
				objects = append(objects, o)
			}
		}
		return r.each(objects, func(o Object) error {
			leaving := map[types.UID]bool{}
			for _, owner := range o.Owners {
				if uid := r.uid(owner); r.unitOf[owner] == unit && uid != "" && !adopted[owner] {
					leaving[types.UID(uid)] = true
				}
			}
			err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
				return RemoveOwnerRefs(live, leaving)
			})
			if _, replaced := errors.AsType[*notOwnedError](err); replaced {
				return r.checkFree(ctx, o, leaving, err)
			}
			if isLost(o, err) {
				return nil
			}
			return err
		})
	})
}

// checkFree returns the error of an object that somebody made again, if it has owners that are
// about to be removed, with which the garbage collector would delete it.
func (r *run) checkFree(ctx context.Context, o Object, leaving map[types.UID]bool,
	replaced error) error {
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && RemoveOwnerRefs(live, leaving):
		return replaced
	}
	return err
}

// adopted returns the objects of a unit that were on the target before the operation.
func (r *run) adopted(unit string) map[object.Ref]bool {
	adopted := map[object.Ref]bool{}
	for _, u := range r.Plan.Units {
		if u.Name != unit {
			continue
		}
		for _, o := range u.Objects {
			adopted[o.Ref] = o.Action == Adopt
		}
	}
	return adopted
}
