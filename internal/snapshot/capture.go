package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Source is what capturing needs of a management cluster. It cannot write.
type Source interface {
	Kinds(ctx context.Context) ([]kube.Kind, error)
	List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func(raw []byte) error) (
		kube.ListResult, error)
	Changes(ctx context.Context, k kube.Kind, from, to string,
		fn func(deleted bool, raw []byte) error) error
}

var _ Source = (*kube.Reader)(nil)

// captureLists is how many LISTs run at once: more only queue at the API server.
const captureLists = 4

// Scope is what a snapshot is asked to hold. The zero value is everything.
type Scope struct {
	// Namespaces are captured whole, with what they need from others; cluster-scoped objects always
	// are. Empty captures all namespaces.
	Namespaces []string
}

func (s Scope) has(namespace string) bool {
	return len(s.Namespaces) == 0 || namespace == "" || slices.Contains(s.Namespaces, namespace)
}

// Cut is the result of a capture.
type Cut struct {
	// ResourceVersion is the one at which every kind was read, but for those in NotInCut.
	ResourceVersion string
	// NotInCut are kinds for which the server refused an exact read; they were read at its newest
	// state.
	NotInCut []object.GroupKind
	Kinds    []kube.Kind
	Graph    *graph.Graph
	// LeftOut are the Secrets and ConfigMaps in scope that nothing captured owns, names or labels.
	LeftOut []object.Ref

	left []*graph.Node // all that was read and not captured
}

// Capture reads source as of one resourceVersion and gives every object's bytes to keep, which must
// copy what it wants to hold and may be called from several goroutines. It changes nothing on the
// source. When the resourceVersion expires in the middle it returns kube.ErrExpired: begin anew.
func Capture(ctx context.Context, source Source, scope Scope, rows *capi.Table,
	keep func(n *graph.Node, raw []byte) error) (*Cut, error) {
	kinds, err := source.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNamespaces(ctx, source, scope); err != nil {
		return nil, err
	}
	c := newCapture(source, kinds, scope, rows)
	if err := c.reading.begin(ctx); err != nil {
		return nil, err
	}
	return c.run(ctx, c.reading, keep)
}

// takers get what a capture reads.
type takers struct {
	// early gets objects of which it is not sure that they are in the cut, and with these bytes.
	early func(n *graph.Node, raw []byte) error
	// looked, if there is one, is told what the source had at first. What it returns is called
	// while the rest is captured.
	looked func(context.Context, *Cut) (func(context.Context) error, error)
	// keep gets every object of the cut, and without bytes one that is as the base knows it, or as
	// it was given to early.
	keep func(n *graph.Node, raw []byte) error
}

// captureSince is Capture of known kinds that reads less: what since, which may be nil, knows is
// not read again.
func captureSince(ctx context.Context, source Source, kinds []kube.Kind, scope Scope,
	rows *capi.Table, since *base, to takers) (*Cut, error) {
	if err := checkNamespaces(ctx, source, scope); err != nil {
		return nil, err
	}
	c := newCapture(source, kinds, scope, rows)
	size, err := since.size(ctx, source, c.all())
	if err != nil {
		return nil, err
	}
	if size <= smallSource {
		return c.runSince(ctx, nil, nil, since, to.keep)
	}
	first := &look{follower: &follower{reading: c.reading}, since: since, proven: since != nil &&
		since.proven, kinds: map[object.GroupKind]*kindState{}}
	if first.proven && since.followsAll(c.all()) {
		first.known()
		return c.runSince(ctx, first, since.seen(kinds), since, to.keep) // the base is the look
	}
	seen, err := newCapture(source, kinds, scope, rows).run(ctx, first, to.early)
	if err != nil {
		return nil, err
	}
	if first.twice.Load() {
		seen = nil // the kinds are right, what was made of them is not
	}
	g, gctx := errgroup.WithContext(ctx)
	if to.looked != nil && seen != nil {
		beside, err := to.looked(ctx, seen)
		if err != nil {
			return nil, err
		}
		g.Go(func() error { return beside(gctx) })
	}
	var cut *Cut
	g.Go(func() (err error) {
		cut, err = c.runSince(gctx, first, seen, since, to.keep)
		return err
	})
	err = g.Wait()
	return cut, err
}

// all are the kinds that are looked at.
func (c *capture) all() []kube.Kind {
	return append(slices.Clone(c.kinds), kube.SecretKind, kube.ConfigMapKind, kube.NamespaceKind)
}

