package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// shardWrites is how many shards are encrypted and stored at once. A remote store answers after
// tens of milliseconds, and there is a shard for each workload cluster.
const shardWrites = 16

// movedNodes are nodes whose pack changed after shards with them were encoded: these shards are
// outdated although they have the same nodes.
type movedNodes map[*graph.Node]bool

func nodeSet(nodes []*graph.Node) movedNodes {
	set := make(movedNodes, len(nodes))
	for _, n := range nodes {
		set[n] = true
	}
	return set
}

// shardsByName returns the stored shards that can be reused: those of this run, which replace those
// of the parent, without shards that have a moved node.
func shardsByName(parent map[string]incremental.Shard, written []incremental.Shard,
	moved movedNodes) map[string][]incremental.Shard {
	byName := map[string][]incremental.Shard{}
	add := func(s incremental.Shard) {
		if len(moved) == 0 ||
			!slices.ContainsFunc(s.Objects, func(n *graph.Node) bool { return moved[n] }) {
			byName[s.Name()] = append(byName[s.Name()], s)
		}
	}
	for _, s := range written {
		add(s)
	}
	for _, s := range parent {
		s.Written, s.Unchanged = false, true
		add(s)
	}
	return byName
}

// sameShard reports whether a stored shard has the same nodes and describes the same source. Nobody
// may have changed the nodes since it was encoded.
func sameShard(stored incremental.Shard, s shard.Shard) bool {
	return slices.Equal(stored.Objects, s.Objects) && slices.Equal(stored.Omitted, s.Omitted) &&
		reflect.DeepEqual(stored.About, s.About)
}

// writeShards stores shards, except those that are stored already, and returns all of them.
func writeShards(ctx context.Context, st *store.Store, parent *incremental.Parent,
	list []shard.Shard, reusable map[string][]incremental.Shard, progress func(done, total int64)) (
	[]incremental.Shard, error) {
	stored := make([]incremental.Shard, len(list))
	var count atomic.Int64
	g, ctx := task.WithContext(ctx)
	g.SetLimit(shardWrites)
	for i, s := range list {
		g.Go(func() (err error) {
			defer func() { progress(count.Add(1), int64(len(list))) }()
			for _, was := range reusable[s.Name()] {
				if sameShard(was, s) && (!was.Unchanged || parent.ReusableShard(was.At.Key)) {
					was.Shard = s
					stored[i] = was
					return nil
				}
			}
			stored[i], err = writeShard(ctx, st, parent, s)
			return err
		})
	}
	return stored, g.Wait()
}

func writeShard(ctx context.Context, st *store.Store, parent *incremental.Parent, s shard.Shard) (
	stored incremental.Shard, err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return stored, fmt.Errorf("encode shard: %w", err)
	}
	stored.Shard = s
	stored.ID, stored.At.Key = parent.FindShard(text)
	if stored.At.Key == "" {
		stored.Written = true
		stored.At, err = st.PutShard(ctx, text)
	}
	return stored, err
}
