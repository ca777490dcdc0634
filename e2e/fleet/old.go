package fleet

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	oldAPI = "cluster.x-k8s.io/v1beta1"
	// oldVersion is a Kubernetes version that Cluster API 1.10 and 1.14 both support.
	oldVersion = "v1.32.0"

	// names of the recordings of Cluster API 1.10
	oldPlainName, oldClassyName = "old-plain", "old-classy"
)

var (
	//go:embed old-shared.yaml
	oldShared string
	//go:embed old-plain.yaml
	oldPlain string
)

// CreateOld provisions two workload clusters in one namespace of a management cluster of Cluster
// API 1.10: "stock" of the ClusterClass that it publishes (lab.OldTemplates), and "plain" without
// one. Each has three control plane Machines and two workers. It returns when all are Available.
func CreateOld(ctx context.Context, c client.Client, templates, namespace string) (
	[]types.NamespacedName, error) {
	stock := Shape{Name: "stock", Namespace: namespace, ControlPlanes: 3, Pools: []int{2},
		Templates: templates}
	plain := Shape{Name: "plain", Namespace: namespace, ControlPlanes: 3, Pools: []int{2}}
	keys := []types.NamespacedName{stock.Key(""), plain.Key("")}
	return keys, createOld(ctx, c, stock, plain)
}

// createOld provisions workload clusters of Cluster API 1.10, with a class where their shape has
// templates.
func createOld(ctx context.Context, c client.Client, shapes ...Shape) error {
	for _, s := range shapes {
		if err := createOldShared(ctx, c, s); err != nil {
			return err
		}
	}
	for _, s := range shapes {
		objects, err := s.oldObjects()
		if err != nil {
			return err
		}
		if err := apply(ctx, c, objects...); err != nil {
			return err
		}
	}
	for _, s := range shapes {
		if err := waitOld(ctx, c, s.Machines(), s.Key("")); err != nil {
			return err
		}
	}
	return nil
}

// createOldShared creates what the workload clusters of a namespace share, and the class of s.
func createOldShared(ctx context.Context, c client.Client, s Shape) error {
	objects, err := parseTemplate(oldShared, map[string]string{"NAMESPACE": s.Namespace})
	if err != nil {
		return err
	}
	ns := object("v1", "Namespace", "", s.Namespace, fields{})
	if err := apply(ctx, c, append([]*unstructured.Unstructured{ns}, objects...)...); err != nil {
		return err
	}
	if s.Templates == "" {
		return nil
	}
	if objects, err = s.sharedObjects(""); err != nil {
		return err
	}
	if err := apply(ctx, c, objects[1:]...); err != nil { // the first is the Namespace
		return err
	}
	class := types.NamespacedName{Namespace: s.Namespace, Name: className}
	return wait(ctx, "ClusterClass "+class.String(), func(ctx context.Context) error {
		o, err := get(ctx, c, oldAPI, "ClusterClass", class)
		if err != nil {
			return err
		}
		return oldCondition(o, "VariablesReady")
	})
}

// oldObjects are the objects that the author of the workload cluster writes.
func (s Shape) oldObjects() ([]*unstructured.Unstructured, error) {
	if s.Templates != "" {
		return s.workloadObjects("")
	}
	return parseTemplate(oldPlain, map[string]string{
		"NAMESPACE": s.Namespace, "CLUSTER_NAME": s.Name, "KUBERNETES_VERSION": oldVersion,
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(s.ControlPlanes),
		"WORKER_MACHINE_COUNT":        strconv.Itoa(s.Machines() - s.ControlPlanes),
	})
}

// RecordOld is Record on a management cluster of Cluster API 1.10.
func RecordOld(ctx context.Context, c client.Client, templates, dir string) error {
	var shapes []Shape
	for _, name := range []string{oldPlainName, oldClassyName} {
		shapes = append(shapes, Shape{Name: recordedWorkload, Namespace: recordedNamespace + name,
			ControlPlanes: recordedControlPlanes, Pools: []int{recordedWorkers}})
	}
	shapes[1].Templates = templates
	if err := createOld(ctx, c, shapes...); err != nil {
		return err
	}
	if err := quiesce(ctx); err != nil {
		return err
	}
	for _, name := range []string{oldPlainName, oldClassyName} {
		if err := recordWorkload(ctx, c, name, "v1beta1", dir); err != nil {
			return err
		}
	}
	return nil
}

// waitOld waits until a workload cluster of Cluster API 1.10 is Available with so many Machines,
// and all of them are Ready.
func waitOld(ctx context.Context, c client.Reader, machines int, key types.NamespacedName) error {
	return wait(ctx, "workload cluster "+key.String(), func(ctx context.Context) error {
		cluster, err := get(ctx, c, oldAPI, "Cluster", key)
		if err != nil {
			return err
		}
		all, err := ofWorkload(ctx, c, oldAPI, "Machine", key)
		if err != nil {
			return err
		}
		if len(all) != machines {
			return fmt.Errorf("%s has %d of %d Machines", key, len(all), machines)
		}
		for _, machine := range all {
			for _, name := range []string{"Ready", "Available", "NodeHealthy"} {
				if err := oldCondition(machine, name); err != nil {
					return err
				}
			}
		}
		return oldCondition(cluster, "Available")
	})
}

// oldCondition returns nil when a condition of contract v1beta2 is True, which Cluster API 1.10 has
// in status.v1beta2.
func oldCondition(o *unstructured.Unstructured, name string) error {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "v1beta2", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(fields); ok && condition["type"] == name {
			if condition["status"] == "True" {
				return nil
			}
			return fmt.Errorf("condition %s of %s %s/%s is %v: %v", name, o.GetKind(), o.GetNamespace(),
				o.GetName(), condition["status"], condition["message"])
		}
	}
	return fmt.Errorf("%s %s/%s has no condition %s", o.GetKind(), o.GetNamespace(), o.GetName(), name)
}
