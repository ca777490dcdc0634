package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// About describes the source of a snapshot.
type About = shard.About

// Selection is what a snapshot was asked to hold.
type Selection = shard.Selection

// Snapshot is a snapshot in a store, opened for reading.
type Snapshot struct {
	Envelope store.Envelope
	About    About
	Graph    *graph.Graph
	// Omitted are objects that were left out, and without which their units are incomplete.
	Omitted []graph.Omitted
	store   *store.Store
}

// Open reads the tree and all shards of a snapshot and links its graph. It needs an identity
// unless the store is plain. The caller has checked the envelope's signature. Errors:
// *store.KeyError, *store.CorruptError, store.ErrNotFound.
func Open(ctx context.Context, st *store.Store, e store.Envelope, rows *capi.Table) (
	*Snapshot, error) {
	tree, err := st.GetTree(ctx, e.Tree)
	if err != nil {
		return nil, err
	}
	shards := make([]shard.Shard, len(tree.Shards))
	b := shard.NewBudget(e.Counts.Objects)
	g, gctx := task.WithContext(ctx)
	g.SetLimit(shardWrites)
	for i, key := range tree.Shards {
		g.Go(func() error {
			text, err := st.GetShard(gctx, key)
			if err != nil {
				return err
			}
			if shards[i], err = shard.Decode(text, b); err != nil {
				return &store.CorruptError{Key: string(key), Reason: err.Error()}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, named(e, err)
	}
	return link(st, e, tree, shards, rows)
}

// named adds to an error about a missing identity which snapshot it concerns: snapshots may be
// written to different recipients.
func named(e store.Envelope, err error) error {
	if _, ok := errors.AsType[*store.KeyError](err); ok {
		return fmt.Errorf("read snapshot %s of %s: %w", e.ID, e.Time.Format(time.RFC3339), err)
	}
	return err
}

// link makes the graph of the shards and checks it against the envelope and the tree.
func link(st *store.Store, e store.Envelope, tree store.Tree, shards []shard.Shard,
	rows *capi.Table) (*Snapshot,
	error) {
	damaged := func(format string, a ...any) error {
		return &store.CorruptError{Key: string(e.Tree), Reason: fmt.Sprintf(format, a...)}
	}
	s := &Snapshot{Envelope: e, store: st}
	var nodes []*graph.Node
	seen := map[object.Ref]bool{}
	for _, p := range shards {
		if p.About != nil {
			s.About = *p.About
		}
		for _, ref := range p.Omitted {
			s.Omitted = append(s.Omitted, graph.Omitted{Ref: ref, Unit: p.Unit})
		}
		for _, n := range p.Objects {
			if seen[n.Ref] {
				return nil, damaged("two shards hold %s", n.Ref)
			}
			if _, err := entryName(n); err != nil {
				return nil, damaged("it holds what cannot be: %v", err)
			}
			if _, ok := slices.BinarySearch(tree.Packs, store.Key(n.Pack)); !ok {
				return nil, damaged("%s is said to be in a pack that the tree does not name", n.Ref)
			}
			seen[n.Ref] = true
			nodes = append(nodes, n)
		}
	}
	if int64(len(nodes)) != e.Counts.Objects {
		return nil, damaged("the envelope counts %d objects, the shards hold %d", e.Counts.Objects,
			len(nodes))
	}
	s.Graph = graph.New(nodes, rows)
	return s, nil
}

func entryName(n *graph.Node) (string, error) {
	return store.EntryName(store.Entry{Group: n.Group, Kind: n.Kind, Namespace: n.Namespace,
		Name: n.Name})
}
