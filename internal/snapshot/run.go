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
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
)

// captureTries is how often a capture begins anew after its resourceVersion expired in the middle,
// or a kind of it went.
const captureTries = 3

// ErrTooLong reports that a run exceeded store.MaxRun, after which a prune may have removed what it
// needs. The run left no snapshot, or one that it followed with another.
var ErrTooLong = fmt.Errorf("the snapshot took longer than %s: a prune may have removed what it "+
	"needs; take it again", strings.TrimSuffix(store.MaxRun.String(), "0m0s"))

// Options of Run.
type Options struct {
	Source     Source
	SourceName string
	SourceUID  string
	Kubernetes string
	// Providers reads the provider inventory of the source.
	Providers func(ctx context.Context, kinds []kube.Kind) ([]kube.Provider, error)
	Rows      *capi.Table // what is known of kinds; nil is the built-in table
	Store     *store.Store
	Scope     Scope
	Writer    string // version of this program, for the envelope
	// State makes the run read and write only what changed since the parent; nil reads and writes
	// everything.
	State incremental.StateStore
	// Cache holds the results of the last runs of this process, so that the next run need not open
	// what State has; nil caches nothing.
	Cache *RunCache
	// Full writes everything all the same, for example after keys were lost.
	Full bool
	// TTL is how long the snapshot says that it is to be kept; 0 says nothing about it.
	TTL time.Duration
	// Interval is how often the schedule takes one that this snapshot is for; 0 when none does.
	Interval time.Duration
	// Keep asks for the objects in memory too: whoever has the source before him needs no identity
	// to read them back.
	Keep bool
	Now  func() time.Time
	// Progress is told what is counted, how far it is, and the total or 0.
	Progress func(what string, done, total int64)
}

// Result of Run.
type Result struct {
	store.Signed
	Missing []graph.Missing
	// Wrote is how many bytes of packs, shards and the envelope are new in the store; what Bytes
	// counts besides was there.
	Wrote int64
	// Read is how many objects were read from the source; the others are known from the snapshot
	// before.
	Read int64
	// NotRemembered is why the next run has to write everything, if it has to: State could not be
	// updated.
	NotRemembered error
	// Live and Contents are what was stored, when Options.Keep asks for it.
	Live     *Snapshot
	Contents *Contents
}

// Run takes a snapshot: it captures the source at one resourceVersion, writes packs, shards, the
// tree and, last, the signed envelope. It may run any number of times and at once; each makes a
// snapshot of its own. A run that ends early leaves no snapshot, only keys that nothing names; but
// for one whose base was deleted in the moment in which its envelope was written, which it follows
// with another one. It changes nothing on the source.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	expired, left := 0, 0
	for {
		r, err := runOnce(ctx, o)
		switch {
		case errors.Is(err, kube.ErrExpired), apierrors.IsNotFound(err):
			// or a kind went since the source was asked for its kinds
			expired++
		case errors.Is(err, errBaseLeft), errors.Is(err, errHistory):
			left++
			// the last try needs no base
			o.Full = o.Full || left == captureTries-1 || errors.Is(err, errHistory)
		default:
			return r, err
		}
		if expired == captureTries || left == captureTries {
			return r, err
		}
	}
}

