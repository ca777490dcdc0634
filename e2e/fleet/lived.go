package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nextVersion is the minor version after workloadVersion.
const nextVersion = "v1.36.0"

// editor is the field manager of a person who changes what the author wrote.
const editor = "kubectl-edit"

// life is what happens to one workload cluster.
type life struct {
	client.Client
	shape Shape
	key   types.NamespacedName
}

// Live takes a workload cluster of Cluster API's own templates, which Create has provisioned,
// through what happens in a life: scaled up and down, upgraded by a minor version, rolled out,
// relabelled, a Machine remediated by a MachineHealthCheck, paused and unpaused. When it returns,
// the workload cluster is Available with the Machines of its shape. It cannot be run again.
func Live(ctx context.Context, c client.Client, opts Options, shape Shape) error {
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	l := life{c, shape, shape.Key(opts.Prefix)}
	for _, step := range []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"scaled up", func(ctx context.Context) error { return l.scale(ctx, shape.Pools[0]+1) }},
		{"scaled down", func(ctx context.Context) error { return l.scale(ctx, shape.Pools[0]) }},
		{"upgraded", l.upgrade},
		{"rolled out", l.rollOut},
		{"relabelled", l.relabel},
		{"remediated", l.remediate},
		{"paused and unpaused", l.pauseAndUnpause},
	} {
		begin := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("let %s be %s: %w", l.key, step.name, err)
		}
		opts.Progress(fmt.Sprintf("workload cluster %s was %s in %s", l.key, step.name,
			time.Since(begin).Round(100*time.Millisecond)))
	}
	return nil
}

// Rebirth deletes a workload cluster, waits until nothing of it is left, and creates it again under
// its name.
func Rebirth(ctx context.Context, c client.Client, opts Options, shape Shape) error {
	if err := Delete(ctx, c, opts, shape); err != nil {
		return err
	}
	opts.Shapes = []Shape{shape}
	_, err := Create(ctx, c, opts)
	return err
}

// Delete deletes a workload cluster and waits until nothing of it is left.
func Delete(ctx context.Context, c client.Client, opts Options, shape Shape) error {
	key := shape.Key(opts.Prefix)
	cluster := object(coreAPI, "Cluster", key.Namespace, key.Name, fields{})
	if err := c.Delete(ctx, cluster); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return wait(ctx, "the end of "+key.String(), func(ctx context.Context) error {
		err := c.Get(ctx, key, cluster)
		if err == nil {
			return fmt.Errorf("%s is still there", key)
		}
		return client.IgnoreNotFound(err)
	})
}

// RollOut replaces the control plane Machines of a workload cluster.
func RollOut(ctx context.Context, c client.Client, opts Options, shape Shape) error {
	return life{c, shape, shape.Key(opts.Prefix)}.rollOut(ctx)
}

// Scale scales the workers of a workload cluster of Cluster API's own templates, and waits until it
// is Available with all Machines.
func Scale(ctx context.Context, c client.Client, opts Options, shape Shape, workers int) error {
	return life{c, shape, shape.Key(opts.Prefix)}.scale(ctx, workers)
}

func (l life) scale(ctx context.Context, workers int) error {
	if err := l.editPool(ctx, fmt.Sprintf(`{"replicas":%d}`, workers)); err != nil {
		return err
	}
	shape := l.shape
	shape.Pools = []int{workers}
	return waitShape(ctx, l, shape, l.key)
}

// editPool merges a patch into the topology's only MachineDeployment.
func (l life) editPool(ctx context.Context, patch string) error {
	return l.edit(ctx, fmt.Sprintf(`{"spec":{"topology":{"workers":{"machineDeployments":[%s]}}}}`,
		`{"class":"default-worker","name":"md-0",`+patch[1:]))
}

// edit merges a patch into the Cluster.
func (l life) edit(ctx context.Context, patch string) error {
	cluster := object(coreAPI, "Cluster", l.key.Namespace, l.key.Name, fields{})
	return l.patch(ctx, cluster, patch)
}

func (l life) patch(ctx context.Context, o *unstructured.Unstructured, patch string) error {
	if err := l.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)),
		client.FieldOwner(editor)); err != nil {
		return fmt.Errorf("patch %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
	}
	return nil
}

func (l life) upgrade(ctx context.Context) error {
	if err := l.edit(ctx, `{"spec":{"topology":{"version":"`+nextVersion+`"}}}`); err != nil {
		return err
	}
	return l.waitMachines(ctx, func(m *unstructured.Unstructured) error {
		if v, _, _ := unstructured.NestedString(m.Object, "spec", "version"); v != nextVersion {
			return fmt.Errorf("machine %s has version %s", m.GetName(), v)
		}
		return nil
	})
}

