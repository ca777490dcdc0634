//go:build api

package providertest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// decode decodes an object of an API server.
func decode(raw []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		panic(err)
	}
	return u
}

// deletions are what a watch has seen of the end of objects.
type deletions struct {
	// marked are objects that were marked for deletion with finalizers, on which their controllers
	// act.
	marked map[object.Ref][]string
	// last are the last versions of objects that were deleted.
	last map[object.Ref]*unstructured.Unstructured
}

// watchDeletions watches all kinds of a side until stop is called.
func watchDeletions(t *testing.T, s *side) (stop func() deletions) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen := deletions{marked: map[object.Ref][]string{},
		last: map[object.Ref]*unstructured.Unstructured{}}
	var mu sync.Mutex
	var g task.Group
	for _, k := range s.kinds {
		list, err := s.resource(k, "").List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		events, err := s.resource(k, "").Watch(ctx,
			metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			for e := range events.ResultChan() {
				if u, ok := e.Object.(*unstructured.Unstructured); ok {
					mu.Lock()
					seen.see(e.Type, u)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	return func() deletions {
		cancel()
		_ = g.Wait()
		return seen
	}
}

func (d *deletions) see(event watch.EventType, u *unstructured.Unstructured) {
	switch r := refOf(u); {
	case event == watch.Deleted:
		d.last[r] = u
	case u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) > 0:
		d.marked[r] = u.GetFinalizers()
	}
}

// checkDeletions checks that no controller acted on the deletion of an object of a graph: it had no
// finalizer when it was marked, and its own switch was still set.
func (g *graph) checkDeletions(t *testing.T, seen deletions) {
	t.Helper()
	for _, r := range g.refs() {
		if finalizers := seen.marked[r]; finalizers != nil {
			t.Errorf("%s was marked for deletion with finalizers %v", r, finalizers)
		}
		if !g.captured(r) {
			continue
		}
		how := g.switchOf(t, r.GroupKind())
		ownSwitch := !slices.Contains([]string{withCluster, passive, late}, how)
		if u := seen.last[r]; u != nil && ownSwitch && !slices.Contains(g.DeletedAtWork, r.String()) {
			if why := notPaused(u, how, nil); why != "" {
				t.Errorf("%s was not paused when it was deleted: %s", r, why)
			}
		}
	}
}
