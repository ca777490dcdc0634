package restore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
)

// restoreShared creates what units share, and waits until classes are reconciled: the Cluster
// webhook waits seconds for one that is not.
func (r *run) restoreShared(ctx context.Context) error {
	if err := r.createWaves(ctx, r.Plan.Shared, false); err != nil {
		return fmt.Errorf("create shared objects: %w", err)
	}
	check := func(ctx context.Context, _ *catalog.StepHandle) error {
		if err := r.verify(ctx, r.Plan.Shared); err != nil {
			return fmt.Errorf("shared objects: %w", err)
		}
		return r.waitClasses(ctx)
	}
	if !creates(r.Plan.Shared) && !r.Hooks.LeaveSharedPaused {
		return check(ctx, nil)
	}
	// It is done once and journaled: a resume days later finds the shared objects in use on both
	// sides, and those of a move partly retired.
	return r.Journal.Do(ctx, catalog.Step{Phase: "verify-shared" + r.Hooks.StepSuffix}, check)
}

// waitClasses waits until the target's controllers have reconciled every ClusterClass that was
// created: its generation is observed, and no condition is worse than on the source.
func (r *run) waitClasses(ctx context.Context) error {
	var classes []Object
	for _, o := range r.Plan.Shared.Objects {
		if r.Rows.Row(o.GroupKind()).ReconciledFirst && o.Action == Create {
			classes = append(classes, o)
		}
	}
	return r.wait(ctx, classes, "ClusterClasses to be reconciled",
		func(o Object, source, live *unstructured.Unstructured) string {
			if observed, found, _ := unstructured.NestedInt64(live.Object, "status",
				"observedGeneration"); found && observed != live.GetGeneration() {
				return "its generation is not observed yet"
			}
			return degradedCondition(r.Rows.Row(o.GroupKind()), source, live)
		})
}

// FinishShared does for the shared objects of a plan what Run does at its end without
// Hooks.LeaveSharedPaused. The shared objects of a namespace stay paused while a unit there is not
// released, of this plan or of another one of the operation. It may run again.
func FinishShared(ctx context.Context, o RunOptions, released map[string]bool) error {
	r := newRun(ctx, o)
	if err := r.prepareRun(ctx); err != nil {
		return err
	}
	return r.finishShared(ctx, released)
}

// finishShared releases shared objects. When all units are released, it creates those that no pause
// stops.
func (r *run) finishShared(ctx context.Context, released map[string]bool) error {
	if r.Plan.Spec.NoRelease {
		return nil
	}
	waiting := r.waiting(released)
	if err := r.releaseShared(ctx, waiting); err != nil || len(waiting) > 0 {
		return err
	}
	return r.createWaves(ctx, r.Plan.Shared, true)
}

// waiting returns the namespaces with units that are not released. "" is among them when there are
// any, and stands for cluster-scoped objects.
func (r *run) waiting(released map[string]bool) map[string]bool {
	waiting := map[string]bool{}
	note := func(unit string, yes bool) {
		if ns, _, _ := strings.Cut(unit, "/"); !yes {
			waiting[ns], waiting[""] = true, true
		}
	}
	for _, u := range r.Plan.Units {
		note(u.Name, u.Blocked || released[u.Name])
	}
	for unit, yes := range released {
		note(unit, yes)
	}
	return waiting
}

// releaseShared releases ClusterResourceSets and ExtensionConfigs, after the Bindings of all
// released Clusters: without its Binding a ClusterResourceSet applies everything again. Those of a
// namespace with a unit that is not released wait for the resume.
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
		step := catalog.Step{Unit: ns + "/-", Phase: "release-shared" + r.Hooks.StepSuffix}
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

// anyPaused reports whether one of objects is still paused by us.
func (r *run) anyPaused(ctx context.Context, objects []Object) (bool, error) {
	var paused atomic.Bool
	err := r.each(objects, func(o Object) error {
		live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if err == nil && capi.PausedByUs(live.Object) {
			paused.Store(true)
		}
		return err
	})
	return paused.Load(), err
}
