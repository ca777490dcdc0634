package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// WaitError says what the target's controllers did not do in time.
type WaitError struct {
	What  string
	Left  int
	First string
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("wait for %s: %d objects are left, the first: %s", e.What, e.Left, e.First)
}

// Hint tells the operator what to do.
func (e *WaitError) Hint() string {
	return "look at the logs of the target's controllers, then resume the operation"
}

// wait looks at objects again and again until problem finds none with any of them. A missing object
// is a problem too.
func (r *run) wait(ctx context.Context, objects []Object, what string,
	problem func(o Object, source, live *unstructured.Unstructured) string) error {
	deadline := time.Now().Add(r.Tuning.Wait)
	pause := 100 * time.Millisecond
	for {
		left, first, err := r.look(ctx, objects, problem)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return &WaitError{What: what, Left: len(left), First: first}
		}
		if err := kube.Sleep(ctx, pause); err != nil {
			return err
		}
		objects, pause = left, min(pause*3/2, 2*time.Second)
	}
}

// look returns the objects that have a problem, and the text of one of them.
func (r *run) look(ctx context.Context, objects []Object, problem func(o Object, source,
	live *unstructured.Unstructured) string) (left []Object, first string, err error) {
	err = r.each(objects, func(o Object) error {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		var why string
		switch {
		case apierrors.IsNotFound(err):
			why = "it is gone"
		case err != nil:
			return err
		case string(live.GetUID()) != r.uid(o.Ref):
			why = "it was deleted and made anew by somebody else"
		case live.GetDeletionTimestamp() != nil:
			why = "it is being deleted"
		default:
			why = problem(o, source, live)
		}
		if why != "" {
			r.mu.Lock()
			defer r.mu.Unlock()
			left = append(left, o)
			if first == "" {
				first = o.Ref.String() + ": " + why
			}
		}
		return nil
	})
	return left, first, err
}

// verify compares the copy with the snapshot, paused as it is, with every owner reference on a live
// UID. A controller of the target may be in the middle of its first touch, so a difference has to
// last for a while to count.
func (r *run) verify(ctx context.Context, u Unit) error {
	const patience = 15 * time.Second
	deadline := time.Now().Add(patience)
	objects := early(u.Objects)
	var fields fieldDifferences
	problem := func(o Object, source, live *unstructured.Unstructured) string {
		why := r.difference(o, source, live)
		if why == "" {
			fields.add(o.Ref, r.fieldsDiffer(o, source, live))
		}
		return why
	}
	for {
		left, first, err := r.look(ctx, objects, problem)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			if f, any := fields.finding(u.Name); any {
				r.report(ctx, u.Name, f)
			}
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("verify: %d objects on the target are not equal to the snapshot, the first: %s", len(left), first)
		}
		if err := kube.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		objects = left
	}
}

func early(objects []Object) []Object {
	var out []Object
	for _, o := range objects {
		if !o.Late && o.Action != Skip {
			out = append(out, o)
		}
	}
	return out
}

// wantedPaused returns what live should be while it is paused; nil when nothing is known of that:
// its controller has been at work.
func (r *run) wantedPaused(o Object, source, live *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	if o.Action == Adopt && (!capi.PausedByUs(live.Object) || o.GroupKind() == kube.NamespaceKind.GroupKind) {
		return nil, nil // pre-flight found it equal
	}
	want := source.DeepCopy()
	switch row := r.Rows.Row(o.GroupKind()); {
	case capi.PausedByUs(live.Object):
		r.Rows.Pause(want.Object)
	case row.Pause.Order() > 0 && row.Pause.AtWork(false):
		return nil, nil // released by a run that died then
	}
	shared := r.unitOf[o.Ref] == "" // its owners may come later
	if err := r.setOwners(want, o, shared); err != nil {
		return nil, err
	}
	want.SetManagedFields(movedFields(source, want))
	return want, nil
}

