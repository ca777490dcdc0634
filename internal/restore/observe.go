package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// Observe does what a run does at its end: it watches the Machines of all units of a plan for
// Tuning.Observe. It changes nothing. *IncompleteError when one is made or deleted.
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
	k, ok := r.kinds[capi.Machine]
	if !ok {
		return nil
	}
	deadline := time.Now().Add(r.Tuning.Observe)
	for {
		if err := r.compareMachines(ctx, k); err != nil {
			r.report(ctx, "", object.Finding{Severity: object.Error, Code: object.CodeObserve,
				Message: err.Error(),
				Hint:    "check the controllers of the target at once: something replaces Machines"})
			return &IncompleteError{Failed: 1, First: err}
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		r.Journal.Progress("seconds observed", int64((r.Tuning.Observe-left)/time.Second),
			int64(r.Tuning.Observe/time.Second))
		if err := retry.Sleep(ctx, min(left, 2*time.Second)); err != nil {
			return err
		}
	}
}

func (r *run) compareMachines(ctx context.Context, k kube.Kind) error {
	want := map[object.Ref]string{}
	clusters := map[object.Key]bool{}
	for _, u := range r.Plan.Units {
		if u.Blocked {
			continue
		}
		if key, err := object.ParseKey(u.Name); err == nil {
			clusters[key] = true
		}
		for _, o := range u.Objects {
			if o.GroupKind() == capi.Machine && o.Action != Skip {
				want[o.Ref] = r.uid(o.Ref)
			}
		}
	}
	var problem error
	_, err := r.Reader.List(ctx, k, kube.ListOptions{}, func(raw []byte) error {
		meta := gjson.GetBytes(raw, "metadata")
		ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: meta.Get("namespace").String(),
			Name: meta.Get("name").String()}
		switch uid, known := want[ref]; {
		case known && uid != meta.Get("uid").String():
			problem = fmt.Errorf("%s was deleted and created again", ref)
		case known && meta.Get("deletionTimestamp").Exists():
			problem = fmt.Errorf("%s is being deleted", ref)
		case !known && clusters[object.Key{Namespace: ref.Namespace, Name: gjson.GetBytes(raw,
			"spec.clusterName").String()}]:
			problem = fmt.Errorf("%s is new", ref)
		}
		delete(want, ref)
		return nil
	})
	if err != nil {
		return err
	}
	for ref := range want {
		return fmt.Errorf("%s is gone", ref)
	}
	return problem
}
