package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/store"
)

// shardWrites is how many shards are encrypted and stored at once. A store far away answers after
// tens of milliseconds, and there is a shard for each workload cluster.
const shardWrites = 16

// storedShard is a shard and where it is.
type storedShard struct {
	Shard
	id    store.ContentID
	at    store.Stored
	isNew bool // written by this run
	kept  bool // taken over as it was from the run before
}

// is tells whether it has the same nodes, which nobody may have changed since, and says the same of
// the source.
func (s *storedShard) is(other *Shard) bool {
	return slices.Equal(s.Objects, other.Objects) && reflect.DeepEqual(s.About, other.About)
}

// shardWriter stores the shards of one run, but for those that are stored already.
type shardWriter struct {
	options Options
	reuse   *reuse
	kept    map[string]storedShard // of the base
	ahead   map[string]storedShard // written before it was sure that the snapshot has them
}

// putAhead stores shards as they probably will be. Those that become other ones stay in the store,
// named by nothing.
func (w *shardWriter) putAhead(ctx context.Context, list []Shard) error {
	stored, err := w.put(ctx, list, func(int64, int64) {})
	if err != nil {
		return err
	}
	w.ahead = make(map[string]storedShard, len(stored))
	for _, s := range stored {
		w.ahead[s.name()] = s
	}
	return nil
}

// forget gives up shards that have any of these nodes.
func (w *shardWriter) forget(nodes []*graph.Node) {
	if len(nodes) == 0 {
		return
	}
	changed := make(map[*graph.Node]bool, len(nodes))
	for _, n := range nodes {
		changed[n] = true
	}
	for _, shards := range []map[string]storedShard{w.kept, w.ahead} {
		maps.DeleteFunc(shards, func(_ string, s storedShard) bool {
			return slices.ContainsFunc(s.Objects, func(n *graph.Node) bool { return changed[n] })
		})
	}
}

func (w *shardWriter) put(ctx context.Context, list []Shard, progress func(done, total int64)) (
	[]storedShard, error) {
	stored := make([]storedShard, len(list))
	var count atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(shardWrites)
	for i, s := range list {
		g.Go(func() error {
			defer func() { progress(count.Add(1), int64(len(list))) }()
			if was, ok := w.ahead[s.name()]; ok && was.is(&s) {
				stored[i] = was
				return nil
			}
			if was, ok := w.kept[s.name()]; ok && was.is(&s) &&
				w.reuse.again(w.reuse.tree.Shards, was.at.Key) {
				stored[i] = storedShard{Shard: s, id: was.id, at: was.at, kept: true}
				return nil
			}
			text, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("encode shard: %w", err)
			}
			stored[i] = storedShard{Shard: s}
			id, key := w.reuse.find(w.reuse.tree.Shards, "shard", text)
			stored[i].id, stored[i].at.Key = id, key
			if key == "" {
				stored[i].isNew = true
				stored[i].at, err = w.options.Store.PutShard(ctx, text)
			}
			return err
		})
	}
	return stored, g.Wait()
}
