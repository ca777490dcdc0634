package capture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/task"
)

// listTries is how often a list is tried whose answer breaks off.
const listTries = 3

// countObjects returns about how many objects of these kinds a source has. It sends one small LIST
// for each kind, which also makes the API server's watch cache of the kind catch up.
func countObjects(ctx context.Context, source Source, kinds []kube.Kind) (int, error) {
	var mu sync.Mutex
	count := 0
	g, ctx := task.WithContext(ctx)
	g.SetLimit(captureLists)
	for _, k := range kinds {
		g.Go(func() error {
			got, err := source.List(ctx, k, kube.ListOptions{Limit: 1, Metadata: true},
				func([]byte) error { return nil })
			mu.Lock()
			defer mu.Unlock()
			count += got.Items + got.Remaining
			return err
		})
	}
	// first: the order in which a return reads a variable and calls a function is not specified
	err := g.Wait()
	return count, err
}

// initialList reads a large source kind by kind, each at a resourceVersion of its own. Watches
// start from there.
type initialList struct {
	tracker  *changeTracker
	baseline *Baseline // nil: everything is listed
	verified bool      // watches may start at the baseline

	// restarted says that a LIST broke off and was sent again: the selection received objects of
	// both answers, which may have changed or gone between them.
	restarted atomic.Bool

	mu    sync.Mutex
	kinds map[object.GroupKind]*kindState
}

func newInitialList(r reader, baseline *Baseline) *initialList {
	return &initialList{tracker: &changeTracker{reader: r}, baseline: baseline,
		verified: baseline != nil && baseline.HistoryVerified, kinds: map[object.GroupKind]*kindState{}}
}

// each reads a kind from the baseline, or lists it.
func (l *initialList) each(ctx context.Context, k kube.Kind, namespace, name string,
	fn func(*graph.Node, []byte) error) error {
	l.mu.Lock()
	s := l.kinds[k.GroupKind]
	l.mu.Unlock()
	if s == nil && name != "" { // of a kind that is not read
		return nil
	}
	if s != nil && name != "" && l.tracker.relation.is(k.GroupKind) {
		return l.eachOwner(ctx, k, s, object.Key{Namespace: namespace, Name: name}, fn)
	}
	if s != nil { // some objects of a kind that was listed before
		return s.each(namespace, name, fn)
	}
	s, err := l.list(ctx, k, fn)
	if l.tracker.relation.skips(k, err) {
		return nil
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds[k.GroupKind] = s
	return nil
}

func (l *initialList) list(ctx context.Context, k kube.Kind, fn func(*graph.Node, []byte) error) (
	*kindState, error) {
	if l.baseline != nil && l.baseline.unchangedKind(k) {
		s, err := l.fromBaseline(ctx, k)
		if err == nil {
			err = s.each("", "", fn)
			s.raw = nil // fn has received it
		}
		if !errors.Is(err, errTooManyChanges) {
			return s, err
		}
	}
	var s *kindState
	err := retried(ctx, func(again bool) error {
		if again {
			l.restarted.Store(true)
		}
		s = &kindState{}
		list := l.tracker.listWhole
		if l.tracker.relation.is(k.GroupKind) {
			list = l.tracker.listRelated
		}
		// The API server ends a request after a minute, also while a slow store holds it up: each page
		// of the next try has a minute of its own.
		options := kube.ListOptions{Whole: !again}
		got, err := list(ctx, k, options, func(n *graph.Node, raw []byte) error {
			s.nodes = append(s.nodes, n)
			return fn(n, raw)
		})
		s.at = got.ResourceVersion
		return err
	})
	return s, err
}

// listWhole reads all objects of a kind.
func (r reader) listWhole(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(*graph.Node, []byte) error) (kube.ListResult, error) {
	return r.source.List(ctx, k, o, func(raw []byte) error { return fn(r.nodes.Node(k, raw), raw) })
}

// eachOwner reads an object of a related kind that owns a captured one. When it was not listed, it
// is added to the kind as it is now; the watch of the kind begins before that.
func (l *initialList) eachOwner(ctx context.Context, k kube.Kind, s *kindState, key object.Key,
	fn func(*graph.Node, []byte) error) error {
	known := false
	err := s.each(key.Namespace, key.Name, func(n *graph.Node, raw []byte) error {
		known = true
		return fn(n, raw)
	})
	if known || err != nil {
		return err
	}
	return l.tracker.fetch(ctx, k, []object.Key{key}, "", func(n *graph.Node, raw []byte) error {
		l.mu.Lock()
		// the nodes may be those of the baseline
		s.nodes = append(slices.Clip(s.nodes), n)
		l.mu.Unlock()
		return fn(n, raw)
	})
}

// fromBaseline returns a kind as in the baseline, if watches may start there, else with the objects
// replaced whose metadata shows a change.
func (l *initialList) fromBaseline(ctx context.Context, k kube.Kind) (s *kindState, err error) {
	nodes := l.baseline.Nodes[k.GroupKind]
	if l.verified && !(l.baseline.incomplete && l.tracker.relation.is(k.GroupKind)) {
		return &kindState{at: l.baseline.ResourceVersion, nodes: nodes}, nil
	}
	err = retried(ctx, func(bool) (err error) { // nothing is passed on before the list is complete
		s, err = l.tracker.compare(ctx, k, nodes, kube.ListOptions{Whole: true}, math.MaxInt)
		return err
	})
	return s, err
}

// retried calls fn again when an answer of the API server breaks off.
func retried(ctx context.Context, fn func(again bool) error) error {
	again := false
	return retry.Do(ctx, func(failures int, err error) (time.Duration, bool) {
		again = true
		return kube.Backoff(failures, err), failures < listTries && kube.Transient(err)
	}, func(context.Context) error { return fn(again) })
}

// useBaseline makes every kind as in the baseline, so that nothing is listed.
func (l *initialList) useBaseline() {
	for gk, nodes := range l.baseline.Nodes {
		l.kinds[gk] = &kindState{at: l.baseline.ResourceVersion, nodes: nodes}
	}
}

// advance watches these kinds up to the cut.
func (l *initialList) advance(ctx context.Context, at *exactReader, kinds []kube.Kind) (
	*watchReader, error) {
	return catchUp(ctx, at, kinds, func(ctx context.Context, t *changeTracker, k kube.Kind) (
		*kindState, error) {
		s := l.kinds[k.GroupKind]
		if s == nil && l.verified && l.baseline.unchangedKind(k) {
			s = &kindState{at: l.baseline.ResourceVersion} // the source had no object of the kind
		}
		if s == nil {
			return nil, fmt.Errorf("%w: %s was not listed", errTooManyChanges, k.GroupKind)
		}
		return t.watch(ctx, k, s, at.at)
	})
}
