package capture

import (
	"context"
	"errors"
	"math"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
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

// ErrHistory reports that the source is not a later state of the baseline: its etcd was restored
// from a backup. The next capture must have no baseline.
var ErrHistory = errors.New("the source has gone back in time since the snapshot before")

// DefaultExactLimit is the largest object count for which a capture lists with
// resourceVersionMatch=Exact. Exact lists of a kind without recent writes are served from etcd, not
// from the watch cache, which is slow for many objects. Larger sources are listed from the watch
// cache and then watched, for at most two seconds, until all kinds are at one resourceVersion.
const DefaultExactLimit = 2000

// MaxReferences is how many owner references, and how many references in fields, an object may have
// to be captured. A template that workload clusters share has an owner reference to each of them,
// and there are thousands in a fleet. An API server accepts about 14,000, as many as fit into 1.5
// MiB, and each is longer in a snapshot than in its object.
const MaxReferences = 10_000

// captureLists is how many LISTs run at once: more only queue at the API server. Those of a few
// namespaces (Options.ListScope) are short, but an API server lets each wait for up to 100 ms until
// it has heard from etcd that a kind without writes has none (k8s.io/apiserver v0.36,
// storage/cacher/progress: progressRequestPeriod), so that more of them wait together.
const (
	captureLists = 4
	scopeLists   = 16
)

// Options of Run.
type Options struct {
	Source Source
	Kinds  []kube.Kind // all that the source serves
	Scope  Scope
	Rows   *capi.Table // what is known of kinds; nil is the built-in table
	// Baseline is what is known of the source; nil reads everything.
	Baseline *Baseline
	// ExactLimit replaces DefaultExactLimit: zero is the default, a negative limit makes every
	// source a large one.
	ExactLimit int
	// WithoutRelated leaves out the objects of kinds of which nothing is known. It needs a capture
	// without a baseline.
	WithoutRelated bool
	// ListScope lists the namespaces of the scope only, and reads by name what captured objects name
	// in others. What only others show is missing then: that an object has users there, or is owned
	// from there. A namespace that does not exist holds nothing. It is for a look at some workload
	// clusters of a large source, and needs WithoutRelated.
	ListScope bool
	// Narrow is for ListScope: it leaves out objects of these namespaces.
	Narrow Narrow
}

// Sink receives the objects of a capture. Prefetch and Object may be called from several
// goroutines; bytes are valid during the call.
type Sink interface {
	// Prefetch receives each object of a large source as it is listed. A later watch event may
	// still replace or delete the object. raw is nil for an object that is as in the baseline, and
	// as for Object.
	Prefetch(n *graph.Node, raw []byte) error
	// OnInitialList is called between the last Prefetch and the first Object with what the initial
	// lists give; most objects do not change after that. If it returns a function, that runs while
	// the watches catch up, and Run waits for it.
	OnInitialList(ctx context.Context, initial *Cut) (func(context.Context) error, error)
	// Object receives each object of the cut. raw is nil for an object that is as in the baseline,
	// or as Prefetch received it, or that has to be fetched: a selector holds no more than so many
	// bytes until it has decided.
	Object(n *graph.Node, raw []byte) error
}

// Run captures a source at one resourceVersion. It changes nothing on the source. When the
// resourceVersion expires in the middle it returns kube.ErrExpired, and when a kind is removed a
// NotFound error: capture again. When the source is older than the baseline it returns ErrHistory:
// capture again without one.
func Run(ctx context.Context, o Options, to Sink) (*Cut, error) {
	r := newRun(o)
	if o.ListScope {
		return r.exact(ctx, to)
	}
	if err := checkNamespaces(ctx, o.Source, o.Scope); err != nil {
		return nil, err
	}
	small, err := r.isSmall(ctx)
	if err != nil {
		return nil, err
	}
	if small {
		return r.exact(ctx, to)
	}
	return r.listAndWatch(ctx, to)
}

// Exact captures a source of any size by exact lists, without a baseline, and calls fn with every
// object. fn must copy the bytes that it needs later and may be called from several goroutines; it
// is called without bytes as Sink.Object is.
// Errors are those of Run.
func Exact(ctx context.Context, source Source, scope Scope, rows *capi.Table,
	fn func(n *graph.Node, raw []byte) error) (*Cut, error) {
	kinds, err := source.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNamespaces(ctx, source, scope); err != nil {
		return nil, err
	}
	r := newRun(Options{Source: source, Kinds: kinds, Scope: scope, Rows: rows})
	at, err := beginCut(ctx, r.reader)
	if err != nil {
		return nil, err
	}
	return r.cut(ctx, at, at, fn)
}

// run is one capture.
type run struct {
	Options
	reader  reader
	kinds   []kube.Kind // those of the selection that are listed first
	related []kube.Kind // those of which objects are captured by relation
}

func newRun(o Options) *run {
	selected, related := customKinds(o.Kinds, o.Rows)
	r := &run{Options: o, kinds: selected}
	r.reader = reader{source: o.Source, nodes: NewNodeReader(o.Kinds, o.Rows)}
	if o.WithoutRelated {
		return r
	}
	r.related = related
	r.reader.relation = newRelation(selected, related)
	if b := o.Baseline; b != nil {
		before, _ := customKinds(b.Kinds, o.Rows)
		b.incomplete = !sameKinds(before, selected) // it dropped objects by other kinds of owners
	}
	return r
}

// known are the kinds that a capture reads whole, or as far as it needs them.
func (r *run) known() []kube.Kind {
	return append(append([]kube.Kind{}, r.kinds...), kube.SecretKind, kube.ConfigMapKind,
		kube.NamespaceKind)
}

// all are the kinds that a capture reads.
func (r *run) all() []kube.Kind { return append(r.known(), r.related...) }

// isSmall reports whether the source has at most ExactLimit objects, about: as many as the baseline
// has, if there is one.
func (r *run) isSmall(ctx context.Context) (bool, error) {
	limit := r.ExactLimit
	if limit == 0 {
		limit = DefaultExactLimit
	}
	if r.Baseline != nil {
		return r.Baseline.objects() <= limit, nil
	}
	n, err := countObjects(ctx, r.Source, r.known())
	return n <= limit, err
}

// exact makes the cut from exact lists. With a baseline these are of metadata alone, and only what
// changed is read.
func (r *run) exact(ctx context.Context, to Sink) (*Cut, error) {
	at, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	if r.ListScope {
		at.narrow = r.Narrow
	}
	if r.Baseline == nil {
		return r.cut(ctx, at, at, to.Object)
	}
	var unchanged []kube.Kind
	for _, k := range r.counted(at) {
		if r.Baseline.unchangedKind(k) {
			unchanged = append(unchanged, k)
		}
	}
	from, err := catchUp(ctx, at, unchanged, func(ctx context.Context, t *changeTracker,
		k kube.Kind) (*kindState, error) {
		nodes, o := r.Baseline.Nodes[k.GroupKind], kube.ListOptions{Exact: at.at}
		if !r.Baseline.HistoryVerified || r.Baseline.incomplete || !r.reader.relation.is(k.GroupKind) {
			return t.compare(ctx, k, nodes, o, math.MaxInt)
		}
		s, err := t.compare(ctx, k, nodes, o, manyDropped)
		if errors.Is(err, errManyDropped) {
			s, err = t.watch(ctx, k, &kindState{at: r.Baseline.ResourceVersion, nodes: nodes}, at.at)
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	return r.cut(ctx, at, from, to.Object)
}

// listAndWatch makes the cut from initial lists, or from the baseline if watches can start there,
// and from watches.
func (r *run) listAndWatch(ctx context.Context, to Sink) (*Cut, error) {
	first := newInitialList(r.reader, r.Baseline)
	if first.verified && !r.Baseline.incomplete && r.Baseline.unchangedKinds(r.all()) {
		first.useBaseline()
		return r.watch(ctx, first, r.Baseline.cutOf(r.Kinds), to)
	}
	initial, err := r.newSelection(first, to.Prefetch).run(ctx)
	if err != nil {
		return nil, err
	}
	if first.restarted.Load() {
		initial = nil // the kinds are right, what was selected of them may not be
	}
	g, gctx := task.WithContext(ctx)
	if initial != nil {
		background, err := to.OnInitialList(ctx, initial)
		if err != nil {
			return nil, err
		}
		if background != nil {
			g.Go(func() error { return background(gctx) })
		}
	}
	var cut *Cut
	g.Go(func() (err error) {
		cut, err = r.watch(gctx, first, initial, to)
		return err
	})
	err = g.Wait()
	return cut, err
}

// watch makes the cut from initial lists. initial is what they gave, or nil: if no watch reports a
// change, that is the cut.
func (r *run) watch(ctx context.Context, first *initialList, initial *Cut, to Sink) (*Cut, error) {
	at, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	from, err := first.advance(ctx, at, r.counted(at))
	if err != nil {
		return nil, err
	}
	if initial == nil || !from.unchanged(r.all()) {
		return r.cut(ctx, at, from, to.Object)
	}
	for _, n := range initial.Graph.Nodes {
		if err := to.Object(n, nil); err != nil {
			return nil, err
		}
	}
	cut := *initial
	cut.ResourceVersion, cut.NotInCut = at.at, at.notInCut
	return &cut, nil
}

// begin decides on the resourceVersion of the cut, which must not be before the baseline.
func (r *run) begin(ctx context.Context) (*exactReader, error) {
	at, err := beginCut(ctx, r.reader)
	if err != nil {
		return nil, err
	}
	if r.Baseline != nil && !NotOlder(at.at, r.Baseline.ResourceVersion) {
		return nil, ErrHistory
	}
	return at, nil
}

// counted are the kinds whose resourceVersions count with that of the cut.
func (r *run) counted(at *exactReader) []kube.Kind {
	var kinds []kube.Kind
	for _, k := range r.all() {
		if !at.separateEtcd[k.GroupKind] {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// cut selects the objects of the cut from what from reads.
func (r *run) cut(ctx context.Context, at *exactReader, from objects,
	fn func(*graph.Node, []byte) error) (*Cut, error) {
	cut, err := r.newSelection(from, fn).run(ctx)
	if err != nil {
		return nil, err
	}
	cut.ResourceVersion, cut.NotInCut = at.at, at.notInCut
	cut.Unread = r.reader.relation.notRead()
	return cut, nil
}

// objects reads what a source has.
type objects interface {
	// each calls fn with the objects of a kind, of one namespace or one name if these are not
	// empty. raw is nil for an object that is as in the baseline; its node has no Pack if the
	// baseline's snapshot does not hold the object. Bytes are valid during the call.
	each(ctx context.Context, k kube.Kind, namespace, name string,
		fn func(n *graph.Node, raw []byte) error) error
}

// Cut is the result of a capture.
type Cut struct {
	// ResourceVersion is the one as of which every kind was read, except those in NotInCut.
	ResourceVersion string
	// NotInCut are kinds that the server does not serve as of a resourceVersion; they were read at
	// their newest state.
	NotInCut []object.GroupKind
	// Unread are related kinds that could not be read.
	Unread []Unread
	Kinds  []kube.Kind // all that the source serves
	Graph  *graph.Graph
	// LeftOut are the Secrets and ConfigMaps in scope that nothing captured owns, names or labels.
	LeftOut []object.Ref
	// NotSelected are the nodes of objects that are captured without the selector of the scope, and
	// not with it.
	NotSelected []*graph.Node
	// Omitted are the objects that are in scope and have more than MaxReferences.
	Omitted []graph.Omitted
	// NotCaptured are the nodes of all objects that were read and not captured.
	NotCaptured []*graph.Node
}

// UsedKinds are the kinds of captured objects, and of the objects that these name: whether a kind
// is namespaced decides which object a name means.
func (c *Cut) UsedKinds() []kube.Kind {
	used := map[object.GroupKind]bool{}
	for _, n := range c.Graph.Nodes {
		used[n.GroupKind()] = true
		for _, o := range n.Owners {
			used[o.GroupKind()] = true
		}
		for _, need := range n.Needs {
			used[need.GroupKind()] = true
		}
	}
	var kinds []kube.Kind
	for _, k := range c.Kinds {
		if used[k.GroupKind] {
			kinds = append(kinds, k)
		}
	}
	return kinds
}
