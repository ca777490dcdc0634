package replicate

import (
	"context"
	"maps"
	"slices"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
)

// This file finds out what of the content that is in the copy already a batch may rely on.

// findUnsafe lists the content of the copy, and finds out which of what the batch names a prune may
// be about to remove: it is there, it is not young, and nothing that protects it names it. The
// rules are those of retention/copying.go.
func (b *batch) findUnsafe(ctx context.Context) error {
	needs := map[store.Key]bool{}
	for key, tree := range b.trees {
		needs[key] = true
		for _, k := range slices.Concat(tree.Shards, tree.Packs) {
			needs[k] = true
		}
	}
	b.unsafe = map[store.Key]bool{}
	young := b.record.Modified.Add(-store.MaxRun)
	err := b.To.Content(ctx, func(c store.StoredContent) error {
		if needs[c.Key] {
			b.there[c.Key] = true
			if c.Modified.Before(young) {
				b.unsafe[c.Key] = true
			}
		}
		return nil
	})
	b.lacking += int64(len(needs) - len(b.there))
	if err != nil || len(b.unsafe) == 0 {
		return err
	}
	if err := b.namedByEnvelopes(ctx); err != nil || len(b.unsafe) == 0 {
		return err
	}
	return b.namedByRecords(ctx)
}

// namedByEnvelopes takes out of unsafe what a snapshot in the copy names. The newest come first:
// what a snapshot shares with others, it shares with its parent.
func (b *batch) namedByEnvelopes(ctx context.Context) error {
	stored, err := b.To.StoredSnapshots(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(stored, func(x, y store.StoredSnapshot) int {
		return y.Key.Time.Compare(x.Key.Time)
	})
	seen := map[store.Key]bool{}
	for _, s := range stored {
		if len(b.unsafe) == 0 {
			break
		}
		e, err := b.To.GetEnvelope(ctx, s.Key)
		switch {
		case store.OfStore(ctx, err) != nil:
			return err
		case err != nil, !b.To.Accepted(&e):
			continue
		}
		if seen[e.Tree] {
			continue
		}
		seen[e.Tree] = true
		if err := b.named(ctx, e.Tree); err != nil {
			return err
		}
	}
	return nil
}

// namedByRecords takes out of unsafe what the record of an earlier run names, if every prune that
// did not see the record has ended.
func (b *batch) namedByRecords(ctx context.Context) error {
	runs, err := b.To.Copyings(ctx, b.record.Modified)
	if err != nil {
		return err
	}
	for _, r := range runs.Live {
		age := b.record.Modified.Sub(r.Modified)
		if age < retention.SweepEnds || age > store.CopyingExpiry-recordMargin {
			continue
		}
		for _, tree := range r.Trees {
			if err := b.named(ctx, tree); err != nil {
				return err
			}
		}
	}
	return nil
}

// named takes out of unsafe what a tree in the copy names.
func (b *batch) named(ctx context.Context, key store.Key) error {
	tree, ok, err := b.treeInCopy(ctx, key)
	if err != nil || !ok {
		return err
	}
	delete(b.unsafe, key)
	for _, k := range slices.Concat(tree.Shards, tree.Packs) {
		delete(b.unsafe, k)
	}
	return nil
}

// proofs is how many of the newest snapshots of a source in the copy are read to learn whose bytes
// were compared before: a snapshot shares its content with its parent, and with few others.
const proofs = 4

// prove finds the content in the copy that an earlier run has compared with its names: what a
// snapshot in the copy names. It reads the newest ones of each source of the batch, and the
// parents.
func (b *batch) prove(ctx context.Context, list []*store.Signed) error {
	sources, parents := map[string]int{}, map[store.SnapshotID]bool{}
	for _, e := range list {
		sources[e.Source.UID] = proofs
		if e.Parent != nil {
			parents[e.Parent.ID] = true
		}
	}
	there := slices.SortedFunc(maps.Keys(b.present), func(x, y store.EnvelopeKey) int {
		return y.Time.Compare(x.Time)
	})
	for _, key := range there {
		left := sources[key.Source]
		if sources[key.Source]--; left <= 0 && !parents[key.ID] {
			continue
		}
		e, err := b.To.GetEnvelope(ctx, key)
		switch {
		case store.OfStore(ctx, err) != nil:
			return err
		case err != nil, !b.To.Accepted(&e):
			continue
		}
		tree, _, err := b.treeInCopy(ctx, e.Tree)
		if err != nil {
			return err
		}
		for _, k := range slices.Concat(tree.Shards, tree.Packs) {
			b.proven[k] = b.there[k]
		}
	}
	return nil
}

// treeInCopy returns a tree of the copy; ok is false for one that cannot be read.
func (b *batch) treeInCopy(ctx context.Context, key store.Key) (tree store.Tree, ok bool,
	err error) {
	if tree, ok := b.trees[key]; ok {
		return tree, true, nil
	}
	tree, err = b.To.GetTree(ctx, key)
	return tree, err == nil, store.OfStore(ctx, err)
}
