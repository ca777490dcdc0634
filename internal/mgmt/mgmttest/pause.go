package mgmttest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/mgmt"
)

// publishers are the kinds whose controllers publish the condition Paused.
var publishers = []string{
	"Cluster", "KubeadmControlPlane", "MachineDeployment", "MachineSet", "Machine", "MachinePool", "MachineHealthCheck", "KubeadmConfig", "DevCluster", "DevMachine",
	"DevMachinePool", "ClusterResourceSet",
}

const annotationPaused = "cluster.x-k8s.io/paused"

// Acknowledge does on server i, until the test ends, the one thing that a pause needs of the controllers which bare servers lack: it publishes Paused, and on Clusters
// with a class TopologyReconciled, as they do.
func (s *Servers) Acknowledge(t testing.TB, i int) {
	t.Helper()
	m := s.Connect(t, i)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			acknowledgeOnce(ctx, t, m, kinds)
			_ = mgmt.Sleep(ctx, 50*time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func acknowledgeOnce(ctx context.Context, t testing.TB, m *mgmt.Mgmt, kinds []mgmt.Kind) {
	paused := map[mgmt.Key]bool{}
	clusters, _ := mgmt.FindKind(kinds, mgmt.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"})
	_, _ = m.Reader().List(ctx, clusters, mgmt.ListOptions{}, func(raw []byte) error {
		key := mgmt.Key{Namespace: gjson.GetBytes(raw, "metadata.namespace").String(), Name: gjson.GetBytes(raw, "metadata.name").String()}
		paused[key] = gjson.GetBytes(raw, "spec.paused").Bool()
		return nil
	})
	for _, k := range kinds {
		if !slices.Contains(publishers, k.Kind) || !k.Status {
			continue
		}
		_, _ = m.Reader().List(ctx, k, mgmt.ListOptions{}, func(raw []byte) error {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw); err != nil {
				return err
			}
			cluster := u.GetLabels()["cluster.x-k8s.io/cluster-name"]
			if k.GroupKind == clusters.GroupKind {
				cluster = u.GetName()
			}
			_, own := u.GetAnnotations()[annotationPaused]
			if !publish(u, own || paused[mgmt.Key{Namespace: u.GetNamespace(), Name: cluster}]) {
				return nil
			}
			if _, err := m.Writer().UpdateStatus(ctx, k, u); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Log("acknowledge", k.GroupKind, u.GetName(), err)
			}
			return nil
		})
	}
}

// publish sets the conditions that tell of a pause and reports whether they changed.
func publish(u *unstructured.Unstructured, paused bool) bool {
	status, reason := "False", "NotPaused"
	if paused {
		status, reason = "True", "Paused"
	}
	changed := setCondition(u, "Paused", status, reason)
	if _, classy, _ := unstructured.NestedMap(u.Object, "spec", "topology"); classy {
		status, reason = "True", "ReconcileSucceeded"
		if paused {
			status, reason = "False", "Paused"
		}
		changed = setCondition(u, "TopologyReconciled", status, reason) || changed
	}
	return changed
}

func setCondition(u *unstructured.Unstructured, name, status, reason string) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	want := map[string]any{
		"type": name, "status": status, "message": "", "reason": reason, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": u.GetGeneration(),
	}
	at := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == name })
	switch {
	case at < 0:
		conditions = append(conditions, want)
	case conditions[at].(map[string]any)["status"] == status && conditions[at].(map[string]any)["observedGeneration"] == u.GetGeneration():
		return false
	default:
		conditions[at] = want
	}
	_ = unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions")
	return true
}
