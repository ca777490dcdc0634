package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
)

// captureTries is how often a capture begins anew after its resourceVersion expired in the middle.
const captureTries = 3

// shardWrites is how many shards are encrypted and stored at once.
const shardWrites = 4

// Options of Run.
type Options struct {
	Source     Source
	SourceName string
	SourceUID  string
	Kubernetes string
	// Providers reads the provider inventory of the source.
	Providers func(ctx context.Context, kinds []mgmt.Kind) ([]mgmt.Provider, error)
	Store     *store.Store
	Scope     Scope
	Writer    string // version of this program, for the envelope
	// Interval is how often the schedule takes one that this snapshot is for; 0 when none does.
	Interval time.Duration
	// Keep asks for the objects in memory too: whoever has the source before him needs no identity to read them back.
	Keep bool
	Now  func() time.Time
	// Progress is told what is counted, how far it is, and the total or 0.
	Progress func(what string, done, total int64)
}

// Result of Run.
type Result struct {
	store.Signed
	Missing []Missing
	// Live and Contents are what was stored, when Options.Keep asks for it.
	Live     *Snapshot
	Contents *Contents
}

// Run takes a snapshot: it captures the source at one resourceVersion, writes packs, shards, the tree and, last, the signed envelope. It may run any number
// of times and at once; each makes a snapshot of its own. A run that ends early leaves no snapshot, only keys that nothing names. It changes nothing on the
// source.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	for try := 1; ; try++ {
		r, err := runOnce(ctx, o)
		if err == nil || !errors.Is(err, mgmt.ErrExpired) || try == captureTries {
			return r, err
		}
	}
}

