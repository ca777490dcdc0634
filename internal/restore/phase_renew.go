package restore

import (
	"context"
	"encoding/base64"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

func renewStep(unit string) catalog.Step {
	return catalog.Step{Unit: unit, Phase: "renew-kubeconfig"}
}

// renewKubeconfig renews the kubeconfig of a unit from the CA of the snapshot, when it has expired.
// It comes before the comparison with the workload cluster, which needs it, and before the release,
// after which the controllers of the control plane renew it, too. What is on the target decides: a
// run that died may have renewed it, and a user may have replaced it.
func (r *run) renewKubeconfig(ctx context.Context, u Unit) error {
	w, err := r.readUnit(u)
	if err != nil || w.kubeconfig == nil || w.otherCA() || !w.kubeconfig.IsExpired(time.Now()) {
		return err
	}
	i := slices.IndexFunc(u.Objects, func(o Object) bool {
		return o.Ref == w.kubeconfigRef() && o.Action != Skip
	})
	if i < 0 {
		return nil
	}
	return r.Journal.Do(ctx, renewStep(u.Name), func(ctx context.Context,
		_ *catalog.StepHandle) error {
		problem := ""
		err := r.change(ctx, u.Objects[i], func(live *unstructured.Unstructured) (changed bool) {
			changed, problem = r.renewSecret(w, live)
			return changed
		})
		if err == nil && problem != "" {
			r.report(ctx, u.Name, object.Finding{Severity: object.Warning,
				Code: object.CodeKubeconfigExpired, Ref: w.kubeconfigRef(),
				Message: "it has expired and cannot be renewed here: " + problem + "; renew it by hand, " +
					"unless the provider of its control plane does"})
		}
		return err
	})
}

// renewSecret puts a renewed kubeconfig into the Secret of the target. problem says why it cannot.
func (r *run) renewSecret(w *recorded, live *unstructured.Unstructured) (changed bool,
	problem string) {
	old := kubeconfigOf(live)
	switch {
	case old == nil:
		return false, "it cannot be used"
	case !old.IsExpired(time.Now()):
		return false, ""
	}
	raw, err := live.MarshalJSON()
	if err != nil {
		return false, "its Secret cannot be read"
	}
	from := w.renewal
	from.generated = isGenerated(r.Rows, raw, w.cluster.Name)
	text, problem := from.renew(w.cluster.Name, old, from.algorithm)
	if problem != "" {
		return false, problem
	}
	value := base64.StdEncoding.EncodeToString(text)
	if err := unstructured.SetNestedField(live.Object, value, "data", "value"); err != nil {
		return false, "its Secret has no data"
	}
	return true, ""
}

// readUnit reads what the snapshot has of the workload cluster of a unit.
func (r *run) readUnit(u Unit) (*recorded, error) {
	var refs []object.Ref
	for _, o := range u.Objects {
		if o.Action != Skip {
			refs = append(refs, o.Ref)
		}
	}
	return readRecorded(r.Rows, r.Contents, u.Name, refs)
}

// useRenewed replaces an expired kubeconfig of the snapshot by that of the target, where that is
// renewed.
func (r *run) useRenewed(ctx context.Context, w *recorded) error {
	if w.kubeconfig == nil || !w.kubeconfig.IsExpired(time.Now()) {
		return nil
	}
	live, err := liveKubeconfig(ctx, r.Reader, w.kubeconfigRef())
	if live != nil && live.Renews(w.kubeconfig, time.Now()) {
		w.kubeconfig = live
	}
	return err
}
