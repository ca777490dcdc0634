//go:build api

package snapshot_test

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
)

var zeroTime metav1.Time

// own gives an object another owner, none, or one that is gone, whose dependants the garbage
// collector deletes.
func (w *workload) own() error {
	k, u, err := w.pick(alive, plain...)
	if err != nil {
		return err
	}
	owners := u.GetOwnerReferences()
	switch n := w.rand.IntN(4); {
	case n == 0 && len(owners) > 0:
		u.SetOwnerReferences(nil)
	case n == 1 && len(owners) > 0:
		owners[0].UID = "00000000-0000-0000-0000-000000000000"
		u.SetOwnerReferences(owners)
	default:
		w.owned(u)
	}
	return w.update(k, u)
}

// relabel puts an object into a workload cluster, or out of it, or among those that are moved for
// their label alone.
func (w *workload) relabel() error {
	k, u, err := w.pick(alive, secret, configMap, widgetKind, gadgetKind)
	if err != nil {
		return err
	}
	_, cluster, err := w.pick(nil, capi.Cluster)
	if err != nil {
		return err
	}
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	label, value := "cluster.x-k8s.io/cluster-name", cluster.GetName()
	if w.rand.IntN(2) == 0 {
		label, value = "clusterctl.cluster.x-k8s.io/move", ""
	}
	if _, has := labels[label]; has {
		delete(labels, label)
	} else {
		labels[label] = value
	}
	u.SetLabels(labels)
	return w.update(k, u)
}

// name makes a Machine need another Secret: one that is there, left out so far or not, or one that
// is not.
func (w *workload) name() error {
	k, machine, err := w.pick(alive, capi.Machine)
	if err != nil {
		return err
	}
	name := "no-such-" + w.number()
	if w.rand.IntN(3) > 0 {
		_, u, err := w.pick(func(u *unstructured.Unstructured) bool {
			return u.GetNamespace() == machine.GetNamespace()
		}, secret)
		if err != nil {
			return err
		}
		name = u.GetName()
	}
	if err := unstructured.SetNestedField(machine.Object, name, "spec", "bootstrap",
		"dataSecretName"); err != nil {
		return err
	}
	return w.update(k, machine)
}

func (w *workload) pause() error {
	k, u, err := w.pick(alive, capi.Cluster)
	if err != nil {
		return err
	}
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	if err := unstructured.SetNestedField(u.Object, !paused, "spec", "paused"); err != nil {
		return err
	}
	return w.update(k, u)
}

// hold deletes an object that has a finalizer.
func (w *workload) hold() error {
	k, u, err := w.pick(alive, plain...)
	if err != nil {
		return err
	}
	u.SetFinalizers([]string{heldBy})
	if err := w.update(k, u); err != nil {
		return err
	}
	return w.m.Writer().Delete(w.ctx, k, u.GetNamespace(), u.GetName(), u.GetUID(), "")
}

func (w *workload) letGo() error {
	k, u, err := w.pick(isHeld, secret, configMap, widgetKind, gadgetKind)
	if err != nil {
		return err
	}
	u.SetFinalizers(nil)
	return w.update(k, u)
}

func (w *workload) status() error {
	k, u, err := w.pick(alive, capi.Machine, capi.Cluster, widgetKind)
	if err != nil {
		return err
	}
	if k.GroupKind == widgetKind {
		u.Object["status"] = map[string]any{"seen": w.number()}
	} else if err := unstructured.SetNestedSlice(u.Object, []any{map[string]any{
		"type": "Random", "status": "True", "reason": "R" + fmt.Sprint(w.made), "message": w.number(),
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}, "status", "conditions"); err != nil {
		return err
	}
	_, err = w.m.Writer().UpdateStatus(w.ctx, k, u)
	return err
}

// renew renews a lease of kube-system, as components do all the time: the history of a source is
// known by them.
func (w *workload) renew() error {
	ctx, now := w.ctx, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	u, err := w.m.Reader().Get(ctx, kube.LeaseKind, "kube-system", randomPrefix+"lease")
	if apierrors.IsNotFound(err) {
		u = newObject(kube.LeaseKind, "kube-system", randomPrefix+"lease")
		u.Object["spec"] = map[string]any{"holderIdentity": "test", "renewTime": now}
		_, err = w.m.Writer().Create(ctx, kube.LeaseKind, u)
		return err
	}
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(u.Object, now, "spec", "renewTime"); err != nil {
		return err
	}
	return w.update(kube.LeaseKind, u)
}

func (w *workload) namespace() error {
	_, err := w.m.Writer().PatchMetadata(w.ctx, kube.NamespaceKind, "",
		w.namespaces[w.rand.IntN(len(w.namespaces))],
		map[string]any{"labels": map[string]any{"random": w.number()}})
	return err
}
