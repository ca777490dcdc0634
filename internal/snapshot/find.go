package snapshot

import (
	"context"
	"fmt"
	"sync"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Finder searches snapshots of one store for objects of a name. It reads no pack, and of a snapshot
// only those shards that the one searched before does not name: its cost follows what changed, when
// snapshots are searched one after the other in the order in which they were taken. It remembers a
// few bytes for each shard of one snapshot. It must not be used concurrently.
type Finder struct {
	store  *store.Store
	kind   KindName
	key    object.Key
	tree   store.Key
	shards map[store.Key][]Found // of the snapshot that was searched last
	found  []Found               // in it
}

// Found is an object in a snapshot.
type Found struct {
	*graph.Node        // of an omitted object only the ref
	Unit        string // by its shard: empty for shared objects and those without a unit
	// Omitted: the snapshot left it out.
	Omitted bool
}

// NewFinder returns a finder of the objects of a kind, namespace and name. The namespace of a
// cluster-scoped object is empty.
func NewFinder(st *store.Store, kind KindName, key object.Key) *Finder {
	return &Finder{store: st, kind: kind, key: key}
}

// Find returns what a snapshot holds, in no order. The caller has checked the envelope's signature.
// Errors: *store.KeyError, *store.CorruptError, store.ErrNotFound. After an error the next snapshot
// can be searched.
func (f *Finder) Find(ctx context.Context, e store.Envelope) ([]Found, error) {
	if e.Tree == f.tree {
		return f.found, nil
	}
	tree, err := f.store.GetTree(ctx, e.Tree)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	shards := make(map[store.Key][]Found, len(tree.Shards))
	budget := shard.NewBudget(e.Counts.Objects)
	g, gctx := task.WithContext(ctx)
	g.SetLimit(shardWrites)
	for _, key := range tree.Shards {
		if known, ok := f.shards[key]; ok {
			mu.Lock()
			shards[key] = known
			mu.Unlock()
			continue
		}
		g.Go(func() error {
			found, err := f.read(gctx, key, budget)
			mu.Lock()
			defer mu.Unlock()
			shards[key] = found
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, named(e, err)
	}
	var all []Found
	seen := map[object.Ref]bool{}
	for _, key := range tree.Shards {
		for _, n := range shards[key] {
			if seen[n.Ref] && !n.Omitted {
				return nil, &store.CorruptError{Key: string(e.Tree), Reason: fmt.Sprintf(
					"two shards hold %s", n.Ref)}
			}
			if !seen[n.Ref] {
				all = append(all, n)
			}
			seen[n.Ref] = true
		}
	}
	f.tree, f.shards, f.found = e.Tree, shards, all
	return all, nil
}

// read returns what one shard holds.
func (f *Finder) read(ctx context.Context, key store.Key, b *shard.Budget) ([]Found, error) {
	text, err := f.store.GetShard(ctx, key)
	if err != nil {
		return nil, err
	}
	s, err := shard.Decode(text, b)
	if err != nil {
		return nil, &store.CorruptError{Key: string(key), Reason: err.Error()}
	}
	var found []Found
	for _, n := range s.Objects {
		if n.Key() == f.key && f.kind.Fits(n.GroupKind()) {
			found = append(found, Found{Node: n, Unit: s.Unit})
		}
	}
	for _, r := range s.Omitted {
		if r.Namespace == f.key.Namespace && r.Name == f.key.Name && f.kind.Fits(r.GroupKind()) {
			found = append(found, Found{Node: &graph.Node{Ref: r}, Unit: s.Unit, Omitted: true})
		}
	}
	return found, nil
}

// History is what became of an object from one snapshot to the next of its scope.
type History string

// What became of an object.
const (
	// Oldest: the oldest snapshot of the scope holds it already.
	Oldest      History = "oldest"
	Appeared    History = "appeared"
	Same        History = "same"
	Rewritten   History = "changed"
	Recreated   History = "replaced" // deleted and created again
	Disappeared History = "disappeared"
)

// Next returns what became of an object between two snapshots of a scope, of which was is the older
// one. nil is an object that the snapshot does not hold; first says that there is no older one.
// From held to omitted, and back, counts as a change.
func Next(was, is *Found, first bool) History {
	switch {
	case is == nil && was == nil:
		return ""
	case is == nil:
		return Disappeared
	case first:
		return Oldest
	case was == nil:
		return Appeared
	case was.Omitted || is.Omitted:
		if was.Omitted == is.Omitted {
			return Same
		}
		return Rewritten
	case was.UID != is.UID:
		return Recreated
	case was.Content != is.Content || was.ResourceVersion != is.ResourceVersion:
		return Rewritten
	default:
		return Same
	}
}