// rollOut replaces all control plane Machines.
func (l life) rollOut(ctx context.Context) error {
	planes, err := ofWorkload(ctx, l, controlPlaneAPI, "KubeadmControlPlane", l.key)
	if err != nil {
		return err
	}
	// Machines that were created in this very second would count as new.
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	after := time.Now().UTC().Format(time.RFC3339)
	for _, plane := range planes {
		if err := l.patch(ctx, plane, `{"spec":{"rollout":{"after":"`+after+`"}}}`); err != nil {
			return err
		}
	}
	return l.waitMachines(ctx, func(m *unstructured.Unstructured) error {
		_, ofPlane := m.GetLabels()["cluster.x-k8s.io/control-plane"]
		if created := m.GetCreationTimestamp().UTC().Format(time.RFC3339); ofPlane && created < after {
			return fmt.Errorf("machine %s is from before the rollout", m.GetName())
		}
		return nil
	})
}

// relabel changes labels of the Cluster and of its Machines, which get them in place.
func (l life) relabel(ctx context.Context) error {
	const labels = `{"metadata":{"labels":{"lived.example.org/stage":"second"}}}`
	if err := l.edit(ctx, labels); err != nil {
		return err
	}
	if err := l.editPool(ctx, fmt.Sprintf(`{"replicas":%d,%s`, l.shape.Pools[0],
		labels[1:])); err != nil {
		return err
	}
	return l.waitMachines(ctx, func(m *unstructured.Unstructured) error {
		_, ofPool := m.GetLabels()["topology.cluster.x-k8s.io/deployment-name"]
		if ofPool && m.GetLabels()["lived.example.org/stage"] == "" {
			return fmt.Errorf("machine %s has no new label", m.GetName())
		}
		return nil
	})
}

// remediate has a MachineHealthCheck replace a worker.
func (l life) remediate(ctx context.Context) error {
	check := object(coreAPI, "MachineHealthCheck", l.key.Namespace, l.key.Name+"-workers", fields{
		"spec": fields{
			"clusterName": l.key.Name,
			"selector": fields{"matchLabels": fields{
				"topology.cluster.x-k8s.io/deployment-name": "md-0",
				clusterNameLabel: l.key.Name}},
			"checks": fields{"nodeStartupTimeoutSeconds": int64(600)},
		}})
	if err := apply(ctx, l, check); err != nil {
		return err
	}
	machines, err := ofWorkload(ctx, l, coreAPI, "Machine", l.key)
	if err != nil {
		return err
	}
	sick := ""
	for _, m := range machines {
		if m.GetLabels()["topology.cluster.x-k8s.io/deployment-name"] != "" {
			sick = m.GetName()
			if err := l.patch(ctx, m,
				`{"metadata":{"annotations":{"cluster.x-k8s.io/remediate-machine":""}}}`); err != nil {
				return err
			}
			break
		}
	}
	return l.waitMachines(ctx, func(m *unstructured.Unstructured) error {
		if m.GetName() == sick {
			return fmt.Errorf("machine %s was not replaced", sick)
		}
		return nil
	})
}

func (l life) pauseAndUnpause(ctx context.Context) error {
	if err := pause(ctx, l, l.key); err != nil {
		return err
	}
	if err := l.edit(ctx, `{"spec":{"paused":null}}`); err != nil {
		return err
	}
	// The controller of MachineHealthChecks takes up to 15 s to publish the end of a pause.
	if err := wait(ctx, "the end of the pause of "+l.key.String(), func(ctx context.Context) error {
		for _, kind := range append(slices.Clone(pausedKinds), "MachineHealthCheck") {
			objects, err := ofWorkload(ctx, l, coreAPI, kind, l.key)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if hasCondition(o, "Paused") == nil {
					return fmt.Errorf("%s %s is paused", kind, o.GetName())
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return waitShape(ctx, l, l.shape, l.key)
}

// waitMachines waits until the workload cluster is as its shape says and problem finds none with
// any of its Machines.
func (l life) waitMachines(ctx context.Context,
	problem func(m *unstructured.Unstructured) error) error {
	if err := wait(ctx, "Machines of "+l.key.String(), func(ctx context.Context) error {
		machines, err := ofWorkload(ctx, l, coreAPI, "Machine", l.key)
		if err != nil {
			return err
		}
		for _, m := range machines {
			if err := problem(m); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return waitShape(ctx, l, l.shape, l.key)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
