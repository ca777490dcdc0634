//go:build api

package providertest_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// blockMove is the annotation by which a provider holds back the move of what is not paused yet.
const blockMove = "clusterctl.cluster.x-k8s.io/block-move"

// unblockPaused stands in for cluster-api-provider-azure until stop is called: it removes the
// annotation from the objects of each Cluster that is paused (v1.26, controllers/
// azurecluster_controller.go, reconcilePause). A move waits for that.
func (r *tier) unblockPaused(s *side) (stop func()) {
	t := r.t
	t.Helper()
	held := map[string][]object.Ref{} // by Cluster
	for _, g := range r.graphs {
		for _, u := range g.objects {
			if u.GetAnnotations()[blockMove] != "" {
				held[clusterOf(u)] = append(held[clusterOf(u)], refOf(u))
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	clusters := s.kind(t, object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"})
	events, err := s.resource(clusters, "").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var g task.Group
	g.Go(func() error {
		for e := range events.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok || notPaused(u, "field spec.paused", nil) != "" {
				continue
			}
			for _, ref := range held[u.GetNamespace()+"/"+u.GetName()] {
				s.unblock(ctx, t, ref)
			}
		}
		return nil
	})
	return func() {
		cancel()
		_ = g.Wait()
	}
}

// unblock removes the annotation from an object.
func (s *side) unblock(ctx context.Context, t *testing.T, r object.Ref) {
	for ctx.Err() == nil {
		k := s.kind(t, r.GroupKind())
		u, err := s.Reader().Get(ctx, k, r.Namespace, r.Name)
		if err != nil || u.GetAnnotations()[blockMove] == "" {
			return
		}
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations", blockMove)
		if _, err = s.Writer().Update(ctx, k, u); !apierrors.IsConflict(err) {
			return
		}
	}
}
