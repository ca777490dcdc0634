package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// checkShared verifies the shared objects that were created, and waits for the controllers that
// have to reconcile some of them: the Cluster webhook waits seconds for a class that is not
// reconciled. It calls begin when nothing else is missing. The check is one step, in which each
// object that passed is recorded.
func (r *run) checkShared(ctx context.Context, begin func()) error {
	objects := slices.DeleteFunc(early(r.Plan.Shared.Objects), func(o Object) bool {
		return r.shared.isVerified(o) || r.shared.failure(o.Ref) != nil
	})
	if !creates(r.Plan.Shared) && !r.Hooks.LeaveSharedPaused {
		return r.verifyShared(ctx, nil, objects, begin)
	}
	var failed error
	err := r.Journal.Do(ctx, r.verifySharedStep(), func(ctx context.Context,
		h *catalog.StepHandle) error {
		if err := r.verifyShared(ctx, h, objects, begin); err != nil {
			return err
		}
		if failed = r.shared.firstFailure(r.Plan.Shared.Objects); failed == nil {
			return nil // the step is done: that covers all objects
		}
		return cmp.Or(r.recordVerified(ctx, h), failed)
	})
	if failed != nil {
		return nil // it blocks its users
	}
	return err
}

func (r *run) verifyShared(ctx context.Context, h *catalog.StepHandle, objects []Object,
	begin func()) error {
	began := time.Now()
	var seen notes
	verify := r.verifier(ctx, &seen)
	left, err := r.pollShared(ctx, objects, patience, verify, func(o Object) error {
		r.shared.set(o.Ref, nil)
		return nil
	})
	if err != nil {
		return err
	}
	objects = nil
	for o, problem := range left {
		if _, waits := errors.AsType[*WaitError](problem); waits {
			r.shared.setPending(o.Ref)
			objects = append(objects, *o)
		} else {
			r.failShared(ctx, *o, problem)
		}
	}
	for _, f := range seen.findings("") {
		r.report(ctx, "", f)
	}
	if len(objects) == 0 {
		return nil
	}
	// Units begin before the step is done, so that each object is journaled before its users
	// begin.
	if err := r.recordVerified(ctx, h); err != nil {
		return err
	}
	begin()
	left, err = r.pollShared(ctx, objects, r.Tuning.Wait-time.Since(began), verify,
		func(o Object) error {
			err := recordReady(ctx, h, o.Ref)
			if err == nil {
				r.shared.set(o.Ref, nil)
			}
			return err
		})
	if err != nil {
		return err
	}
	for o, problem := range left {
		r.failShared(ctx, *o, problem)
	}
	return nil
}

// pollShared polls shared objects until all are ready, failed, or needed by no unit that is not
// blocked already: a class is never reconciled when one of its templates failed. It returns those
// that are not after limit, with their problems: a *WaitError when only controllers of the target
// are missing.
func (r *run) pollShared(ctx context.Context, objects []Object, limit time.Duration,
	verify problemFunc, ready func(o Object) error) (left map[*Object]error, err error) {
	var mu sync.Mutex
	check := func(o Object) error {
		problem, err := r.sharedProblem(ctx, o, verify)
		switch _, final := errors.AsType[*deletedError](problem); {
		case err != nil:
			return err
		case problem == nil:
			return ready(o)
		case final:
			r.failShared(ctx, o, problem)
			return nil
		}
		if _, waits := errors.AsType[*WaitError](problem); waits && r.shared.isInVain(o) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		left[&o] = problem
		return nil
	}
	_, err = retry.Poll(ctx, retry.Backoff{First: time.Second / 2, Longest: time.Second / 2}, limit,
		func(context.Context) (bool, error) {
			left = map[*Object]error{}
			err := r.eachWithin(r.polls, objects, check)
			objects = nil
			for o := range left {
				objects = append(objects, *o)
			}
			return len(left) == 0, err
		})
	return left, err
}

// sharedProblem returns why a shared object is not ready yet.
func (r *run) sharedProblem(ctx context.Context, o Object, verify problemFunc) (problem,
	err error) {
	why, err := r.problem(ctx, o, nil, nil, verify)
	switch {
	case kube.Unanswered(err):
		return nil, err
	case err != nil:
		return err, nil
	case why == whyGone || why == whyDeleting:
		return &deletedError{}, nil
	case why != "":
		return &differentError{Objects: 1, First: o.Ref.String() + ": " + why}, nil
	case !r.Rows.Row(o.GroupKind()).ReconciledFirst || o.Action != Create:
		return nil, nil
	}
	why, err = r.problem(ctx, o, nil, nil, r.notReconciled)
	if err != nil || why == "" {
		return nil, err
	}
	return &WaitError{Side: "target", What: "its controllers to reconcile it", Left: 1,
		First: o.Ref.String() + ": " + why}, nil
}

// notReconciled says why the target's controllers have not reconciled an object: its generation is
// not observed, or a condition is worse than on the source.
func (r *run) notReconciled(o Object, source, live *unstructured.Unstructured) string {
	if observed, found, _ := unstructured.NestedInt64(live.Object, "status",
		"observedGeneration"); found && observed != live.GetGeneration() {
		return "its generation is not observed yet"
	}
	return r.degradedCondition(o, source, live)
}

// waitDiscovered waits a moment for the ExtensionConfigs of a wave: a class that comes after them
// is reconciled at once then. One that is not discovered by then does not stop the other objects.
// The check of all shared objects waits for it, and blocks its users.
func (r *run) waitDiscovered(ctx context.Context, wave []Object) error {
	objects := slices.DeleteFunc(slices.Clone(wave), func(o Object) bool {
		row := r.Rows.Row(o.GroupKind())
		return !row.PerManagementCluster || !row.ReconciledFirst || o.Action != Create ||
			r.shared.isVerified(o) || r.shared.failure(o.Ref) != nil
	})
	if len(objects) == 0 {
		return nil
	}
	_, err := retry.Poll(ctx, retry.Backoff{First: time.Second / 2, Longest: time.Second / 2},
		min(patience, r.Tuning.Wait), func(ctx context.Context) (bool, error) {
			left, _, err := r.problems(ctx, objects, nil, r.notReconciled)
			return len(left) == 0, err
		})
	if ctx.Err() != nil || kube.Unanswered(err) {
		return err
	}
	return nil
}
