package fleet

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const clusterNameLabel = "cluster.x-k8s.io/cluster-name"

// WaitAvailable returns when every workload cluster is Available, all its
// Machines are Ready, and its control planes and MachineDeployments have all
// replicas. When ctx ends first, the error says what was missing.
func WaitAvailable(ctx context.Context, c client.Reader, keys ...types.NamespacedName) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, key := range keys {
		group.Go(func() error {
			return wait(ctx, "workload cluster "+key.String(),
				func(ctx context.Context) error { return Available(ctx, c, key) })
		})
	}
	return group.Wait()
}

// Available returns nil when the workload cluster is as WaitAvailable wants
// it, otherwise an error that says what is missing.
func Available(ctx context.Context, c client.Reader, key types.NamespacedName) error {
	cluster, err := get(ctx, c, coreAPI, "Cluster", key)
	if err != nil {
		return err
	}
	if err := hasCondition(cluster, "Available"); err != nil {
		return err
	}
	for _, kind := range []struct{ api, kind string }{
		{controlPlaneAPI, "KubeadmControlPlane"}, {coreAPI, "MachineDeployment"}, {coreAPI, "Machine"},
	} {
		objects, err := ofWorkload(ctx, c, kind.api, kind.kind, key)
		if err != nil {
			return err
		}
		if len(objects) == 0 && kind.kind != "MachineDeployment" {
			return fmt.Errorf("%s has no %s", key, kind.kind)
		}
		for _, o := range objects {
			if err := ready(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitShape waits until the workload cluster is Available with every Machine of its shape.
func waitShape(ctx context.Context, c client.Reader, shape Shape, key types.NamespacedName) error {
	return wait(ctx, "workload cluster "+key.String(), func(ctx context.Context) error {
		machines, err := ofWorkload(ctx, c, coreAPI, "Machine", key)
		if err != nil {
			return err
		}
		if len(machines) != shape.Machines() {
			return fmt.Errorf("%s has %d of %d Machines", key, len(machines), shape.Machines())
		}
		if shape.Addons {
			bindingKey := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
			if _, err := get(ctx, c, addonsAPI, "ClusterResourceSetBinding", bindingKey); err != nil {
				return err
			}
		}
		return Available(ctx, c, key)
	})
}

// waitScalingUp waits until the control plane is Available and gets its second Machine.
func waitScalingUp(ctx context.Context, c client.Reader, _ Shape, key types.NamespacedName) error {
	return wait(ctx, "control plane of "+key.String(), func(ctx context.Context) error {
		controlPlanes, err := ofWorkload(ctx, c, controlPlaneAPI, "KubeadmControlPlane", key)
		if err != nil {
			return err
		}
		for _, o := range controlPlanes {
			if err := hasCondition(o, "Available"); err != nil {
				return err
			}
			if n, _, _ := unstructured.NestedInt64(o.Object, "status", "replicas"); n >= 2 {
				return nil
			}
		}
		return fmt.Errorf("%s has no second control plane Machine", key)
	})
}

func ready(o *unstructured.Unstructured) error {
	if o.GetKind() == "Machine" {
		return hasCondition(o, "Ready")
	}
	want, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	for _, field := range []string{"replicas", "readyReplicas", "availableReplicas",
		"upToDateReplicas"} {
		if got, _, _ := unstructured.NestedInt64(o.Object, "status", field); got != want {
			return fmt.Errorf("%s %s/%s has %s %d of %d", o.GetKind(), o.GetNamespace(), o.GetName(), field,
				got, want)
		}
	}
	return hasCondition(o, "Available")
}

func classReconciled(ctx context.Context, c client.Reader, key types.NamespacedName) error {
	class, err := get(ctx, c, coreAPI, "ClusterClass", key)
	if err != nil {
		return err
	}
	if observed, _, _ := unstructured.NestedInt64(class.Object, "status",
		"observedGeneration"); observed != class.GetGeneration() {
		return fmt.Errorf("ClusterClass %s is not reconciled", key)
	}
	return hasCondition(class, "VariablesReady")
}

// hasCondition returns nil when the condition is True at the object's
// generation. A paused object's other conditions stay where they were when the
// pause made a new generation: theirs may be older.
func hasCondition(o *unstructured.Unstructured, conditionType string) error {
	condition := conditionOf(o, conditionType)
	if condition["status"] == "True" {
		paused := conditionOf(o, "Paused")
		if isCurrent(o, condition) || (paused["status"] == "True" && isCurrent(o, paused)) {
			return nil
		}
	}
	message := "absent"
	if condition != nil {
		message = fmt.Sprintf("%v at generation %v of %d: %v", condition["status"],
			condition["observedGeneration"], o.GetGeneration(), condition["message"])
	}
	return fmt.Errorf("condition %s of %s %s/%s is %s", conditionType, o.GetKind(), o.GetNamespace(),
		o.GetName(), message)
}

// conditionOf returns nil when there is no such condition.
func conditionOf(o *unstructured.Unstructured, conditionType string) fields {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(fields); ok && condition["type"] == conditionType {
			return condition
		}
	}
	return nil
}

func isCurrent(o *unstructured.Unstructured, condition fields) bool {
	return condition["observedGeneration"] == o.GetGeneration()
}

func get(ctx context.Context, c client.Reader, apiVersion, kind string, key types.NamespacedName) (
	*unstructured.Unstructured, error) {
	o := object(apiVersion, kind, "", "", fields{})
	if err := c.Get(ctx, key, o); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind, key, err)
	}
	return o, nil
}

// ofWorkload lists the objects of a kind that belong to a workload cluster.
func ofWorkload(ctx context.Context, c client.Reader, apiVersion, kind string,
	key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	selector := client.MatchingLabels{clusterNameLabel: key.Name}
	if err := c.List(ctx, list, client.InNamespace(key.Namespace), selector); err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", kind, key, err)
	}
	objects := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}

// wait polls check every second until it returns nil or ctx ends. Faster polls would slow down the
// API server that it waits for.
func wait(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
