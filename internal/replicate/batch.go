package replicate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// batchSize is how many snapshots share one record of the run. The record names their trees.
	batchSize = 200
	// transfers is how many packs and shards are copied at once; each is held in memory.
	transfers = 4
	// recordMargin is how long before its expiry a record is not relied upon any more: nothing that
	// was begun with it is under way when a prune ignores it.
	recordMargin = 24 * time.Hour
	// retainAgain is after how long what the batch brought is retained once more for a snapshot that
	// names it, too. Content is retained for almost a day longer than an envelope, at least.
	retainAgain = 12 * time.Hour
)

// batch is some snapshots that are copied under one record.
type batch struct {
	*run
	trees  map[store.Key]store.Tree
	record store.CopyingRecord
	put    time.Time // when the record was stored, by our clock
	// there is the content of the copy, as listed after the record was stored.
	there map[store.Key]bool
	// unsafe are keys that are there and that a prune may be about to remove.
	unsafe map[store.Key]bool
	// brought is when this batch brought a key, by our clock.
	brought map[store.Key]time.Time
	// proven are the keys of the copy whose bytes were compared with their names: this batch brought
	// or read them, or an earlier run did, by a snapshot that is in the copy.
	proven map[store.Key]bool
	// waits: not all that the record names was brought, so that the record stays.
	waits bool
}

