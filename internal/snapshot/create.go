package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
)

// captureTries is how often a capture starts from scratch after its resourceVersion expired in the
// middle, or a kind was removed.
const captureTries = 3

// ErrTooLong reports that a run exceeded store.MaxRun, after which a prune may have removed what
// it needs. The run left no snapshot, or one that it followed with another.
var ErrTooLong = fmt.Errorf("the snapshot took longer than %s: a prune may have removed what it "+
	"needs; take it again", strings.TrimSuffix(store.MaxRun.String(), "0m0s"))

// errParentGone reports that the parent is not the newest snapshot any more, or was deleted:
// nothing prevents a prune from deleting its keys. The run starts from scratch, with another parent
// or none.
var errParentGone = errors.New("the snapshot before was replaced or deleted while this " +
	"one was taken")

// Options of Create and CaptureInMemory.
type Options struct {
	Rows       *capi.Table // what is known of kinds; nil is the built-in table
	Source     capture.Source
	SourceName string
	SourceUID  string
	Kubernetes string
	// API is how the API server of the source is reached; nil when that is not known.
	API *kube.API
	// Providers reads the provider inventory of the source.
	Providers func(ctx context.Context, kinds []kube.Kind) ([]kube.Provider, error)
	Store     *store.Store
	Scope     capture.Scope
	// Schedule is the name of the schedule that creates the snapshot; empty without one.
	Schedule string
	// Operation is the id of the operation that takes the snapshot for itself; empty for all others.
	// Such a snapshot has the scope of the operation, holds what Scope says at the moment, is read
	// and written whole, and is no parent of another one. Result has it in memory too, so that the
	// caller needs no identity.
	Operation string
	// Known is the highest number of a snapshot of this source that the caller knows besides those
	// that the store shows: the next one is higher, so that a hidden one leaves a gap.
	Known  int64
	Writer string // version of this program, for the envelope
	// State makes the run read and write only what changed since the parent; nil reads and writes
	// everything.
	State incremental.StateStore
	// Cache holds the results of the last runs of this process, so that the next run need not open
	// what State has; nil caches nothing.
	Cache *incremental.RunCache
	// Full reads and writes everything all the same, for example after keys were lost.
	Full bool
	// TTL is for how long the snapshot asks to be retained; 0 does not ask.
	TTL time.Duration
	// Interval is that of the schedule that creates the snapshot; 0 without a schedule.
	Interval time.Duration
	// ExactLimit is capture.Options.ExactLimit.
	ExactLimit int
	// WithoutRelated, ListScope and Narrow are those of capture.Options, of CaptureInMemory and of
	// snapshots with an Operation.
	WithoutRelated, ListScope bool
	Narrow                    capture.Narrow
	Now                       func() time.Time
	// Progress receives what is counted, the count, and the total or 0.
	Progress func(what string, done, total int64)
}

// OptionsFor returns the options that name a source; nil rows are the built-in table.
func OptionsFor(source *kube.Mgmt, rows *capi.Table) Options {
	return Options{Source: source.Reader(), SourceName: source.Name(), SourceUID: source.UID(),
		Kubernetes: source.KubernetesVersion(), API: source.API(), Providers: source.Providers,
		Rows: rows}
}

func (o *Options) setDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
}

// scope returns the scope of the snapshot.
func (o *Options) scope() store.Scope {
	if o.Operation != "" {
		return store.OperationScope(o.SourceUID, o.Operation)
	}
	return store.ScopeOf(o.SourceUID, o.Scope.Namespaces, o.Scope.Selector.String(), o.Schedule)
}

// about describes the source and what was asked for.
func (o *Options) about(cut *capture.Cut, providers []kube.Provider) About {
	a := About{KubernetesVersion: o.Kubernetes, Kinds: cut.UsedKinds(), Providers: providers,
		API: o.API}
	if o.scope().ID != store.ScopeWhole {
		a.Selection = &Selection{Selector: o.Scope.Selector.String(),
			Namespaces: slices.Compact(slices.Sorted(slices.Values(o.Scope.Namespaces)))}
	}
	return a
}

func (o *Options) captureOptions(kinds []kube.Kind, baseline *capture.Baseline) capture.Options {
	return capture.Options{Source: o.Source, Kinds: kinds, Scope: o.Scope, Rows: o.Rows,
		Baseline:   baseline,
		ExactLimit: o.ExactLimit, WithoutRelated: o.WithoutRelated, ListScope: o.ListScope,
		Narrow: o.Narrow}
}

// Result of Create.
type Result struct {
	store.Signed
	Missing []graph.Missing
	// NotRestorable are objects that captured ones name and of whose kinds nothing is known: they are
	// captured, and not restored.
	NotRestorable []graph.Missing
	// Unread are kinds of which it is not known whether objects are related to captured ones.
	Unread []capture.Unread
	// Omitted are objects that have too many references.
	Omitted []graph.Omitted
	// Before counts what the snapshot before it in its scope has; nil when there is none.
	Before *store.Counts
	// PassedOver are envelopes that did not count in the search for the snapshot before it.
	PassedOver []store.PassedOver
	// Wrote is how many bytes of packs, shards and the envelope are new in the store; what Bytes
	// counts besides was stored before.
	Wrote int64
	// Read is how many objects were read from the source; the others are known from the parent.
	Read int64
	// NotRemembered is why the next run has to read and write everything, if it has to: the state
	// could not be updated.
	NotRemembered error
	// Live is what was stored, and Contents its objects, if Options.Operation is set.
	Live     *Snapshot
	Contents *Contents
}