// difference compares a live object with what it should be while it is paused. managedFields are
// not among it: see fieldsDiffer.
func (r *run) difference(o Object, source, live *unstructured.Unstructured) string {
	want, err := r.wantedPaused(o, source, live)
	if err != nil {
		return err.Error()
	}
	if want == nil {
		return ""
	}
	if why := wrongOwner(want, live); why != "" {
		return why
	}
	if r.unitOf[o.Ref] == "" {
		live = live.DeepCopy()
		live.SetOwnerReferences(want.GetOwnerReferences())
		if len(want.GetOwnerReferences()) == 0 {
			unstructured.RemoveNestedField(live.Object, fieldMetadata, fieldOwnerReferences)
		}
	}
	if o.GroupKind() == kube.NamespaceKind.GroupKind {
		if missing := namespaceDifferences(r.Rows, want, live); len(missing) > 0 {
			return "it lacks " + strings.Join(missing, ", ")
		}
		return ""
	}
	aspect := equality.Values
	if !capi.PausedByUs(live.Object) && r.Rows.Row(o.GroupKind()).Pause.AtWork(false) {
		aspect = equality.Spec // its controller is at work
	}
	if paths := equality.Differences(want.Object, live.Object, aspect); len(paths) > 0 {
		return "it differs in " + strings.Join(paths, ", ")
	}
	return ""
}

// waitAcknowledged waits until the target's controllers have seen every object of the unit and
// acknowledge its pause. A controller that lags behind its watch would, once the pause ends, act on
// the Machines that it can see: too few.
func (r *run) waitAcknowledged(ctx context.Context, u Unit) error {
	var publish []Object
	for _, o := range early(u.Objects) {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		if pausedCondition(source) != nil {
			publish = append(publish, o)
		}
	}
	err := r.wait(ctx, publish, "the target's controllers to acknowledge the pause",
		func(_ Object, source, live *unstructured.Unstructured) string {
			return NotAcknowledged(live, "True")
		})
	if err != nil {
		return err
	}
	// for controllers that publish nothing, and for the caches of those that do
	return kube.Sleep(ctx, r.Tuning.Settle)
}

// standsStill tells whether the release will end a pause that a restore set on the unit's Cluster.
func (r *run) standsStill(ctx context.Context, u Unit) (bool, error) {
	for _, o := range early(u.Objects) {
		if o.GroupKind() != capi.Cluster {
			continue
		}
		live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if err != nil {
			return false, fmt.Errorf("%s: %w", o.Ref, err)
		}
		return capi.PausedByUs(live.Object), nil
	}
	return false, nil
}

// PublishesPause tells whether an object's controller says by a condition whether it is paused.
func PublishesPause(u *unstructured.Unstructured) bool { return pausedCondition(u) != nil }

// TopologyNotPaused says why the topology controller, which heeds the pause of a Cluster with a
// class by itself, has not acknowledged it; "" when it has, or when there is no class.
func TopologyNotPaused(cluster *unstructured.Unstructured) string {
	if _, classy, _ := unstructured.NestedMap(cluster.Object, "spec", "topology"); !classy {
		return ""
	}
	c := condition(sliceOf(cluster.Object, "status", "conditions"), "TopologyReconciled")
	if c == nil || c["reason"] == conditionPaused {
		return ""
	}
	return fmt.Sprintf("TopologyReconciled has reason %v", c["reason"])
}

func pausedCondition(u *unstructured.Unstructured) map[string]any {
	for _, path := range [][]string{{"status", "conditions"}, {"status", "v1beta2", "conditions"}} {
		if c := condition(sliceOf(u.Object, path...), conditionPaused); c != nil {
			return c
		}
	}
	return nil
}

// NotAcknowledged says why the Paused condition of live does not show status at its current
// generation; "" when it does.
func NotAcknowledged(live *unstructured.Unstructured, status string) string {
	c := pausedCondition(live)
	if c == nil {
		return "it has no Paused condition yet"
	}
	if c["status"] != status {
		return fmt.Sprintf("Paused is %v", c["status"])
	}
	if observed, ok := c["observedGeneration"].(int64); ok && observed < live.GetGeneration() {
		return fmt.Sprintf("Paused was observed at generation %d of %d", observed, live.GetGeneration())
	}
	return ""
}

func releaseStep(unit string) catalog.Step { return catalog.Step{Unit: unit, Phase: "release"} }

