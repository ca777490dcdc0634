//go:build api

package restore_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// TestAPINewMachineStopsTheRunUntilItIsAccepted: a controller of the target makes a Machine for the
// first workload cluster that is released. No other one is released, also by a resume, until the
// operator accepts the first one; then a resume releases all.
func TestAPINewMachineStopsTheRunUntilItIsAccepted(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "stops-", "--workloads", "4", "--machines", "1",
		"--fast")
	s := take(t, "stops-")
	servers.Acknowledge(t, 1)
	replacing := &replacingWriter{}
	writer := func(m *kube.Mgmt) restore.Writer {
		replacing.Writer, replacing.target = m.Writer(), m
		return replacing
	}
	for _, name := range []string{"the first run", "a resume"} {
		err := s.carryOut(t.Context(), everything, writer)
		incomplete, ok := errors.AsType[*restore.IncompleteError](err)
		if !ok || !incomplete.Stopped || incomplete.Failed != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		if n := releasedOnTarget(t, "stops-"); n != 1 {
			t.Errorf("%s: %d workload clusters are released, want 1", name, n)
		}
	}
	acceptOnly(t, s, replacing.unit)
	if err := s.carryOut(t.Context(), everything, writer); err != nil {
		t.Fatal(err)
	}
	checkRestored(t, s)
}

// replacingWriter creates a Machine right after the first release.
type replacingWriter struct {
	restore.Writer
	target *kube.Mgmt

	mu   sync.Mutex
	unit string // the workload cluster
}

func (w *replacingWriter) Update(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	out, err := w.Writer.Update(ctx, k, u)
	if err != nil || k.GroupKind != capi.Cluster || capi.PausedByUs(out.Object) {
		return out, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unit != "" {
		return out, nil
	}
	w.unit = u.GetNamespace() + "/" + u.GetName()
	return out, w.addMachine(ctx, u.GetNamespace(), u.GetName())
}

func (w *replacingWriter) addMachine(ctx context.Context, namespace, cluster string) error {
	kinds, err := w.target.Reader().Kinds(ctx)
	if err != nil {
		return err
	}
	k, _ := kube.FindKind(kinds, capi.Machine)
	var added *unstructured.Unstructured
	if _, err := w.target.Reader().List(ctx, k, kube.ListOptions{Namespace: namespace,
		Labels: capi.LabelClusterName + "=" + cluster}, func(raw []byte) error {
		added = &unstructured.Unstructured{}
		return added.UnmarshalJSON(raw)
	}); err != nil {
		return err
	}
	meta := map[string]any{"name": cluster + "-replacement", "namespace": namespace,
		"labels": map[string]any{capi.LabelClusterName: cluster}}
	added.Object["metadata"] = meta
	delete(added.Object, "status")
	_, err = w.target.Writer().Create(ctx, k, added)
	return err
}

// releasedOnTarget counts the Clusters of a fleet on the target that are not paused.
func releasedOnTarget(t *testing.T, prefix string) (n int) {
	t.Helper()
	for _, released := range released(t, prefix) {
		if released {
			n++
		}
	}
	return n
}

// acceptOnly accepts a unit in the newest operation of a site.
func acceptOnly(t *testing.T, s site, unit string) {
	t.Helper()
	c, err := catalog.Open(t.Context(), s.dir+"/catalog.db", catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{Limit: 1})
	if err == nil {
		err = c.AcceptUnit(t.Context(), ops[0].ID, object.Finding{Unit: unit})
	}
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
}
