package contract

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/observe"
)

// TestMoveAcrossContracts moves everything from a living source of Cluster API 1.10. No workload
// cluster may ever be reconciled by both management clusters (invariant I1).
func TestMoveAcrossContracts(t *testing.T) {
	f := start(t)
	before := f.capture()
	left, arrived := f.watch(f.source), f.watch(f.target)
	reconcilers, err := observe.WatchReconcilers(t.Context(), map[string]string{
		f.source.Name(): f.source.Kubeconfig(), f.target.Name(): f.target.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer reconcilers.Stop()
	f.handOverCopied(before)
	out := f.run("move", "run", "--yes", "--namespace", namespace, "--recipient", f.recipient(),
		"--source-kubeconfig", f.source.Kubeconfig())
	assertConverted(t, out)
	f.assertRestored(before)
	f.assertNothingChanges(before)
	objects, err := observe.Inventory(t.Context(), f.source.Kubeconfig(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	assertNone(t, observe.Left(objects))
	if err := reconcilers.Stop(); err != nil {
		t.Errorf("watch Clusters: %v", err)
	}
	assertNone(t, reconcilers.Conflicts())
	t.Logf("pauses: %v", reconcilers.Pauses(f.source.Name(), f.target.Name()))
	assertNone(t, observe.UnexplainedByMoves(arrived.Events(namespace), before, 1, 0))
	assertNone(t, observe.UnexplainedByMoves(left.Events(namespace), before, 0, 1))
}

// blockMove keeps a move in the pause of a workload cluster, after its controllers acknowledged it.
const blockMove = "clusterctl.cluster.x-k8s.io/block-move"

// handOverCopied gives the machines of each workload cluster to the target's cloud in its pause, in
// place of a cloud that both management clusters share. It ends with the test.
func (f *fixture) handOverCopied(before observe.Objects) {
	ctx, cancel := context.WithCancel(f.t.Context())
	for _, cluster := range before.Of("cluster.x-k8s.io", "Cluster") {
		if err := f.block(ctx, cluster, `""`); err != nil {
			f.t.Fatal(err)
		}
	}
	var done sync.WaitGroup
	for _, cluster := range before.Of("cluster.x-k8s.io", "Cluster") {
		done.Go(func() {
			ref := observe.RefOf(cluster)
			err := f.handOver(ctx, ref)
			if err == nil {
				err = f.block(ctx, cluster, "null")
			}
			if err != nil {
				f.t.Errorf("hand over %s: %v", ref, err)
			} else {
				f.t.Logf("%s: %s is handed over", time.Now().Format(time.TimeOnly), ref)
			}
		})
	}
	f.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// block sets the annotation that holds a move, or removes it ("null").
func (f *fixture) block(ctx context.Context, cluster *unstructured.Unstructured,
	value string) error {
	config, err := f.source.RESTConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, blockMove, value)
	err = c.Patch(ctx, cluster.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	if err != nil {
		return fmt.Errorf("annotate %s: %w", observe.RefOf(cluster), err)
	}
	return nil
}

func (f *fixture) handOver(ctx context.Context, cluster observe.Ref) error {
	// The copy comes before the pause, as far as that is possible.
	if _, err := observe.Await(ctx, f.target.Kubeconfig(), func(is observe.Objects) []string {
		if is[cluster] == nil {
			return []string{"it is not copied"}
		}
		return nil
	}, namespace); err != nil {
		return err
	}
	if _, err := observe.Await(ctx, f.source.Kubeconfig(), func(is observe.Objects) []string {
		return unacknowledged(is, cluster.Name)
	}, namespace); err != nil {
		return err
	}
	return f.source.HandOver(ctx, cluster.Namespace, cluster.Name)
}

// unacknowledged returns the Machines of a workload cluster whose pause the source's controllers
// have not acknowledged. Cluster API 1.10 does that in status.v1beta2.conditions.
func unacknowledged(objects observe.Objects, name string) (left []string) {
	acknowledged := 0
	for _, kind := range []struct{ group, kind string }{{"cluster.x-k8s.io", "Machine"},
		{"infrastructure.cluster.x-k8s.io", "DevMachine"}} {
		for _, o := range objects.Of(kind.group, kind.kind) {
			if o.GetLabels()["cluster.x-k8s.io/cluster-name"] != name {
				continue
			}
			if status := oldCondition(o, "Paused"); status != "True" {
				left = append(left, fmt.Sprintf("condition Paused of %s is %q on the source",
					observe.RefOf(o), status))
				continue
			}
			acknowledged++
		}
	}
	if acknowledged == 0 {
		left = append(left, name+" has no Machine on the source")
	}
	return left
}

// oldCondition returns the status of a condition where Cluster API 1.10 has those of contract
// v1beta2.
func oldCondition(o *unstructured.Unstructured, name string) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "v1beta2", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok && condition["type"] == name {
			status, _ := condition["status"].(string)
			return status
		}
	}
	return ""
}