// release hands the unit to the target's controllers: one write to its Cluster. Of a Cluster that
// was paused on the source it only removes our notes.
func (r *run) release(ctx context.Context, u Unit) error {
	return r.Journal.Do(ctx, releaseStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		for _, o := range r.switched(u) { // the Cluster is the last
			if err := r.releaseObject(ctx, o); err != nil {
				return fmt.Errorf("release %s: %w", o.Ref, err)
			}
		}
		return h.SetUnit(catalog.UnitReleased)
	})
}

// switched returns the objects of a unit that have a switch of their own, in the order in which a
// release unsets them.
func (r *run) switched(u Unit) []Object {
	order := func(o Object) int { return r.Rows.Row(o.GroupKind()).Pause.Order() }
	var out []Object
	for _, o := range u.Objects {
		if o.Action != Skip && order(o) > 0 {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b Object) int { return order(a) - order(b) })
	return out
}

// HeldError says that another operation is at work on an object.
type HeldError struct{ Operation string }

func (e *HeldError) Error() string { return "operation " + e.Operation + " is at work on it" }

// Hint tells the operator what to do.
func (e *HeldError) Hint() string {
	return "mgmtctl operation show " + e.Operation + "; bring that operation to its end first"
}

func (r *run) releaseObject(ctx context.Context, o Object) error {
	return r.change(ctx, o, func(live *unstructured.Unstructured) bool {
		return r.Rows.Unpause(live.Object)
	})
}

// change writes what fn does to an object of ours; nothing when that is nothing.
func (r *run) change(ctx context.Context, o Object, fn func(live *unstructured.Unstructured) (
	changed bool)) error {
	k := r.kinds[o.GroupKind()]
	_, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if err != nil {
			return nil, err
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, &GoneError{}
		}
		if err := r.checkOurs(o.Ref, live); err != nil {
			return nil, err
		}
		if holder, _, locked := strings.Cut(live.GetAnnotations()[annotationOperation], "/"); locked &&
			holder != r.Operation {
			return nil, &HeldError{holder} // a move away from here
		}
		if !fn(live) {
			return live, nil
		}
		return r.Writer.Update(ctx, k, live)
	})
	return err
}

// brake takes a release back: the unit stands still again, and a resume releases it anew. It is
// what a move does with a unit that is not well after its hand-over, when there is no way back.
func (r *run) brake(ctx context.Context, u Unit) error {
	return r.Journal.Undo(ctx, releaseStep(u.Name), func(ctx context.Context,
		h *catalog.StepHandle) error {
		for _, o := range slices.Backward(r.switched(u)) {
			if err := r.change(ctx, o, func(live *unstructured.Unstructured) bool {
				return r.Rows.Pause(live.Object)
			}); err != nil {
				return fmt.Errorf("pause %s again: %w", o.Ref, err)
			}
		}
		return h.SetUnit(catalog.UnitHandedOver)
	})
}

// releaseShared releases ClusterResourceSets and ExtensionConfigs, after the Bindings of all
// released Clusters: without its Binding a ClusterResourceSet applies everything anew. Where a unit
// is not released, those of its namespace wait for the resume.
func (r *run) releaseShared(ctx context.Context, waiting map[string]bool) error {
	byNamespace := map[string][]Object{}
	for _, o := range r.Plan.Shared.Objects {
		if o.Action != Skip && r.Rows.Row(o.GroupKind()).Pause.Order() > 0 &&
			!waiting[o.Namespace] {
			byNamespace[o.Namespace] = append(byNamespace[o.Namespace], o)
		}
	}
	for ns, objects := range byNamespace {
		if paused, err := r.anyPaused(ctx, objects); err != nil || !paused {
			if err != nil {
				return err
			}
			continue
		}
		step := catalog.Step{Unit: ns + "/-", Phase: "release-shared" + r.Part}
		if ns == "" {
			step.Unit = ""
		}
		err := r.Journal.Do(ctx, step, func(ctx context.Context, _ *catalog.StepHandle) error {
			return r.each(objects, func(o Object) error { return r.releaseObject(ctx, o) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// anyPaused tells whether one of objects is still paused by us.
func (r *run) anyPaused(ctx context.Context, objects []Object) (bool, error) {
	var paused atomic.Bool
	err := r.each(objects, func(o Object) error {
		live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if err == nil && capi.PausedByUs(live.Object) {
			paused.Store(true)
		}
		return err
	})
	return paused.Load(), err
}
