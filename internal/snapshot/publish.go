package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
)

// written is the result of the phase write: all but the envelope is in the store.
type written struct {
	shards []incremental.Shard
	keys   incremental.Keys // of packs and shards
	tree   store.Key
}

// write stores the shards and the tree, as far as they are not stored already, and makes the
// storage retain what the snapshot names.
func (r *run) write(ctx context.Context, parent *incremental.Parent, c *captured) (*written,
	error) {
	if err := validateCut(c.cut); err != nil {
		return nil, err
	}
	shards, err := writeShards(ctx, r.Store, parent, shard.Divide(c.cut.Graph, c.about, c.cut.Omitted),
		shardsByName(parent.Shards, c.speculative, c.moved),
		func(done, total int64) { r.Progress("shards written", done, total) })
	if err != nil {
		return nil, err
	}
	tree, keys := store.Tree{Packs: c.packs}, maps.Clone(c.packKeys)
	for _, s := range shards {
		tree.Shards = append(tree.Shards, s.At.Key)
		if s.Written {
			keys.AddWritten(r.Store, s.At, r.began.UTC())
		} else {
			keys.AddReused(parent, s.At.Key)
		}
	}
	treeKey, err := r.writeTree(ctx, parent, tree)
	if err != nil {
		return nil, err
	}
	if err := r.retain(ctx, parent, keys, treeKey); err != nil {
		return nil, err
	}
	return &written{shards: shards, keys: keys, tree: treeKey}, nil
}

// validateCut is the last check before a snapshot is written: every object occurs once and is in a
// pack. Otherwise the snapshot could not be opened, and a verification of its structure, which
// reads no shards, would not find that.
func validateCut(cut *capture.Cut) error {
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

// writeTree stores a tree, unless it is the parent's, and returns its key.
func (r *run) writeTree(ctx context.Context, parent *incremental.Parent, tree store.Tree) (
	store.Key, error) {
	same := func(a, b []store.Key) bool {
		a = slices.Clone(a)
		slices.Sort(a)
		return slices.Equal(slices.Compact(a), b)
	}
	if parent.Snapshot != nil && same(tree.Shards, parent.Tree.Shards) &&
		same(tree.Packs, parent.Tree.Packs) {
		return parent.Snapshot.Tree, nil
	}
	return r.Store.PutTree(ctx, tree)
}

// retain makes the storage retain the keys of a snapshot for as long as its envelope, and records
// that in keys. Keys that are retained for long enough already, as far as is known, are skipped.
func (r *run) retain(ctx context.Context, parent *incremental.Parent, keys incremental.Keys,
	tree store.Key) error {
	envelope, _ := r.Store.Retention()
	if envelope == 0 {
		return nil
	}
	least := r.Now().Add(envelope)
	extend := []store.Key{tree}
	for key, k := range keys {
		if k.Retained.Before(least) {
			extend = append(extend, store.Key(key))
		}
	}
	until, err := r.Store.Retain(ctx, extend)
	if parent.Snapshot != nil && (store.IsCorrupt(err) || errors.Is(err, store.ErrNotFound)) {
		return errParentGone // somebody deleted or overwrote a key of the parent
	}
	if err != nil {
		return fmt.Errorf("retain what is used again: %w", err)
	}
	for i, key := range extend {
		if k, ok := keys[string(key)]; ok { // not the tree
			k.Retained = until[i]
			keys[string(key)] = k
		}
	}
	return nil
}

// publish signs and stores the envelope, from which moment on the snapshot exists. It returns that,
// the snapshot before it in its scope, or nil, and what was passed over in the search for it. It
// returns errParentGone when the parent is not the newest snapshot of its scope, or is gone
// afterwards.
func (r *run) publish(ctx context.Context, parent *incremental.Parent, c *captured, w *written) (
	signed store.Signed, before *store.Signed, passed []store.PassedOver, err error) {
	newest, passed, err := r.chain.Newest(ctx)
	if err != nil {
		return signed, nil, nil, err
	}
	if r.Operation == "" {
		before, err = r.chain.NewestOfScope(ctx, newest)
	}
	if err != nil {
		return signed, nil, nil, err
	}
	if !parent.Precedes(before) {
		return signed, nil, nil, errParentGone
	}
	signed, err = r.putEnvelope(ctx, r.envelope(c, w, newest))
	if errors.Is(err, store.ErrNotFound) && parent.Snapshot != nil {
		err = errParentGone // its tree is gone
	}
	if err != nil {
		return store.Signed{}, nil, nil, err
	}
	return signed, before, passed, r.checkParentStillThere(ctx, parent)
}

// envelope describes the snapshot that follows newest, which may be nil.
func (r *run) envelope(c *captured, w *written, newest *store.Signed) store.Envelope {
	e := newEnvelope(r.Options, c.cut, r.began.UTC())
	e.ID, e.Tree = store.NewSnapshotID(), w.tree
	e.Bytes, e.Writer = w.keys.Bytes(), r.Writer
	e.Interval = int64(r.Interval / time.Second)
	e.Sequence = r.Known + 1
	if newest != nil {
		e.Sequence = max(newest.Sequence, r.Known) + 1
		e.Parent = &store.Parent{ID: newest.ID, SHA256: newest.SHA256}
	}
	if r.TTL > 0 {
		e.Expires = e.Time.Add(r.TTL)
	}
	return e
}

// putEnvelope stores the envelope, unless the run has taken too long.
func (r *run) putEnvelope(ctx context.Context, e store.Envelope) (store.Signed, error) {
	if store.Exceeded(r.began, r.Now(), store.MaxRun) {
		return store.Signed{}, ErrTooLong
	}
	signed, err := r.Store.PutEnvelope(ctx, e)
	if err == nil && store.Exceeded(r.began, r.Now(), store.MaxRun) {
		// the host was asleep, or the write was slow
		err = fmt.Errorf("%w (%w)", ErrTooLong, errParentGone)
	}
	return signed, err
}

// newEnvelope describes a cut.
func newEnvelope(o Options, cut *capture.Cut, at time.Time) store.Envelope {
	e := store.Envelope{
		Time: at,
		Source: store.Source{UID: o.SourceUID, Name: o.SourceName,
			KubernetesVersion: o.Kubernetes},
		ResourceVersion: cut.ResourceVersion,
		Counts: store.Counts{
			Objects: int64(len(cut.Graph.Nodes)), Units: int64(len(cut.Graph.Clusters())),
			Missing: int64(len(cut.Graph.Missing)), NotInCut: int64(len(cut.NotInCut)),
		},
	}
	scope := o.scope()
	e.Scope, e.Partial = &scope, scope.ID != store.ScopeWhole
	for _, gk := range cut.NotInCut {
		e.NotInCut = append(e.NotInCut, gk.String())
	}
	return e
}

// checkParentStillThere checks, once the envelope is stored, that the parent was not deleted just
// before: the prune that deleted it may have deleted keys that only it named then. A parent that
// cannot be read any more, since somebody overwrote it meanwhile, was not deleted: the snapshot is
// taken, and an error would say that it is not.
func (r *run) checkParentStillThere(ctx context.Context, parent *incremental.Parent) error {
	if parent.Snapshot == nil {
		return nil
	}
	_, err := r.Store.GetEnvelope(ctx, parent.Snapshot.Key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return errParentGone
	case store.IsUnusable(err):
		return nil
	}
	return err // it may be gone
}
