package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// This file is what a prune of a copy does besides: it leaves alone what a copy run is bringing.
//
// A snapshot that is taken names only keys of its parent and its own, which are new. A copied key
// has the name that it has in the origin. It may have been left by an interrupted run, or by a
// snapshot that a prune removed, so neither its age nor a parent protects it. Therefore a copy run
// records which trees it brings (store.PutCopying), and both sides keep to this:
//
//   - The trees are stored before the record, and the record before anything else of them.
//   - The run uses a key that is there already only if, after its record was stored, a stored
//     envelope names the key, an earlier record does that is older than SweepEnds, or the key is
//     younger than the grace of every prune allows it to be removed.
//   - A prune reads the envelopes, then the records, then lists the envelopes again. A record goes
//     only when all of its snapshots are there, or are damaged or gone in the origin. One that a
//     prune cannot read or trust blocks.
//   - Right before its envelope, the run sees that what it did not bring just now is there.
//   - A prune removes content no longer than SweepLimit after it began to read.
//
// So a prune that did not see the record began to read before it was stored. It removes nothing
// that was named then or is young, and it has ended when SweepEnds has passed.

const (
	// SweepLimit is how long a prune of a copy removes content after it began to read what is named.
	SweepLimit = recordMaxAge
	// SweepEnds is after how long a prune removes nothing any more of what it listed. It has some
	// minutes more than SweepLimit, for deletions that were under way.
	SweepEnds = SweepLimit + 10*time.Minute
)

// liveByRuns adds what copy runs are bringing to live, and what snapshots name that have come since
// the list of envelopes.
func (g *garbage) liveByRuns(ctx context.Context, o *Options, present []Snapshot,
	live map[store.Key]struct{}, now time.Time) error {
	if o.Store.Origin() == "" {
		return nil
	}
	runs, err := o.Store.Copyings(ctx, now)
	if err != nil {
		return err
	}
	var trees []store.Key
	for _, r := range runs.Live {
		trees = append(trees, r.Trees...)
	}
	for _, r := range runs.Unusable {
		g.block(object.CodePruneRecord, r.Key+", the record of a copy run, is damaged, or not signed "+
			"by a trusted key: what the run is bringing is not known", "trust the key of the copy runs, "+
			"or find out who wrote it; a prune ignores it when it is older than "+
			AgeText(store.CopyingExpiry))
	}
	come, err := comeSince(ctx, o, present)
	if err != nil {
		return err
	}
	slices.Sort(trees)
	return g.addTrees(ctx, o, slices.Compact(trees), come, live)
}

// comeSince returns the snapshots that are not among those of the first list.
func comeSince(ctx context.Context, o *Options, present []Snapshot) ([]Snapshot, error) {
	again, err := listSnapshots(ctx, o, present)
	if err != nil {
		return nil, err
	}
	first := map[store.EnvelopeKey]bool{}
	for _, s := range present {
		first[s.Key] = true
	}
	return slices.DeleteFunc(again, func(s Snapshot) bool { return first[s.Key] }), nil
}

// addTrees adds what trees name to live. A tree that cannot be read blocks, unless the snapshot it
// is of is gone.
func (g *garbage) addTrees(ctx context.Context, o *Options, trees []store.Key, come []Snapshot,
	live map[store.Key]struct{}) error {
	read := make([]store.Tree, len(trees))
	group, gctx := task.WithContext(ctx)
	group.SetLimit(requests)
	unread := make([]error, len(trees))
	for i, key := range trees {
		if _, ok := live[key]; ok {
			continue
		}
		group.Go(func() (err error) {
			read[i], err = o.Store.GetTree(gctx, key)
			if store.OfStore(gctx, err) == nil {
				unread[i], err = err, nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, key := range trees {
		if unread[i] != nil {
			g.block(object.CodeEnvelopeUnreadable, fmt.Sprintf("%s, of a snapshot that is being copied: "+
				"what it needs is not known: %v", key, unread[i]), "copy once more, and prune after that")
		}
		addTree(live, key, read[i])
	}
	more, err := g.live(ctx, o, come)
	for key := range more {
		live[key] = struct{}{}
	}
	return err
}

func addTree(live map[store.Key]struct{}, key store.Key, tree store.Tree) {
	live[key] = struct{}{}
	for _, k := range slices.Concat(tree.Shards, tree.Packs) {
		live[k] = struct{}{}
	}
}

// sweepTooLong reports whether a prune of a copy has to stop removing content.
func (e *execution) sweepTooLong() bool {
	return e.Store.Origin() != "" && store.Exceeded(e.listed, e.Now(), SweepLimit)
}

// reportSweepTooLong reports that content stays because the prune took too long.
func (e *execution) reportSweepTooLong(rest int) {
	e.report(object.Info, object.CodeSlow, fmt.Sprintf("%d keys that no snapshot names stay for now: "+
		"the prune took longer than %s since it read what is named", rest, AgeText(SweepLimit)),
		"run it again")
}

// removeRuns removes the records of copy runs that nobody completes any more.
func (e *execution) removeRuns(ctx context.Context) error {
	if e.Store.Origin() == "" {
		return nil
	}
	runs, err := e.Store.Copyings(ctx, e.result.Now)
	if err != nil {
		return err
	}
	for _, r := range runs.Expired {
		err := e.Store.RemoveCopying(ctx, r)
		if errors.Is(err, store.ErrRetained) {
			return nil // and so are those that came later
		}
		if err != nil {
			return err
		}
	}
	return nil
}