// copyAll copies snapshots, in batches.
func (r *run) copyAll(ctx context.Context, wanted []*store.Signed) error {
	total := len(wanted)
	for list := range slices.Chunk(wanted, batchSize) {
		b := &batch{run: r, trees: map[store.Key]store.Tree{}, there: map[store.Key]bool{},
			proven: map[store.Key]bool{}, brought: map[store.Key]time.Time{}}
		if err := b.copy(ctx, list, total); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) copy(ctx context.Context, list []*store.Signed, total int) error {
	list, err := b.copyTrees(ctx, list)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := b.findUnsafe(ctx); err != nil {
		return err
	}
	if err := b.prove(ctx, list); err != nil {
		return err
	}
	for _, e := range list {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if store.Exceeded(b.put, b.Now(), store.CopyingExpiry-recordMargin) {
			return errors.New("copy store: the run took longer than its record is good for; run it again")
		}
		if err := b.copySnapshot(ctx, e); err != nil {
			return err
		}
		b.Progress("snapshots copied", int64(len(b.result.Copied)), int64(total))
	}
	if b.waits {
		return nil
	}
	err = b.To.RemoveCopying(ctx, b.record)
	_, cannot := errors.AsType[*store.UsageError](err)
	if cannot || errors.Is(err, store.ErrRetained) || errors.Is(err, store.ErrDenied) {
		err = nil // it expires
	}
	return err
}

// copyTrees reads and copies the trees of snapshots, stores the record that names them, and returns
// the snapshots that can be copied.
func (b *batch) copyTrees(ctx context.Context, list []*store.Signed) ([]*store.Signed, error) {
	began := b.Now()
	var good []*store.Signed
	var keys []store.Key
	for _, e := range list {
		if _, ok := b.trees[e.Tree]; ok {
			good = append(good, e)
			continue
		}
		tree, err := b.From.GetTree(ctx, e.Tree)
		if err != nil {
			err = &store.OriginError{Err: err}
		} else {
			_, err = b.To.CopyContent(ctx, b.From, e.Tree)
		}
		if err != nil {
			if err := b.failed(ctx, e, err); err != nil {
				return nil, err
			}
			continue
		}
		b.trees[e.Tree] = tree
		keys, good = append(keys, e.Tree), append(good, e)
	}
	if len(good) == 0 {
		return nil, nil
	}
	// A prune must not take the trees for old before the record names them.
	if store.Exceeded(began, b.Now(), store.MaxRun) {
		return nil, errors.New("copy store: the trees took too long to copy; run it again")
	}
	var err error
	b.put = b.Now()
	b.record, err = b.To.PutCopying(ctx, keys, b.put)
	return good, err
}

// failed returns the error of a copy that is not about the snapshot, and reports one that is.
func (b *batch) failed(ctx context.Context, e *store.Signed, err error) error {
	_, ofOrigin := errors.AsType[*store.OriginError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ofOrigin && store.OfStore(ctx, err) == nil:
		gone, goneErr := b.From.SnapshotGone(ctx, e.Key())
		switch {
		case goneErr != nil:
			return &store.OriginError{Err: goneErr}
		case gone: // a prune of the origin has removed it meanwhile
			b.result.Behind--
			return nil
		}
		b.notCopied(e.Key(), err)
		return nil // no run completes it before the origin is repaired: the record need not stay
	case !ofOrigin && store.IsCorrupt(err):
		b.result.Missing++
		b.result.report(object.Error, object.CodeCopyDiffers, fmt.Sprintf("%s: %v", e.Key(), err),
			"find out who wrote to the copy")
	case !ofOrigin && store.IsMissing(err):
		b.waiting(e)
	default:
		return err
	}
	b.waits = true
	return nil
}

// waiting reports a snapshot that is not copied because of what a prune may be about to remove.
func (b *batch) waiting(e *store.Signed) {
	b.waits = true
	b.result.Missing++
	b.result.report(object.Warning, object.CodeCopyWaits, e.Key().String()+": a prune may be about "+
		"to remove something from the copy that it names", fmt.Sprintf("copy again after %s",
		retention.AgeText(retention.SweepEnds)))
}

// copySnapshot copies what the copy lacks of a snapshot, and its envelope last.
func (b *batch) copySnapshot(ctx context.Context, e *store.Signed) error {
	tree := b.trees[e.Tree]
	keys := slices.Concat(tree.Shards, tree.Packs)
	if slices.ContainsFunc(append(keys, e.Tree), func(k store.Key) bool { return b.unsafe[k] }) {
		b.waiting(e)
		return nil
	}
	reused, retain := []store.Key{e.Tree}, []store.Key{e.Tree}
	for _, k := range keys {
		if !b.there[k] && !b.proven[k] {
			continue
		}
		reused = append(reused, k)
		if b.there[k] || store.Exceeded(b.brought[k], b.Now(), retainAgain) {
			retain = append(retain, k)
		}
	}
	err := b.copyContent(ctx, keys)
	if err == nil {
		_, err = b.To.Retain(ctx, retain)
	}
	if err == nil {
		var pinned bool
		if pinned, err = b.To.CopyPin(ctx, b.From, e.Key()); pinned {
			b.result.Pins++
		}
	}
	if err == nil { // a prune that could not read the record of the run may have removed some
		err = b.To.RequireStored(ctx, reused)
	}
	if err == nil {
		err = b.To.PutCopied(ctx, e)
	}
	if err == nil {
		err = b.To.CopyEnvelope(ctx, b.From, e)
	}
	if err != nil {
		return b.failed(ctx, e, err)
	}
	b.present[e.Key()] = true
	b.result.Copied = append(b.result.Copied, e.Key())
	b.result.Behind--
	there := *e
	there.HeldBy = b.To.ID()
	return b.OnCopy(there)
}

// copyContent brings the keys that the copy lacks, and reads those that are there and not proven:
// an interrupted run left them, or somebody put them there.
func (b *batch) copyContent(ctx context.Context, keys []store.Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k store.Key) bool { return b.proven[k] })
	var mu sync.Mutex
	g, gctx := task.WithContext(ctx)
	g.SetLimit(transfers)
	for _, key := range keys {
		if gctx.Err() != nil {
			break
		}
		there := b.there[key]
		g.Go(func() (err error) {
			size := int64(0)
			if there {
				err = b.To.CheckContent(gctx, key)
			} else {
				size, err = b.To.CopyContent(gctx, b.From, key)
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			b.proven[key] = true
			if !there {
				b.brought[key] = b.Now()
				b.result.Keys, b.result.Bytes = b.result.Keys+1, b.result.Bytes+size
				b.Progress("keys copied", b.result.Keys, b.lacking)
			}
			return nil
		})
	}
	return g.Wait()
}
