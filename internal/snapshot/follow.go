package snapshot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// heldBytes bounds the changed objects that are in memory; a kind with more is read whole.
const heldBytes = 64 << 20

var (
	// errHistory says that the source is not a later state of what is known: its etcd was restored
	// from a backup. Everything is read again.
	errHistory = errors.New("the source has gone back in time since the snapshot before")
	// errWhole says that so much of a kind changed that it is read whole.
	errWhole = errors.New("much has changed")
)

// objects gives what a source has at a cut.
type objects interface {
	// each gives the objects of a kind, of one namespace or one name if these are not empty. raw is
	// nil for an object that is as the index knows it; its node may have no Pack when it was left
	// out then. Bytes are valid during the call.
	each(ctx context.Context, k kube.Kind, namespace, name string,
		fn func(n *graph.Node, raw []byte) error) error
}

// base is the snapshot from which on changes are followed.
type base struct {
	index *index
	at    string // its resourceVersion
	head  indexHead
	cut   *Cut // if this process made it

	// proven says that what happened since can be watched: watches give what changed, and nothing
	// of what a restored etcd has put back.
	proven bool
}

// kindState is what a kind has at a resourceVersion.
type kindState struct {
	at    string
	nodes []*graph.Node
	raw   map[object.Key][]byte // of those that changed
}

func (s *kindState) each(namespace, name string, fn func(*graph.Node, []byte) error) error {
	for _, n := range s.nodes {
		if namespace != "" && n.Namespace != namespace || name != "" && n.Name != name {
			continue
		}
		if err := fn(n, s.raw[n.Key()]); err != nil {
			return err
		}
	}
	return nil
}

// followed has some kinds at the cut already, and reads the others.
type followed struct {
	*reading
	kinds map[object.GroupKind]*kindState
}

func (f *followed) each(ctx context.Context, k kube.Kind, namespace, name string,
	fn func(*graph.Node, []byte) error) error {
	if s := f.kinds[k.GroupKind]; s != nil {
		return s.each(namespace, name, fn)
	}
	return f.reading.each(ctx, k, namespace, name, fn)
}

// unchanged tells whether these kinds are all at the cut, and as they were seen.
func (f *followed) unchanged(kinds []kube.Kind) bool {
	for _, k := range kinds {
		if s := f.kinds[k.GroupKind]; s == nil || len(s.raw) > 0 {
			return false
		}
	}
	return true
}

// follower finds out what changed.
type follower struct {
	*reading
	held atomic.Int64
}

// follow brings kinds to the cut, each by the way that find goes; kinds for which that is no way
// are read whole.
func follow(ctx context.Context, r *reading, kinds []kube.Kind, find func(context.Context,
	*follower, kube.Kind) (*kindState, error)) (*followed, error) {
	f := &followed{reading: r, kinds: map[object.GroupKind]*kindState{}}
	way := &follower{reading: r}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for _, k := range kinds {
		g.Go(func() error {
			s, err := find(ctx, way, k)
			if errors.Is(err, errWhole) || errors.Is(err, kube.ErrExactRefused) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			f.kinds[k.GroupKind] = s
			return nil
		})
	}
	return f, g.Wait()
}

// follows tells whether what the index has of a kind is what would be read of it.
func (b *base) follows(k kube.Kind) bool {
	was, ok := kube.FindKind(b.index.head.Kinds, k.GroupKind)
	return ok && reflect.DeepEqual(was, k) && !slices.Contains(b.index.head.NotInCut, k.GroupKind)
}

// followsAll tells so of all kinds.
func (b *base) followsAll(kinds []kube.Kind) bool {
	return !slices.ContainsFunc(kinds, func(k kube.Kind) bool { return !b.follows(k) })
}

// seen is the cut of the base, if it is known whole and the source has the same kinds: what there
// is as long as nothing has changed.
func (b *base) seen(kinds []kube.Kind) *Cut {
	if b.cut == nil || !reflect.DeepEqual(b.index.head.Kinds, kinds) {
		return nil
	}
	return b.cut
}

