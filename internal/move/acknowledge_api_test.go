//go:build api

package move_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// countedReads are the requests of a Reader, but for its watches.
type countedReads struct {
	*kube.Reader
	n atomic.Int32
}

func (c *countedReads) Get(ctx context.Context, k kube.Kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	c.n.Add(1)
	return c.Reader.Get(ctx, k, namespace, name)
}

func (c *countedReads) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	c.n.Add(1)
	return c.Reader.List(ctx, k, o, fn)
}

// TestAPIAcknowledgementsAreFollowed: those of a pause are seen by watches that were opened before
// it, without a request while the workload cluster is paused. An object that is deleted meanwhile
// is read, and has no problem.
func TestAPIAcknowledgementsAreFollowed(t *testing.T) {
	t.Parallel()
	fx := newFixture(t, "followed")
	unit := classyUnits[0]
	live, err := fx.tryLive(t.Context(), 0)
	must(t, err)
	var nodes []*graph.Node
	for ref, u := range live {
		if cluster := u.GetLabels()[capi.LabelClusterName]; cluster == unit ||
			ref == clusterRef(fx.namespace, unit) {
			nodes = append(nodes, &graph.Node{Ref: ref, Cluster: cluster})
		}
	}
	reader := &countedReads{Reader: fx.sides[0].Reader()}
	p := fence.NewPauser(reader, fx.sides[0].Writer(), fx.sides[0].kinds, nil)
	if len(p.WithPause(nodes)) < 8 {
		t.Fatalf("%d objects", len(p.WithPause(nodes)))
	}
	await := func(problem fence.Problem, meanwhile func()) (reads int32) {
		t.Helper()
		f := p.Follow(t.Context(), nodes)
		defer f.Close()
		f.Shown(t.Context(), time.Minute)
		reader.n.Store(0)
		meanwhile()
		must(t, p.Await(t.Context(), f, nodes, "the acknowledgements", time.Minute, 0, problem))
		return reader.n.Load()
	}
	if reads := await(p.NotPaused, func() {
		fx.change(0, clusterRef(fx.namespace, unit), func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
		})
	}); reads > 0 {
		t.Errorf("%d reads", reads)
	}
	await(func(*graph.Node, *unstructured.Unstructured) string { return "it is there" }, func() {
		fx.remove(0, func(name string) bool { return unitName(name) == unit })
	})
}
