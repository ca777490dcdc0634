package contract

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// handOverCopied gives the machines of each workload cluster to the target's cloud once its Cluster
// is copied, in place of a cloud that both management clusters share. It ends with the test.
func (f *fixture) handOverCopied(before observe.Objects) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var done sync.WaitGroup
	for _, cluster := range before.Of("cluster.x-k8s.io", "Cluster") {
		done.Go(func() {
			ref := observe.RefOf(cluster)
			if err := f.handOver(ctx, ref); err != nil {
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

func (f *fixture) handOver(ctx context.Context, cluster observe.Ref) error {
	_, err := observe.Await(ctx, f.target.Kubeconfig(), func(is observe.Objects) []string {
		if is[cluster] == nil {
			return []string{"it is not copied"}
		}
		return nil
	}, namespace)
	if err != nil {
		return err
	}
	if err := f.checkAcknowledged(ctx, cluster.Name); err != nil {
		return err
	}
	return f.source.HandOver(ctx, cluster.Namespace, cluster.Name)
}

// checkAcknowledged reports Machines of a workload cluster whose pause the source's controllers
// have not acknowledged. Cluster API 1.10 does that in status.v1beta2.conditions.
func (f *fixture) checkAcknowledged(ctx context.Context, name string) error {
	objects, err := observe.Inventory(ctx, f.source.Kubeconfig(), namespace)
	if err != nil {
		return err
	}
	acknowledged := 0
	for _, kind := range []struct{ group, kind string }{{"cluster.x-k8s.io", "Machine"},
		{"infrastructure.cluster.x-k8s.io", "DevMachine"}} {
		for _, o := range objects.Of(kind.group, kind.kind) {
			if o.GetLabels()["cluster.x-k8s.io/cluster-name"] != name {
				continue
			}
			if status := oldCondition(o, "Paused"); status != "True" {
				return fmt.Errorf("%s is copied, and condition Paused of %s is %q on the source", name,
					observe.RefOf(o), status)
			}
			acknowledged++
		}
	}
	if acknowledged == 0 {
		return fmt.Errorf("%s has no Machine on the source", name)
	}
	return nil
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
