package snapshot

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
)

// objectWriter writes the objects of a cut into packs, except those that are in packs of the parent
// already.
type objectWriter struct {
	options     Options
	parent      *incremental.Parent
	began       time.Time
	incremental bool // the capture has a baseline
	about       func(*capture.Cut) About

	packs []*store.PackWriter // objects go to the last one

	mu    sync.Mutex
	added map[*graph.Node]*store.PackRef // objects in packs of this run
	// pending are nodes that came without bytes although their content has to be written: the
	// parent's snapshot does not hold the object, or its pack has become too old.
	pending []*graph.Node
	read    int64 // objects whose bytes came from the source

	speculative []incremental.Shard // written by OnInitialList
}

var _ capture.Sink = (*objectWriter)(nil)

// nextPacks makes objects go to new packs.
func (w *objectWriter) nextPacks(ctx context.Context) error {
	packs, err := w.options.Store.NewPackWriter(ctx, w.began)
	if err == nil {
		w.packs = append(w.packs, packs)
	}
	return err
}

func (w *objectWriter) abort() {
	for _, packs := range w.packs {
		packs.Abort()
	}
}

// Prefetch implements capture.Sink. An object may come again, changed or not.
func (w *objectWriter) Prefetch(n *graph.Node, raw []byte) error {
	if raw == nil {
		return nil
	}
	if err := w.add(n, raw); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read++
	w.options.Progress("objects captured", w.read, 0)
	return nil
}

// OnInitialList implements capture.Sink. It writes packs and shards while the watches still catch
// up: most objects will not change in that second. Objects that do are written to other packs;
// shards that become outdated stay in the store, unreferenced. With a baseline most shards are
// stored already, and nothing is written here.
func (w *objectWriter) OnInitialList(ctx context.Context, initial *capture.Cut) (
	func(context.Context) error, error) {
	if w.incremental {
		return nil, nil
	}
	list := slices.DeleteFunc(shard.Divide(initial.Graph, w.about(initial), initial.Omitted),
		func(s shard.Shard) bool {
			// An object that was not captured in the parent, and is now, came without its bytes: it
			// is still pending.
			return slices.ContainsFunc(s.Objects, func(n *graph.Node) bool {
				return w.added[n] == nil && n.Pack == ""
			})
		})
	first := w.packs[0]
	if err := w.nextPacks(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (err error) {
		if err := first.Close(); err != nil {
			return err
		}
		w.setPacks(initial)
		w.speculative, err = writeShards(ctx, w.options.Store, w.parent, list,
			shardsByName(w.parent.Shards, nil, nil), func(int64, int64) {})
		return err
	}, nil
}

// Object implements capture.Sink.
func (w *objectWriter) Object(n *graph.Node, raw []byte) error {
	if raw != nil {
		return w.Prefetch(n, raw)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.added[n] == nil && (n.Pack == "" || !w.parent.ReusablePack(store.Key(n.Pack))) {
		w.pending = append(w.pending, n)
	}
	return nil
}

func (w *objectWriter) add(n *graph.Node, raw []byte) error {
	name, err := entryName(n)
	if err != nil {
		return err
	}
	id, key := w.parent.FindPack(name, n.Content)
	n.ContentID, n.Pack = id, string(key)
	if key != "" {
		return nil
	}
	ref, err := w.packs[len(w.packs)-1].Add(name, raw)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.added[n] = ref
	return err
}

// fetchPending reads and writes the pending objects.
func (w *objectWriter) fetchPending(ctx context.Context, cut *capture.Cut) error {
	return capture.Fetch(ctx, w.options.Source, cut, w.pending, w.Prefetch)
}

// setPacks sets the packs of the nodes that were written to closed packs.
func (w *objectWriter) setPacks(cut *capture.Cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range cut.Graph.Nodes {
		if ref := w.added[n]; ref != nil {
			n.Pack = string(ref.Key())
		}
	}
}

// close closes the packs and returns those that hold the objects of the cut.
func (w *objectWriter) close(cut *capture.Cut) ([]store.Key, incremental.Keys, error) {
	sizes := map[store.Key]int64{}
	for _, packs := range w.packs {
		if err := packs.Close(); err != nil {
			return nil, nil, err
		}
		for _, pack := range packs.Packs() {
			sizes[pack.Key] = pack.Size
		}
	}
	w.setPacks(cut)
	used, keys := map[store.Key]bool{}, incremental.Keys{}
	for _, n := range cut.Graph.Nodes {
		key := store.Key(n.Pack)
		switch {
		case used[key]:
		case w.added[n] != nil:
			keys.AddWritten(w.options.Store, store.Stored{Key: key, Size: sizes[key]}, w.began)
		default:
			keys.AddReused(w.parent, key)
		}
		used[key] = true
	}
	return slices.Collect(maps.Keys(used)), keys, nil
}