func runOnce(ctx context.Context, o Options) (*Result, error) {
	started := o.Now().UTC()
	var contents *Contents
	if o.Keep {
		var err error
		if contents, err = newContents(nil); err != nil {
			return nil, err
		}
	}
	cut, packs, err := captureToPacks(ctx, o, started, contents)
	if err != nil {
		return nil, err
	}
	providers, err := o.Providers(ctx, cut.Kinds)
	if err != nil {
		return nil, err
	}
	tree := store.Tree{}
	var bytes int64
	for _, p := range packs {
		tree.Packs = append(tree.Packs, p.Key)
		bytes += p.Size
	}
	about := About{KubernetesVersion: o.Kubernetes, Kinds: usedKinds(cut), Providers: providers}
	stored, err := putShards(ctx, o, shards(cut.Graph, about))
	if err != nil {
		return nil, err
	}
	for _, s := range stored {
		tree.Shards = append(tree.Shards, s.Key)
		bytes += s.Size
	}
	treeKey, err := o.Store.PutTree(ctx, tree)
	if err != nil {
		return nil, err
	}
	sequence, parent, err := after(ctx, o)
	if err != nil {
		return nil, err
	}
	envelope := store.Envelope{
		ID:              store.NewSnapshotID(),
		Sequence:        sequence,
		Parent:          parent,
		Time:            started,
		Source:          store.Source{UID: o.SourceUID, Name: o.SourceName, KubernetesVersion: o.Kubernetes},
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
	signed, err := o.Store.PutEnvelope(ctx, envelope)
	if err != nil {
		return nil, err
	}
	r := &Result{Signed: signed, Missing: cut.Graph.Missing, Contents: contents}
	if o.Keep {
		r.Live = &Snapshot{Envelope: signed.Envelope, About: about, Graph: cut.Graph, store: o.Store}
	}
	return r, nil
}

func counts(cut *Cut) store.Counts {
	return store.Counts{
		Objects: int64(len(cut.Graph.Nodes)), Units: int64(len(cut.Graph.Clusters())),
		Missing: int64(len(cut.Graph.Missing)), NotInCut: int64(len(cut.NotInCut)),
	}
}

// after returns the number of the next snapshot of the source and what it has to name as its parent: the newest one whose envelope can be read. One that
// is damaged must not keep the next from being taken; the gap that it leaves shows in the chain.
func after(ctx context.Context, o Options) (int64, *store.Parent, error) {
	keys, err := o.Store.Snapshots(ctx, o.SourceUID)
	if err != nil {
		return 0, nil, err
	}
	for i := len(keys) - 1; i >= 0; i-- {
		e, err := o.Store.GetEnvelope(ctx, keys[i])
		if _, damaged := errors.AsType[*store.CorruptError](err); damaged || errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if e.Trust == store.Stranger || o.Store.Encrypted() && e.Trust == store.Unsigned || e.Sequence == math.MaxInt64 {
			continue // whoever can write to the bucket could end the count of snapshots with it
		}
		return e.Sequence + 1, &store.Parent{ID: e.ID, SHA256: e.SHA256}, nil
	}
	return 1, nil, nil
}

// captureToPacks streams every object from the source into packs. No more than a few packs are in memory at once.
func captureToPacks(ctx context.Context, o Options, started time.Time, contents *Contents) (*Cut, []store.Stored, error) {
	w, err := o.Store.NewPackWriter(ctx, started)
	if err != nil {
		return nil, nil, err
	}
	defer w.Abort() // does nothing after Close
	var mu sync.Mutex
	var count atomic.Int64
	places := map[*Node]*store.PackRef{}
	cut, err := Capture(ctx, o.Source, o.Scope, Rules, func(n *Node, raw []byte) error {
		name, err := store.EntryName(store.Entry{Group: n.Group, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name})
		if err != nil {
			return err
		}
		place, err := w.Add(name, raw)
		if err != nil {
			return err
		}
		if contents != nil {
			contents.put(n.Ref, raw)
		}
		mu.Lock()
		places[n] = place
		mu.Unlock()
		o.Progress("objects captured", count.Add(1), 0)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	for n, place := range places {
		n.Pack = string(place.Key())
	}
	return cut, w.Packs(), nil
}

func putShards(ctx context.Context, o Options, list []Shard) ([]store.Stored, error) {
	stored := make([]store.Stored, len(list))
	var count atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(shardWrites)
	for i, s := range list {
		g.Go(func() error {
			text, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("encode shard: %w", err)
			}
			stored[i], err = o.Store.PutShard(ctx, text)
			o.Progress("shards written", count.Add(1), int64(len(list)))
			return err
		})
	}
	return stored, g.Wait()
}

// usedKinds are the kinds of which the cut holds objects.
func usedKinds(cut *Cut) []mgmt.Kind {
	used := map[mgmt.GroupKind]bool{}
	for _, n := range cut.Graph.Nodes {
		used[n.GroupKind()] = true
	}
	var kinds []mgmt.Kind
	for _, k := range cut.Kinds {
		if used[k.GroupKind] {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Look captures a source into memory and stores nothing: what a plan is made from while the source is there. Of the options it needs Source, SourceName, SourceUID,
// Kubernetes, Providers and Scope. It changes nothing and may run any number of times.
func Look(ctx context.Context, o Options) (*Snapshot, *Contents, error) {
	for try := 1; ; try++ {
		s, c, err := lookOnce(ctx, o)
		if err == nil || !errors.Is(err, mgmt.ErrExpired) || try == captureTries {
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
	cut, err := Capture(ctx, o.Source, o.Scope, Rules, func(n *Node, raw []byte) error {
		contents.put(n.Ref, raw)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	providers, err := o.Providers(ctx, cut.Kinds)
	if err != nil {
		return nil, nil, err
	}
	e := store.Envelope{
		Time: started, Source: store.Source{UID: o.SourceUID, Name: o.SourceName, KubernetesVersion: o.Kubernetes},
		ResourceVersion: cut.ResourceVersion, Counts: counts(cut), Partial: len(o.Scope.Namespaces) > 0,
	}
	for _, gk := range cut.NotInCut {
		e.NotInCut = append(e.NotInCut, gk.String())
	}
	return &Snapshot{Envelope: e, About: About{KubernetesVersion: o.Kubernetes, Kinds: usedKinds(cut), Providers: providers}, Graph: cut.Graph}, contents, nil
}