// Create creates a snapshot: it captures the source at one resourceVersion, writes packs, shards,
// the tree and, last, the signed envelope. It may run any number of times and concurrently; each
// run creates a snapshot of its own. A run that fails leaves no snapshot, only keys that nothing
// names; there is one exception: if its parent was deleted in the moment in which its envelope was
// written, it follows that snapshot with another one. Create changes nothing on the source.
func Create(ctx context.Context, o Options) (*Result, error) {
	o.setDefaults()
	expired, left := 0, 0
	for {
		r, err := createOnce(ctx, o)
		switch {
		case errors.Is(err, kube.ErrExpired), apierrors.IsNotFound(err):
			// or a kind was removed since the source was asked for its kinds
			expired++
		case errors.Is(err, errParentGone), errors.Is(err, capture.ErrHistory):
			left++
			// the last try needs no parent
			o.Full = o.Full || left == captureTries-1 || errors.Is(err, capture.ErrHistory)
		default:
			return r, err
		}
		if expired == captureTries || left == captureTries {
			return r, err
		}
	}
}

// createOnce is one try of Create. Each phase gets the values of those before it and changes none
// of them, with one exception: the nodes of the parent belong to the run.
func createOnce(ctx context.Context, o Options) (*Result, error) {
	// A source that never comes to an end must not hold up a schedule for ever.
	ctx, cancel := context.WithTimeoutCause(ctx, store.MaxRun, ErrTooLong)
	defer cancel()
	result, err := createWithin(ctx, o)
	if err != nil && context.Cause(ctx) == ErrTooLong {
		return nil, ErrTooLong // not the error of the request that it ended
	}
	return result, err
}

// createWithin is createOnce with a context that ends when the run has taken too long.
func createWithin(ctx context.Context, o Options) (*Result, error) {
	if o.Operation != "" {
		o.State, o.Cache = nil, nil
	}
	r := &run{Options: o, began: o.Now(), chain: incremental.Chain{Store: o.Store,
		Source: o.SourceUID, Scope: o.scope().ID, State: o.State, Cache: o.Cache}}
	parent, err := r.chain.LoadParent(ctx, o.Full, r.began.UTC())
	if err != nil {
		return nil, err
	}
	captured, err := r.capture(ctx, parent)
	if err != nil {
		return nil, err
	}
	written, err := r.write(ctx, parent, captured)
	if err != nil {
		return nil, err
	}
	signed, before, passed, err := r.publish(ctx, parent, captured, written)
	if err != nil {
		return nil, err
	}
	result := &Result{Signed: signed, Missing: captured.cut.Graph.Missing,
		NotRestorable: captured.cut.Graph.NotRestorable(),
		Omitted:       captured.cut.Omitted, Unread: captured.cut.Unread, PassedOver: passed,
		Wrote: written.keys.NewBytes(parent) + signed.Size, Read: captured.read}
	if before != nil {
		result.Before = &before.Counts
	}
	result.NotRemembered = r.remember(ctx, parent, captured, written, signed)
	if o.Operation != "" {
		result.Live = &Snapshot{Envelope: signed.Envelope, About: captured.about,
			Graph: captured.cut.Graph, Omitted: captured.cut.Omitted, store: o.Store}
		result.Contents = captured.contents
	}
	return result, nil
}

// run is what all phases of one try share. It does not change.
type run struct {
	Options
	chain incremental.Chain
	began time.Time
}

// captured is the result of the phase capture: the objects of the cut are in packs.
type captured struct {
	cut      *capture.Cut
	about    About
	head     incremental.Head
	packs    []store.Key // that hold objects of the cut
	packKeys incremental.Keys
	read     int64     // objects whose bytes came from the source
	contents *Contents // nil without Options.Operation

	speculative []incremental.Shard // written before the cut was known
	// moved are nodes of shards of the parent, or of speculative ones, that are in other packs
	// now.
	moved movedNodes
}

// capture captures the source and writes the objects that are not stored yet into packs. No more
// than a few packs are in memory at once.
func (r *run) capture(ctx context.Context, parent *incremental.Parent) (*captured, error) {
	is, err := parent.Inspect(ctx, r.Source, r.Scope, r.Providers, r.Writer, r.Rows)
	if err != nil {
		return nil, err
	}
	baseline := parent.Baseline(is)
	about := func(cut *capture.Cut) About { return r.about(cut, is.Head.Providers) }
	w := &objectWriter{options: r.Options, parent: parent, began: r.began.UTC(),
		incremental: baseline != nil, about: about, added: map[*graph.Node]*store.PackRef{}}
	defer w.abort() // does nothing to packs that are closed
	if err := w.nextPacks(ctx); err != nil {
		return nil, err
	}
	var contents *Contents
	var to capture.Sink = w
	if r.Operation != "" {
		if contents, err = newContents(nil); err != nil {
			return nil, err
		}
		to = &both{w, contentsSink{contents}}
	}
	cut, err := capture.Run(ctx, r.captureOptions(is.Head.Kinds, baseline), to)
	if err != nil {
		return nil, err
	}
	if err := w.fetchPending(ctx, cut); err != nil {
		return nil, err
	}
	if contents != nil {
		err = contents.complete(ctx, r.Source, cut)
	}
	if err != nil {
		return nil, err
	}
	packs, keys, err := w.close(cut)
	if err != nil {
		return nil, err
	}
	return &captured{cut: cut, about: about(cut), head: is.Head, packs: packs, packKeys: keys,
		read: w.read, moved: nodeSet(w.pending), speculative: w.speculative, contents: contents}, nil
}

// remember stores what the next run can use.
func (r *run) remember(ctx context.Context, parent *incremental.Parent, c *captured, w *written,
	signed store.Signed) error {
	return r.chain.Remember(ctx, parent, r.Source, incremental.Run{Snapshot: signed, Head: c.head,
		Shards: w.shards, Cut: c.cut, Keys: w.keys}, r.Now)
}
