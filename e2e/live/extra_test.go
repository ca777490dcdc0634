package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mgmtd/mgmtd/e2e/fleet"
	"github.com/mgmtd/mgmtd/e2e/lab"
)

// startWith starts two management clusters with further controllers on both, and provisions
// workload clusters on the source.
func startWith(t *testing.T, roles []string, shapes ...fleet.Shape) *fixture {
	t.Helper()
	if !runsLong() {
		t.Skip("a test of test-long")
	}
	f := &fixture{dir: t.TempDir()}
	t.Cleanup(f.close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if err := f.start(ctx, lab.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*lab.Mgmt{f.source, f.target} {
		if err := m.AddProviders(ctx, roles...); err != nil {
			t.Fatal(err)
		}
	}
	if len(shapes) == 0 {
		return f
	}
	if _, err := fleet.Create(ctx, f.clients[f.source], fleet.Options{Shapes: shapes,
		Progress: printProgress}); err != nil {
		t.Fatal(err)
	}
	return f
}

// addThird starts a third management cluster with further controllers. Afterwards the target of
// before is the source, and the third is the target.
func (f *fixture) addThird(t *testing.T, roles ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	third, err := f.lab.AddMgmt(ctx, "mgmt-3")
	if err != nil {
		t.Fatal(err)
	}
	if err := third.AddProviders(ctx, roles...); err != nil {
		t.Fatal(err)
	}
	if f.clients[third], err = clientOf(third); err != nil {
		t.Fatal(err)
	}
	f.source, f.target = f.target, third
}

// follow calls fn for every object of a kind that a management cluster has or gets, and for every
// change of one, until the test ends. It calls fn from one goroutine.
func (f *fixture) follow(t *testing.T, m *lab.Mgmt, apiVersion, kind string,
	fn func(m *lab.Mgmt, event watch.EventType, o *unstructured.Unstructured)) {
	t.Helper()
	open := func() (watch.Interface, error) {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind + "List")
		return f.clients[m].Watch(t.Context(), list)
	}
	watcher, err := open()
	if err != nil {
		t.Fatalf("watch %s of %s: %v", kind, m.Name(), err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			for event := range watcher.ResultChan() {
				if o, ok := event.Object.(*unstructured.Unstructured); ok {
					fn(m, event.Type, o)
				}
			}
			// A busy API server ends watches, and one that is killed does not come back.
			for watcher, err = open(); err != nil; watcher, err = open() {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	})
	t.Cleanup(done.Wait) // the test's context has ended then
}

// await polls check until it returns nil, for two minutes at most.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// create creates objects on a management cluster.
func (f *fixture) create(t *testing.T, m *lab.Mgmt, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := f.clients[m].Create(t.Context(), o); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// list returns the objects of a kind in a namespace, or in all with "".
func (f *fixture) list(ctx context.Context, m *lab.Mgmt, apiVersion, kind, namespace string) (
	[]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	if err := f.clients[m].List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", kind, m.Name(), err)
	}
	return list.Items, nil
}

// problems collects what must not happen from several goroutines.
type problems struct {
	mu  sync.Mutex
	all []string
}

func (p *problems) add(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, fmt.Sprintf(format, args...))
}

func (p *problems) none(t *testing.T, what string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	assertNone(t, what, slices.Clone(p.all))
}

var errNotYet = errors.New("not yet")

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
