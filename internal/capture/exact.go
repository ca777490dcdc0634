package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// fetchLists is how many objects are read one by one at the same time.
	fetchLists = 8
	// manyFetched is how many objects of a kind Fetch reads one by one at most.
	manyFetched = 200
)

// reader reads objects of a source as nodes.
type reader struct {
	source   Source
	nodes    *NodeReader
	relation *relation // nil: nothing is captured by relation
}

// fetch reads objects of a kind one by one, as of a resourceVersion at which they exist. With an
// empty resourceVersion it reads their newest state and skips those that no longer exist. fn is not
// called concurrently.
func (r reader) fetch(ctx context.Context, k kube.Kind, keys []object.Key, at string,
	fn func(*graph.Node, []byte) error) error {
	var mu sync.Mutex
	g, ctx := task.WithContext(ctx)
	g.SetLimit(fetchLists)
	for _, key := range keys {
		g.Go(func() error {
			got, err := r.source.List(ctx, k, kube.ListOptions{Namespace: key.Namespace, Name: key.Name,
				Exact: at}, func(raw []byte) error {
				mu.Lock()
				defer mu.Unlock()
				return fn(r.nodes.Node(k, raw), raw)
			})
			if err == nil && got.Items == 0 && at != "" {
				return fmt.Errorf("%w: %s %s is not there at %s, where it was listed", ErrHistory, k.GroupKind,
					key, at)
			}
			return err
		})
	}
	return g.Wait()
}

// exactReader reads objects as of one resourceVersion. Where the server refuses an exact list, or
// the resourceVersion means nothing for a kind, it reads the newest state and records the kind.
type exactReader struct {
	reader
	at string // the resourceVersion
	// narrow is what lists of whole namespaces leave out.
	narrow Narrow
	// separateEtcd are the kinds whose resourceVersions do not count with the others.
	separateEtcd map[object.GroupKind]bool

	mu       sync.Mutex
	notInCut []object.GroupKind
}

// beginCut makes the newest resourceVersion of the source that of the cut. It finds the kinds that
// have an etcd of their own (kube-apiserver --etcd-servers-overrides), whose resourceVersions
// cannot be compared. Only built-in kinds can have one; custom kinds share one etcd.
func beginCut(ctx context.Context, r reader) (*exactReader, error) {
	at, err := Newest(ctx, r.source)
	if err != nil {
		return nil, err
	}
	kinds := []kube.Kind{kube.SecretKind, kube.ConfigMapKind}
	versions := make([]string, len(kinds))
	g, gctx := task.WithContext(ctx)
	for i, k := range kinds {
		g.Go(func() (err error) {
			versions[i], err = versionOf(gctx, r.source, k)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	after, err := Newest(ctx, r.source)
	if err != nil {
		return nil, err
	}
	e := &exactReader{reader: r, at: at, separateEtcd: map[object.GroupKind]bool{}}
	for i, k := range kinds {
		if isLater(at, versions[i]) || isLater(versions[i], after) {
			e.separateEtcd[k.GroupKind] = true
		}
	}
	return e, nil
}

// Newest returns the newest resourceVersion of the source.
func Newest(ctx context.Context, source Source) (string, error) {
	at, err := versionOf(ctx, source, kube.NamespaceKind)
	if err != nil {
		return "", fmt.Errorf("begin cut: %w", err)
	}
	return at, nil
}

func versionOf(ctx context.Context, source Source, k kube.Kind) (string, error) {
	at, err := source.List(ctx, k, kube.ListOptions{Limit: 1, Metadata: true},
		func([]byte) error { return nil })
	return at.ResourceVersion, err
}

func (r *exactReader) each(ctx context.Context, k kube.Kind, namespace, name string,
	fn func(*graph.Node, []byte) error) error {
	if name != "" {
		return r.list(ctx, k, kube.ListOptions{Namespace: namespace, Name: name}, fn)
	}
	for _, o := range r.narrow.lists(k, namespace) {
		if err := r.list(ctx, k, o, fn); err != nil {
			return err
		}
	}
	return nil
}

// list is each for one LIST.
func (r *exactReader) list(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(*graph.Node, []byte) error) error {
	o.Exact = r.at
	err := kube.ErrExactRefused
	list := func() error {
		if o.Name == "" && r.relation.is(k.GroupKind) {
			_, err := r.listRelated(ctx, k, o, fn)
			return err
		}
		_, err := r.source.List(ctx, k, o,
			func(raw []byte) error { return fn(r.nodes.Node(k, raw), raw) })
		return err
	}
	if !r.separateEtcd[k.GroupKind] {
		err = list()
	}
	if errors.Is(err, kube.ErrExactRefused) {
		r.mu.Lock()
		if !slices.Contains(r.notInCut, k.GroupKind) {
			r.notInCut = append(r.notInCut, k.GroupKind)
		}
		r.mu.Unlock()
		o.Exact = ""
		err = list()
	}
	if r.relation.skips(k, err) {
		return nil
	}
	return err
}

// Fetch reads nodes of a cut as of its resourceVersion and calls fn with each and its bytes, one
// after the other. Of a kind with many nodes it reads all objects, and of a kind that is not in the
// cut the newest ones. It returns ErrHistory if one is not what its node says.
func Fetch(ctx context.Context, source Source, cut *Cut, nodes []*graph.Node,
	fn func(n *graph.Node, raw []byte) error) error {
	byKind := map[object.GroupKind]map[object.Key]*graph.Node{}
	for _, n := range nodes {
		if byKind[n.GroupKind()] == nil {
			byKind[n.GroupKind()] = map[object.Key]*graph.Node{}
		}
		byKind[n.GroupKind()][n.Key()] = n
	}
	r := &exactReader{reader: reader{source: source, nodes: NewNodeReader(cut.Kinds, cut.Graph.Rows)},
		at: cut.ResourceVersion, separateEtcd: map[object.GroupKind]bool{}}
	for _, gk := range cut.NotInCut {
		r.separateEtcd[gk] = true
	}
	for gk, nodes := range byKind {
		k, _ := kube.FindKind(cut.Kinds, gk)
		found := 0
		each := func(is *graph.Node, raw []byte) error {
			n := nodes[is.Key()]
			if n == nil {
				return nil
			}
			if is.UID != n.UID || is.ResourceVersion != n.ResourceVersion || is.Content != n.Content {
				return fmt.Errorf("%w: %s is not what it was", ErrHistory, n.Ref)
			}
			found++
			return fn(n, raw)
		}
		var err error
		if len(nodes) > manyFetched {
			err = r.each(ctx, k, "", "", each)
		} else {
			at := r.at
			if r.separateEtcd[gk] {
				at = ""
			}
			err = r.fetch(ctx, k, slices.Collect(maps.Keys(nodes)), at, each)
		}
		if err == nil && found != len(nodes) {
			err = fmt.Errorf("%w: %d of %d objects of %s are there", ErrHistory, found, len(nodes), gk)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
