package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// complete does by hand what a move has left to do, so that the next one starts from an equal fleet
// and its target has no traces of earlier ones. clusterctl copies no labels of Namespaces and no
// Secrets without an owner, and it leaves a ClusterClass of another namespace paused on the source.
// mgmtctl leaves what nothing that moves needs, and an admission policy with a list of what has
// moved, which may not be created there again.
func (m *liveMoves) complete(ctx context.Context, from, to string) error {
	source := m.clients[from]
	left, err := observe.Inventory(ctx, m.lab.Mgmt(from).Kubeconfig(), m.everywhere...)
	if err != nil {
		return err
	}
	if machines := observe.Machines(left); len(machines) > 0 {
		return fmt.Errorf("%s still has Machine %s/%s", from, machines[0].Namespace, machines[0].Name)
	}
	for _, ref := range left.Refs() {
		if err := carry(ctx, source, m.clients[to], left[ref]); err != nil {
			return fmt.Errorf("copy %s: %w", ref, err)
		}
	}
	// The list of the admission policy, which stays: once a kube-apiserver (v1.36) has lost its last
	// policy with parameters, it follows no new one until it starts again.
	remove := []*unstructured.Unstructured{
		observe.Named("v1", "ConfigMap", "kube-system", "mgmtd-moved")}
	for _, namespace := range m.everywhere {
		remove = append(remove, observe.Named("v1", "Namespace", "", namespace))
	}
	for _, o := range remove {
		if err := client.IgnoreNotFound(source.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	_, err = observe.Await(ctx, m.lab.Mgmt(from).Kubeconfig(), func(left observe.Objects) []string {
		var names []string
		for _, ref := range left.Refs() {
			names = append(names, ref.String()+" is still there")
		}
		return names
	}, m.everywhere...)
	return err
}

// carry copies an object that the target does not have, and the labels of a Namespace.
func carry(ctx context.Context, source, target client.Client, o *unstructured.Unstructured) error {
	live := observe.Named(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
	err := target.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case err == nil && o.GetKind() == "Namespace":
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": o.GetLabels()}})
		if err != nil {
			return fmt.Errorf("marshal labels: %w", err)
		}
		return target.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch))
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return err
	case len(o.GetOwnerReferences()) > 0:
		return errors.New("the move has left it out, and it has an owner")
	}
	// The inventory has hashes in place of the values of Secrets.
	if err := source.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
		return err
	}
	c := observe.Named(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
	c.SetLabels(live.GetLabels())
	for _, field := range []string{"spec", "data", "type"} {
		if value, ok := live.Object[field]; ok {
			c.Object[field] = value
		}
	}
	return target.Create(ctx, c)
}