// runSince makes the cut, from a first look and what it saw, or from a base, if there is one.
func (c *capture) runSince(ctx context.Context, first *look, seen *Cut, since *base,
	keep func(*graph.Node, []byte) error) (*Cut, error) {
	if err := c.reading.begin(ctx); err != nil {
		return nil, err
	}
	if !since.reaches(c.reading.at) {
		return nil, errHistory
	}
	var f *followed
	var err error
	counted := slices.DeleteFunc(c.all(), c.reading.isApart)
	switch {
	case first != nil:
		f, err = first.advance(ctx, c.reading, counted)
	case since != nil:
		known := slices.DeleteFunc(counted, func(k kube.Kind) bool { return !since.follows(k) })
		f, err = follow(ctx, c.reading, known, func(ctx context.Context, f *follower, k kube.Kind) (
			*kindState, error) {
			return f.compare(ctx, k, since.index.nodes[k.GroupKind], kube.ListOptions{Exact: f.at})
		})
	default:
		return c.run(ctx, c.reading, keep)
	}
	if err != nil {
		return nil, err
	}
	if seen != nil && f.unchanged(c.all()) {
		return c.confirm(seen, keep)
	}
	return c.run(ctx, f, keep)
}

// confirm makes what was seen the cut: nothing has changed since.
func (c *capture) confirm(seen *Cut, keep func(*graph.Node, []byte) error) (*Cut, error) {
	for _, n := range seen.Graph.Nodes {
		if err := keep(n, nil); err != nil {
			return nil, err
		}
	}
	seen.ResourceVersion, seen.NotInCut = c.reading.at, c.reading.notInCut
	return seen, nil
}

// UnknownNamespaceError says that a namespace in the scope does not exist: a typing error that
// would give an empty snapshot.
type UnknownNamespaceError struct{ Namespace string }

func (e *UnknownNamespaceError) Error() string {
	return fmt.Sprintf("namespace %s: not found on the source", e.Namespace)
}

// Hint tells the operator what to do.
func (e *UnknownNamespaceError) Hint() string {
	return "name a namespace that exists; without --namespace all are captured"
}

func checkNamespaces(ctx context.Context, source Source, scope Scope) error {
	for _, ns := range scope.Namespaces {
		got, err := source.List(ctx, kube.NamespaceKind, kube.ListOptions{Name: ns, Metadata: true},
			func([]byte) error { return nil })
		if err != nil {
			return err
		}
		if got.Items == 0 {
			return &UnknownNamespaceError{ns}
		}
	}
	return nil
}

// capture is one run. Kinds of Cluster API come first: what they own and name decides which Secrets
// and ConfigMaps are needed, and what lies in which namespace decides which Namespaces are.
type capture struct {
	reading *reading
	kinds   []kube.Kind // those that are read whole
	scope   Scope
	objects objects
	keep    func(*graph.Node, []byte) error
	cut     *Cut

	mu    sync.Mutex
	nodes []*graph.Node
	index map[object.Ref]*graph.Node
	// read and not captured so far: what is in no namespace of the scope is, once it is needed
	outside map[object.Ref]*graph.Node
	wanted  map[object.Ref]string // named by a captured object, and by which field
}

func newCapture(source Source, kinds []kube.Kind, scope Scope, rows *capi.Table) *capture {
	r := &reading{source: source, read: newReader(kinds, rows)}
	return &capture{
		reading: r, kinds: captureKinds(kinds, rows), scope: scope, cut: &Cut{Kinds: kinds},
		outside: map[object.Ref]*graph.Node{}, index: map[object.Ref]*graph.Node{},
		wanted: map[object.Ref]string{},
	}
}

func (c *capture) run(ctx context.Context, from objects, keep func(*graph.Node, []byte) error) (
	*Cut,
	error) {
	c.objects, c.keep = from, keep
	if err := c.listAll(ctx, c.kinds, func(n *graph.Node) (string, bool) {
		return "kind of Cluster API", c.scope.has(n.Namespace)
	}); err != nil {
		return nil, err
	}
	if err := c.fetchNeeded(ctx); err != nil {
		return nil, err
	}
	if err := c.listAll(ctx, []kube.Kind{kube.SecretKind, kube.ConfigMapKind},
		c.wantCore); err != nil {
		return nil, err
	}
	if err := c.fetchOwned(ctx); err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, n := range c.nodes {
		used[n.Namespace] = true
	}
	if err := c.listAll(ctx, []kube.Kind{kube.NamespaceKind}, func(n *graph.Node) (string, bool) {
		return "holds captured objects", used[n.Name]
	}); err != nil {
		return nil, err
	}
	c.cut.left = slices.Collect(maps.Values(c.outside))
	for _, n := range c.cut.left {
		if isCore(n) && c.scope.has(n.Namespace) {
			c.cut.LeftOut = append(c.cut.LeftOut, n.Ref)
		}
	}
	slices.SortFunc(c.cut.LeftOut, object.CompareRefs)
	c.cut.ResourceVersion, c.cut.NotInCut = c.reading.at, c.reading.notInCut
	c.cut.Graph = graph.New(c.nodes, c.reading.read.rows)
	return c.cut, nil
}

