package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// smallSource is how many objects a source has that is read as of one resourceVersion at once. To
// read many so is expensive: the API server has the past of a kind that nobody wrote to for some
// minutes in etcd alone. A larger one is read as it is, kind by kind, from the API server's cache,
// and then watched, for up to two seconds, until all kinds are as of one resourceVersion. Tests
// make it small.
var smallSource = 2000

// size is how many objects a source has, about: as many as in the base, where there is one.
func (b *base) size(ctx context.Context, source Source, kinds []kube.Kind) (int, error) {
	if b != nil {
		return b.index.objects(), nil
	}
	return sizeOf(ctx, source, kinds)
}

// sizeOf takes one small LIST of each kind, which also makes the API server's cache of each catch
// up.
func sizeOf(ctx context.Context, source Source, kinds []kube.Kind) (int, error) {
	var mu sync.Mutex
	size := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(captureLists)
	for _, k := range kinds {
		g.Go(func() error {
			got, err := source.List(ctx, k, kube.ListOptions{Limit: 1, Metadata: true},
				func([]byte) error { return nil })
			mu.Lock()
			defer mu.Unlock()
			size += got.Items + got.Remaining
			return err
		})
	}
	// first: in which order a return reads a variable and calls a function is not specified
	err := g.Wait()
	return size, err
}

// look is the first of two at a large source: every kind at a resourceVersion of its own.
type look struct {
	*follower
	since  *base // nil: everything is read
	proven bool  // what happened since the base can be watched

	// twice says that a LIST broke off and was begun again: the capture got objects of both, which
	// may have changed or gone between them.
	twice atomic.Bool

	mu    sync.Mutex
	kinds map[object.GroupKind]*kindState
}

// each takes a kind from the index, or lists it.
func (l *look) each(ctx context.Context, k kube.Kind, namespace, name string,
	fn func(*graph.Node, []byte) error) error {
	l.mu.Lock()
	s := l.kinds[k.GroupKind]
	l.mu.Unlock()
	if s != nil { // some of a kind that was listed
		return s.each(namespace, name, fn)
	}
	s, err := l.list(ctx, k, fn)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds[k.GroupKind] = s
	return nil
}

func (l *look) list(ctx context.Context, k kube.Kind, fn func(*graph.Node, []byte) error) (
	s *kindState,
	err error) {
	if l.since != nil && l.since.follows(k) {
		nodes := l.since.index.nodes[k.GroupKind]
		s = &kindState{at: l.since.at, nodes: nodes}
		if !l.proven {
			err = retried(ctx, func(bool) (err error) { // fn hears of nothing before all is known
				s, err = l.compare(ctx, k, nodes, kube.ListOptions{Whole: true})
				return err
			})
		}
		if err == nil {
			err = s.each("", "", fn)
			s.raw = nil // fn has it
		}
		if !errors.Is(err, errWhole) {
			return s, err
		}
	}
	err = retried(ctx, func(again bool) error {
		if again {
			l.twice.Store(true)
		}
		s = &kindState{}
		got, err := l.source.List(ctx, k, kube.ListOptions{Whole: true}, func(raw []byte) error {
			n := l.read.node(k, raw)
			s.nodes = append(s.nodes, n)
			return fn(n, raw)
		})
		s.at = got.ResourceVersion
		return err
	})
	return s, err
}

// retried calls fn again when an answer of the API server broke off.
func retried(ctx context.Context, fn func(again bool) error) error {
	for attempt := 1; ; attempt++ {
		err := fn(attempt > 1)
		if err == nil || attempt == captureTries || !kube.Transient(err) {
			return err
		}
		if err := kube.Sleep(ctx, kube.Backoff(attempt, err)); err != nil {
			return err
		}
	}
}

// known takes every kind from the index.
func (l *look) known() {
	for gk, nodes := range l.since.index.nodes {
		l.kinds[gk] = &kindState{at: l.since.at, nodes: nodes}
	}
}

// advance brings what a look saw to the cut.
func (l *look) advance(ctx context.Context, r *reading, kinds []kube.Kind) (*followed, error) {
	return follow(ctx, r, kinds, func(ctx context.Context, f *follower, k kube.Kind) (*kindState,
		error) {
		s := l.kinds[k.GroupKind]
		if s == nil && l.proven && l.since.follows(k) {
			s = &kindState{at: l.since.at} // there was none of it
		}
		if s == nil {
			return nil, fmt.Errorf("%w: %s was not looked at", errWhole, k.GroupKind)
		}
		return f.watch(ctx, k, s)
	})
}
