package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// fetchLists is how many objects are read one by one at once.
const fetchLists = 8

// reading reads every object. Where the server refuses an exact read, or that would mean nothing,
// it reads the newest state and says so.
type reading struct {
	source Source
	at     string
	apart  map[object.GroupKind]bool // do not count with the others
	read   *reader

	mu       sync.Mutex
	notInCut []object.GroupKind
}

func (r *reading) each(ctx context.Context, k kube.Kind, namespace, name string,
	fn func(*graph.Node, []byte) error) error {
	o := kube.ListOptions{Namespace: namespace, Name: name, Exact: r.at}
	err := kube.ErrExactRefused
	take := func(raw []byte) error { return fn(r.read.node(k, raw), raw) }
	if !r.isApart(k) {
		_, err = r.source.List(ctx, k, o, take)
	}
	if errors.Is(err, kube.ErrExactRefused) {
		r.mu.Lock()
		if !slices.Contains(r.notInCut, k.GroupKind) {
			r.notInCut = append(r.notInCut, k.GroupKind)
		}
		r.mu.Unlock()
		o.Exact = ""
		_, err = r.source.List(ctx, k, o, take)
	}
	return err
}

// begin makes now the moment of the cut. It finds the kinds that do not count with the others:
// --etcd-servers-overrides gives built-in kinds an etcd of their own, whose versions say nothing of
// this one's. Custom kinds are all in one.
func (r *reading) begin(ctx context.Context) error {
	var err error
	if r.at, err = now(ctx, r.source); err != nil {
		return err
	}
	kinds := []kube.Kind{kube.SecretKind, kube.ConfigMapKind}
	versions := make([]string, len(kinds))
	g, gctx := errgroup.WithContext(ctx)
	for i, k := range kinds {
		g.Go(func() (err error) {
			versions[i], err = versionOf(gctx, r.source, k)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	after, err := now(ctx, r.source)
	if err != nil {
		return err
	}
	r.apart = map[object.GroupKind]bool{}
	for i, k := range kinds {
		r.apart[k.GroupKind] = isLater(r.at, versions[i]) || isLater(versions[i], after)
	}
	return nil
}

func (r *reading) isApart(k kube.Kind) bool { return r.apart[k.GroupKind] }

// now is the resourceVersion of the source.
func now(ctx context.Context, source Source) (string, error) {
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

// fetch reads objects of a kind one by one, as of a resourceVersion at which they are there, or, if
// that is empty, as they are now, as far as they are there. fn is called by one at a time.
func (r *reading) fetch(ctx context.Context, k kube.Kind, keys []object.Key, at string,
	fn func(*graph.Node, []byte) error) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchLists)
	for _, key := range keys {
		g.Go(func() error {
			got, err := r.source.List(ctx, k, kube.ListOptions{Namespace: key.Namespace, Name: key.Name,
				Exact: at}, func(raw []byte) error {
				mu.Lock()
				defer mu.Unlock()
				return fn(r.read.node(k, raw), raw)
			})
			if err == nil && got.Items == 0 && at != "" {
				return fmt.Errorf("%w: %s %s is not there at %s, where it was listed", errHistory, k.GroupKind,
					key, at)
			}
			return err
		})
	}
	return g.Wait()
}
