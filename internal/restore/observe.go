package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// Observe does what a run does at its end: it watches the Machines of the released units of a plan
// for Tuning.Observe. It changes nothing. *IncompleteError when one is made or deleted.
func Observe(ctx context.Context, o RunOptions) error {
	r := newRun(ctx, o)
	if err := r.prepareRun(ctx); err != nil {
		return err
	}
	return r.observe(ctx)
}

// observe watches the Machines of all released units for a while: none may be made or deleted.
func (r *run) observe(ctx context.Context) error {
	if r.Tuning.Observe <= 0 || r.Plan.Spec.NoRelease {
		return nil
	}
	k, ok := kube.FindKind(r.Kinds, capi.Machine)
	if !ok {
		return nil
	}
	deadline := time.Now().Add(r.Tuning.Observe)
	for {
		if err := r.machinesOfAll(ctx, k); err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			r.report(ctx, "", object.Finding{Severity: object.Error, Code: object.CodeObserve,
				Message: err.Error(),
				Hint:    "check the controllers of the target at once: something replaces Machines"})
			return &IncompleteError{Failed: 1, First: err}
		}
		left := time.Until(deadline)
		if left <= 0 {
			r.reportSeldom(ctx)
			return nil
		}
		r.Journal.Progress("seconds observed", int64((r.Tuning.Observe-left)/time.Second),
			int64(r.Tuning.Observe/time.Second))
		if err := retry.Sleep(ctx, min(left, 2*time.Second)); err != nil {
			return err
		}
	}
}

// machinesOfAll compares the Machines of all units with those of the plan. It lists each namespace
// once.
func (r *run) machinesOfAll(ctx context.Context, k kube.Kind) error {
	listed := map[string]map[object.Ref]liveMachine{} // by namespace, then by ref
	for _, u := range r.Plan.Units {
		key, err := object.ParseKey(u.Name)
		if u.Blocked || r.accepted[u.Name] || err != nil {
			continue
		}
		// Of one that was at work before this operation the Machines may change, as in postFlightWait.
		if released, err := r.stepDone(ctx, releaseStep(u.Name)); err != nil {
			return err
		} else if !released {
			continue
		}
		if listed[key.Namespace] == nil {
			if listed[key.Namespace], err = liveMachines(ctx, r.Reader, k, key.Namespace, ""); err != nil {
				return err
			}
		}
		live := map[object.Ref]liveMachine{}
		for ref, m := range listed[key.Namespace] {
			if m.cluster == key.Name {
				live[ref] = m
			}
		}
		if err := r.compareListed(ctx, u, k, live); err != nil {
			return fmt.Errorf("%s: %w", u.Name, err)
		}
	}
	return nil
}
