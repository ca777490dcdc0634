package retention

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// garbage is the content that no snapshot names, and the findings that block its removal.
type garbage struct {
	content      []store.StoredContent // older than the grace
	frees, waits Amount
	// blocking are findings of severity error. With any, no content is removed.
	blocking []object.Finding
	// warnings are findings that block nothing.
	warnings []object.Finding
	// recorded are the snapshots that trusted records say were removed on purpose, by source.
	recorded map[string][]store.Range
}

func (g *garbage) block(code object.Code, message, hint string) {
	g.blocking = append(g.blocking, object.Finding{Severity: object.Error, Code: code,
		Message: message, Hint: hint})
}

// findGarbage lists the content that the snapshots in stay do not name. present are all snapshots
// that are there, among which gaps are searched. The result is never nil.
func findGarbage(ctx context.Context, o *Options, stay, present []Snapshot, now time.Time) (
	*garbage,
	error) {
	g := &garbage{}
	if err := g.checkRecords(ctx, o); err != nil {
		return g, err
	}
	g.checkTimes(o, present, now)
	live, err := g.live(ctx, o, stay)
	if err == nil {
		err = g.liveByRuns(ctx, o, present, live, now)
	}
	if err == nil {
		err = g.findGaps(ctx, o, present)
	}
	if err != nil || len(g.blocking) > 0 {
		return g, err
	}
	old := now.Add(-o.Grace)
	return g, o.Store.Content(ctx, func(c store.StoredContent) error {
		switch _, named := live[c.Key]; {
		case named:
		case !c.Modified.Before(old):
			g.waits.add(c.Size)
		default:
			g.frees.add(c.Size)
			g.content = append(g.content, c)
		}
		return nil
	})
}

// live reads the trees of snapshots and returns all keys that they name. A snapshot whose needs
// cannot be read blocks.
func (g *garbage) live(ctx context.Context, o *Options, stay []Snapshot) (map[store.Key]struct{},
	error) {
	byTree := map[store.Key][]Snapshot{} // several snapshots may name one
	for _, s := range stay {
		if s.Envelope == nil {
			g.blockUnreadable(s, s.Err)
			continue
		}
		if !s.usable(o.Store) { // it may have replaced an envelope that counted
			g.block(object.CodeEnvelopeUntrusted, s.Key.String()+" is not signed by a trusted key: it "+
				"stays, and its content is not known",
				"find out where it comes from, and whether the bucket has an older version of it; "+
					"then delete it")
		}
		byTree[s.Envelope.Tree] = append(byTree[s.Envelope.Tree], s)
	}
	var mu sync.Mutex
	live := map[store.Key]struct{}{}
	var done int64
	group, gctx := task.WithContext(ctx)
	group.SetLimit(requests)
	for key, snapshots := range byTree {
		group.Go(func() error {
			tree, err := o.Store.GetTree(gctx, key)
			if store.OfStore(gctx, err) != nil {
				return err
			}
			if err != nil {
				return g.treeUnreadable(gctx, o.Store, &mu, snapshots, err)
			}
			mu.Lock()
			defer mu.Unlock()
			live[key] = struct{}{}
			for _, k := range slices.Concat(tree.Shards, tree.Packs) {
				live[k] = struct{}{}
			}
			done++
			o.Progress("trees read", done, int64(len(byTree)))
			return nil
		})
	}
	return live, group.Wait()
}

// treeUnreadable blocks for each of the snapshots that name an unreadable tree, unless another
// prune has removed that snapshot meanwhile.
func (g *garbage) treeUnreadable(ctx context.Context, st *store.Store, mu *sync.Mutex,
	snapshots []Snapshot, cause error) error {
	for _, s := range snapshots {
		gone, err := st.SnapshotGone(ctx, s.Key)
		if err != nil {
			return err
		}
		if !gone {
			mu.Lock()
			g.blockUnreadable(s, cause)
			mu.Unlock()
		}
	}
	return nil
}

func (g *garbage) blockUnreadable(s Snapshot, err error) {
	g.block(object.CodeEnvelopeUnreadable, fmt.Sprintf("%s: what it needs is not known: %v", s.Key,
		err),
		(&BlockedError{}).Hint())
}

// findGaps blocks while a snapshot is missing that nobody removed on purpose: it may be hidden, and
// found again.
func (g *garbage) findGaps(ctx context.Context, o *Options, present []Snapshot) error {
	// Read after the list of snapshots: a prune records before it removes.
	pruned, err := o.Store.Pruned(ctx)
	if err != nil {
		return err
	}
	g.recorded = pruned.Removed
	if o.AcceptGaps || o.Damaged {
		return nil
	}
	hint := missingHint
	if len(pruned.Unusable) > 0 {
		hint = unsignedHint + hint
	}
	for _, m := range o.Missing {
		if pruned.Explains(m.Source, m.Sequence) {
			continue
		}
		g.block(object.CodeSnapshotMissing, fmt.Sprintf("source %s: snapshot %s, number %d, is known "+
			"and not there, and no trusted record says that it was removed", m.Source, m.ID, m.Sequence),
			hint)
	}
	for _, f := range gaps(o.Store, pruned, present) {
		g.block(object.CodeSnapshotMissing, fmt.Sprintf("source %s: %s, and no trusted record says "+
			"that they were removed",
			f.Key.Source, f.Message), hint)
	}
	return nil
}

// unsignedHint begins the hint where records of prunes are there that do not count.
const unsignedHint = "give the key that signed the records of prunes, which may explain them; "

const missingHint = "search for them in a copy of the store, or among older versions of the " +
	"bucket; if they are gone for good, accept the gaps once"

// gaps returns the sequence numbers of snapshots that are neither present nor, by trusted records,
// removed on purpose.
func gaps(st *store.Store, pruned store.Pruned, present []Snapshot) (found []store.ChainBreak) {
	chains := map[string][]store.Signed{}
	for _, s := range present {
		if s.usable(st) {
			chains[s.Key.Source] = append(chains[s.Key.Source], *s.Envelope)
		}
	}
	for source, chain := range chains {
		for _, b := range store.CheckChain(chain, pruned.Removed[source]) {
			if b.Kind == store.ChainGap {
				found = append(found, b)
			}
		}
	}
	return found
}