// reaches tells whether at is not before the base; nil reaches everything.
func (b *base) reaches(at string) bool { return b == nil || at == b.at || isLater(at, b.at) }

// fits tells whether the index was made by the same reader of the same scope and providers, and
// whether the same kinds have no namespace: which object a name means depends on that.
func (b *base) fits() bool {
	was := b.index.head
	return was.Reader == b.head.Reader && slices.Equal(was.Scope, b.head.Scope) &&
		slices.Equal(was.Providers, b.head.Providers) &&
		slices.Equal(clusterScoped(was.Kinds), clusterScoped(b.head.Kinds))
}

func clusterScoped(kinds []kube.Kind) (without []string) {
	for _, k := range kinds {
		if !k.Namespaced {
			without = append(without, k.GroupKind.String())
		}
	}
	slices.Sort(without)
	return without
}

// hold keeps the bytes of a changed object.
func (f *follower) hold(raw []byte) ([]byte, error) {
	if f.held.Add(int64(len(raw))) > heldBytes {
		return nil, errWhole
	}
	return slices.Clone(raw), nil
}

// watch lets the API server tell what changed since a kind was as in was.
func (f *follower) watch(ctx context.Context, k kube.Kind, was *kindState) (*kindState, error) {
	changed := map[object.Key][]byte{} // nil: deleted
	err := f.source.Changes(ctx, k, was.at, f.at, func(deleted bool, raw []byte) error {
		key, _ := keyOf(raw)
		f.held.Add(-int64(len(changed[key])))
		changed[key] = nil
		if deleted {
			return nil
		}
		held, err := f.hold(raw)
		changed[key] = held
		return err
	})
	if errors.Is(err, kube.ErrExpired) || errors.Is(err, kube.ErrUnproven) {
		return nil, fmt.Errorf("%w: %w", errWhole, err)
	}
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		return &kindState{at: f.at, nodes: was.nodes}, nil
	}
	s := &kindState{at: f.at, raw: changed}
	for _, n := range was.nodes {
		if _, is := changed[n.Key()]; !is {
			s.nodes = append(s.nodes, n)
		}
	}
	for _, raw := range changed {
		if raw != nil {
			s.nodes = append(s.nodes, f.read.node(k, raw))
		}
	}
	return s, nil
}

// keyOf is the name of an object, and its metadata.
func keyOf(raw []byte) (object.Key, gjson.Result) {
	meta := gjson.GetBytes(raw, "metadata")
	return object.Key{Namespace: text(meta.Get("namespace")), Name: text(meta.Get("name"))}, meta
}

// compare lists the metadata of a kind, as o says, and reads what is not as the index knows it.
func (f *follower) compare(ctx context.Context, k kube.Kind, nodes []*graph.Node,
	o kube.ListOptions) (
	*kindState, error) {
	known := map[object.Key]*graph.Node{}
	for _, n := range nodes {
		known[n.Key()] = n
	}
	s := &kindState{raw: map[object.Key][]byte{}}
	var changed []object.Key
	o.Metadata = true
	list, err := f.source.List(ctx, k, o, func(raw []byte) error {
		key, meta := keyOf(raw)
		n, version := known[key], meta.Get("resourceVersion").String()
		switch {
		case n == nil || n.UID != meta.Get("uid").String():
		case n.ResourceVersion == version:
			s.nodes = append(s.nodes, n)
			return nil
		case !isLater(version, n.ResourceVersion):
			return fmt.Errorf("%w: %s", errHistory, n.Ref)
		}
		if changed = append(changed, key); len(changed) > 50+len(known)/20 {
			return errWhole
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.at = list.ResourceVersion
	return s, f.fetch(ctx, k, changed, o.Exact, func(n *graph.Node, raw []byte) error {
		held, err := f.hold(raw)
		s.nodes = append(s.nodes, n)
		s.raw[n.Key()] = held
		return err
	})
}

func isLater(version, than string) bool {
	a, err := kube.ParseVersion(version)
	b, err2 := kube.ParseVersion(than)
	return err == nil && err2 == nil && a > b
}