// captureKinds are the kinds that are read whole: those that belong to Cluster API by label, and
// those that rows knows.
func captureKinds(kinds []kube.Kind, rows *capi.Table) []kube.Kind {
	var out []kube.Kind
	for _, k := range kinds {
		if k.Group != "" && (k.Contract || rows.Known(k.GroupKind)) {
			out = append(out, k)
		}
	}
	return out
}

func (c *capture) listAll(ctx context.Context, kinds []kube.Kind, want func(*graph.Node) (string,
	bool)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(captureLists)
	for _, k := range kinds {
		g.Go(func() error { return c.list(ctx, k, "", "", want) })
	}
	return g.Wait()
}

// list takes in one kind, or one object of it, as far as it is wanted.
func (c *capture) list(ctx context.Context, k kube.Kind, namespace, name string,
	want func(*graph.Node) (string, bool)) error {
	return c.objects.each(ctx, k, namespace, name, func(n *graph.Node, raw []byte) error {
		why, ok := want(n)
		if !ok {
			c.leave(n)
			return nil
		}
		n.Why = why
		c.take(n)
		return c.keep(n, raw)
	})
}

func (c *capture) take(n *graph.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.outside, n.Ref)
	c.nodes = append(c.nodes, n)
	c.index[n.Ref] = n
	for _, need := range n.Needs {
		if c.wanted[need.Ref] == "" {
			c.wanted[need.Ref] = fmt.Sprintf("named by %s in %s", n.Ref, need.Field)
		}
	}
}

func (c *capture) leave(n *graph.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outside[n.Ref] = n
}

func isCore(n *graph.Node) bool {
	return n.GroupKind() == capi.Secret || n.GroupKind() == capi.ConfigMap
}

// fetchOwned takes in Secrets and ConfigMaps that one which is captured owns, whichever of them
// came first.
func (c *capture) fetchOwned(ctx context.Context) error {
	for {
		var more []*graph.Node
		for _, n := range c.outside {
			if isCore(n) && len(n.Owners) > 0 {
				if _, ok := c.wantCore(n); ok {
					more = append(more, n)
				}
			}
		}
		if len(more) == 0 {
			return nil
		}
		slices.SortFunc(more, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
		for _, n := range more {
			k, _ := kube.FindKind(c.cut.Kinds, n.GroupKind())
			if err := c.list(ctx, k, n.Namespace, n.Name, c.wantCore); err != nil {
				return err
			}
			// also one that is gone by now, from a source that is read as it is
			delete(c.outside, n.Ref)
		}
	}
}

// fetchNeeded takes in what captured objects need from namespaces outside of the scope, and what
// that needs in turn, for example a ClusterClass and its templates.
func (c *capture) fetchNeeded(ctx context.Context) error {
	done := map[object.Ref]bool{}
	for {
		var more []*graph.Node
		for ref := range c.wanted {
			if n := c.outside[ref]; n != nil && !done[ref] {
				done[ref] = true
				more = append(more, n)
			}
		}
		if len(more) == 0 {
			return nil
		}
		slices.SortFunc(more, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
		for _, n := range more {
			k, _ := kube.FindKind(c.cut.Kinds, n.GroupKind())
			why := c.wanted[n.Ref]
			if err := c.list(ctx, k, n.Namespace, n.Name, func(*graph.Node) (string, bool) {
				return why,
					true
			}); err != nil {
				return err
			}
		}
	}
}

// wantCore decides over Secrets and ConfigMaps: in are those that a captured object owns or names,
// those labelled for a captured Cluster or for a move, and certificates by their name.
func (c *capture) wantCore(n *graph.Node) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isLock(n) {
		return "", false
	}
	for _, o := range n.Owners {
		if owner := c.index[o.Ref]; owner != nil {
			return "owned by " + o.Ref.String(), true
		}
	}
	if why := c.wanted[n.Ref]; why != "" {
		return why, true
	}
	if !c.scope.has(n.Namespace) {
		return "", false
	}
	if n.Cluster != "" && c.index[object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: n.Namespace, Name: n.Cluster}] != nil {
		return "labelled or named for Cluster " + n.Key().Namespace + "/" + n.Cluster, true
	}
	if n.Movable {
		return "labelled for clusterctl move", true
	}
	return "", false
}

// isLock reports whether a ConfigMap is the lock of a provider, owned by its Cluster.
func (c *capture) isLock(n *graph.Node) bool {
	cluster, ok := c.reading.read.rows.ClusterOfLock(n.Ref)
	return ok && slices.ContainsFunc(n.Owners, func(o graph.Owner) bool { return o.Ref == cluster })
}