func runOnce(ctx context.Context, o Options) (*Result, error) {
	began := o.Now()
	started := began.UTC()
	reuse, err := recall(ctx, o, started)
	if err != nil {
		return nil, err
	}
	var contents *Contents
	if o.Keep {
		if contents, err = newContents(nil); err != nil {
			return nil, err
		}
	}
	head, err := reuse.ask(ctx, o)
	if err != nil {
		return nil, err
	}
	var since *base
	if !o.Keep { // who wants the objects in memory has to read them
		since = reuse.since(head)
	}
	writer := &shardWriter{options: o, reuse: reuse, kept: reuse.shards}
	about := func(cut *Cut) About {
		return About{KubernetesVersion: o.Kubernetes, Kinds: usedKinds(cut), Providers: head.Providers}
	}
	p := &packing{options: o, reuse: reuse, started: started, contents: contents, shards: writer,
		about: about, added: map[*graph.Node]*store.PackRef{}}
	cut, packs, err := p.capture(ctx, head.Kinds, since)
	if err != nil {
		return nil, err
	}
	if err := validateCut(cut); err != nil {
		return nil, err
	}
	writer.forget(p.fetch) // the same nodes are in other packs now
	stored, err := writer.put(ctx, shards(cut.Graph, about(cut)),
		func(done, total int64) { o.Progress("shards written", done, total) })
	if err != nil {
		return nil, err
	}
	shards := make([]store.Key, len(stored))
	for i, s := range stored {
		shards[i] = s.at.Key
		if s.isNew {
			reuse.learn(s.at, started)
		} else {
			reuse.use(s.at.Key)
		}
	}
	treeKey, bytes, err := reuse.putTree(ctx, o, store.Tree{Shards: shards, Packs: packs})
	if err != nil {
		return nil, err
	}
	if err := reuse.retain(ctx, o, treeKey); err != nil {
		return nil, err
	}
	parent, err := newest(ctx, o)
	if err == nil {
		err = reuse.follows(parent)
	}
	if err != nil {
		return nil, err
	}
	envelope := store.Envelope{
		ID:       store.NewSnapshotID(),
		Sequence: 1,
		Time:     started,
		Source: store.Source{UID: o.SourceUID, Name: o.SourceName,
			KubernetesVersion: o.Kubernetes},
		ResourceVersion: cut.ResourceVersion,
		Tree:            treeKey,
		Counts:          counts(cut),
		Bytes:           bytes,
		Partial:         len(o.Scope.Namespaces) > 0,
		Writer:          o.Writer,
		Interval:        int64(o.Interval / time.Second),
	}
	for _, gk := range cut.NotInCut {
		envelope.NotInCut = append(envelope.NotInCut, gk.String())
	}
	if parent != nil {
		envelope.Sequence, envelope.Parent = parent.Sequence+1, &store.Parent{ID: parent.ID,
			SHA256: parent.SHA256}
	}
	if o.TTL > 0 {
		envelope.Expires = started.Add(o.TTL)
	}
	if store.Exceeded(began, o.Now(), store.MaxRun) {
		return nil, ErrTooLong
	}
	signed, err := o.Store.PutEnvelope(ctx, envelope)
	if errors.Is(err, store.ErrNotFound) && reuse.base != nil {
		err = errBaseLeft // its tree is gone
	}
	if err == nil && store.Exceeded(began, o.Now(), store.MaxRun) {
		err = fmt.Errorf("%w (%w)", ErrTooLong, errBaseLeft) // it was asleep, or the write was slow
	}
	if err == nil {
		err = reuse.kept(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	r := &Result{Signed: signed, Missing: cut.Graph.Missing, Wrote: reuse.wrote() + signed.Size,
		Read: p.read, Contents: contents}
	if reuse.memory != nil {
		head.NotInCut = cut.NotInCut
		// without a fingerprint the next run cannot use watches from here
		if f, err := fingerprintLeases(ctx, o.Source, cut.ResourceVersion); err == nil {
			head.History = f.proof(o.Now())
		}
		r.NotRemembered = reuse.remember(ctx, o, signed, head, stored, cut)
	}
	if o.Keep {
		r.Live = &Snapshot{Envelope: signed.Envelope, About: about(cut), Graph: cut.Graph, store: o.Store}
	}
	return r, nil
}

// validateCut is the last check before a snapshot is signed: every object occurs once and is in a
// pack. Otherwise the snapshot could not be opened, and a verification of its structure, which reads
// no shards, would not find that.
func validateCut(cut *Cut) error {
	if cut.Graph.Distinct() != len(cut.Graph.Nodes) {
		return fmt.Errorf("take a snapshot: %d objects have %d names; this is an error of the "+
			"program, no snapshot was made", len(cut.Graph.Nodes), cut.Graph.Distinct())
	}
	for _, n := range cut.Graph.Nodes {
		if n.Pack == "" {
			return fmt.Errorf("take a snapshot: %s is in no pack; this is an error of the program, no "+
				"snapshot was made", n.Ref)
		}
	}
	return nil
}

func counts(cut *Cut) store.Counts {
	return store.Counts{
		Objects: int64(len(cut.Graph.Nodes)), Units: int64(len(cut.Graph.Clusters())),
		Missing: int64(len(cut.Graph.Missing)), NotInCut: int64(len(cut.NotInCut)),
	}
}

// newest returns the snapshot that the next one follows: the newest one whose envelope can be read;
// nil when there is none. One that is damaged must not keep the next from being taken; the gap that
// it leaves shows in the chain.
func newest(ctx context.Context, o Options) (*store.Signed, error) {
	keys, err := o.Store.Snapshots(ctx, o.SourceUID)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Backward(keys) {
		e, err := o.Store.GetEnvelope(ctx, key)
		if _, damaged := errors.AsType[*store.CorruptError](err); damaged ||
			errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if o.Store.CanBeParent(&e) {
			return &e, nil
		}
	}
	return nil, nil
}

// usedKinds are the kinds of what the cut holds, and of what that names: whether these have a
// namespace decides which object a name means.
func usedKinds(cut *Cut) []kube.Kind {
	used := map[object.GroupKind]bool{}
	for _, n := range cut.Graph.Nodes {
		used[n.GroupKind()] = true
		for _, o := range n.Owners {
			used[o.GroupKind()] = true
		}
		for _, need := range n.Needs {
			used[need.GroupKind()] = true
		}
	}
	var kinds []kube.Kind
	for _, k := range cut.Kinds {
		if used[k.GroupKind] {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Look captures a source into memory and stores nothing: what a plan is made from while the source
// is there. Of the options it needs Source, SourceName, SourceUID, Kubernetes, Providers and Scope.
// It changes nothing and may run any number of times.
func Look(ctx context.Context, o Options) (*Snapshot, *Contents, error) {
	for try := 1; ; try++ {
		s, c, err := lookOnce(ctx, o)
		if err == nil || !errors.Is(err, kube.ErrExpired) || try == captureTries {
			return s, c, err
		}
	}
}

func lookOnce(ctx context.Context, o Options) (*Snapshot, *Contents, error) {
	started := time.Now().UTC()
	contents, err := newContents(nil)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := o.Source.Kinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	put := func(n *graph.Node, raw []byte) error {
		if raw != nil {
			contents.put(n.Ref, raw)
		}
		return nil
	}
	cut, err := captureSince(ctx, o.Source, kinds, o.Scope, o.Rows, nil, takers{early: put, keep: put})
	if err == nil {
		err = contents.complete(ctx, o.Source, cut)
	}
	if err != nil {
		return nil, nil, err
	}
	providers, err := o.Providers(ctx, kinds)
	if err != nil {
		return nil, nil, err
	}
	e := store.Envelope{
		Time: started, Source: store.Source{UID: o.SourceUID, Name: o.SourceName,
			KubernetesVersion: o.Kubernetes},
		ResourceVersion: cut.ResourceVersion, Counts: counts(cut), Partial: len(o.Scope.Namespaces) > 0,
	}
	for _, gk := range cut.NotInCut {
		e.NotInCut = append(e.NotInCut, gk.String())
	}
	return &Snapshot{Envelope: e, About: About{KubernetesVersion: o.Kubernetes, Kinds: usedKinds(cut),
		Providers: providers}, Graph: cut.Graph}, contents, nil
}
