package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// live reads the trees of snapshots and gives all keys that they name. Of those that cannot be read
// there is a finding each, and nothing may be deleted.
func (p *pruner) live(ctx context.Context, stay []Verdict) (map[store.Key]struct{}, error) {
	var mu sync.Mutex
	live := map[store.Key]struct{}{}
	unreadable := func(v Verdict, err error) {
		mu.Lock()
		defer mu.Unlock()
		p.result.Blocked = true
		p.found(object.Error, FoundEnvelope, fmt.Sprintf("%s: what it needs is not known: %v", v.Key, err),
			(&BlockedError{}).Hint())
	}
	trees := map[store.Key][]Verdict{} // several snapshots may name one
	for _, v := range stay {
		if v.Envelope == nil {
			unreadable(v, v.Err)
		} else {
			if !v.usable(p.Store) {
				// Somebody may have put it over one that counted.
				p.result.Blocked = true
				p.found(object.Error, FoundUntrusted, v.Key.String()+" is not signed by a trusted key: it is "+
					"kept, and what it stands for is not known",
					"find out where it comes from, and whether the bucket has an older version of it; mgmtctl "+
						"snapshot delete KEY --damaged removes it")
			}
			trees[v.Envelope.Tree] = append(trees[v.Envelope.Tree], v)
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pruneReads)
	var done int64
	for key, of := range trees {
		g.Go(func() error {
			tree, err := p.Store.GetTree(gctx, key)
			if notThere(err) || notReadable(err) {
				for _, v := range of {
					gone, lookErr := p.Store.SnapshotGone(gctx, v.Key)
					if lookErr != nil {
						return lookErr
					}
					if !gone { // else another prune was faster
						unreadable(v, err)
					}
				}
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			live[key] = struct{}{}
			for _, k := range slices.Concat(tree.Shards, tree.Packs) {
				live[k] = struct{}{}
			}
			done++
			p.Progress("trees read", done, int64(len(trees)))
			return nil
		})
	}
	return live, g.Wait()
}

// gaps are numbers of snapshots that are neither among those given nor, by trusted records, removed
// on purpose.
func (p *pruner) gaps(known store.Pruned, list []Verdict) (gaps []store.ChainFinding) {
	chains := map[string][]store.Signed{}
	for _, v := range list {
		if v.usable(p.Store) {
			chains[v.Key.Source] = append(chains[v.Key.Source], *v.Envelope)
		}
	}
	for source, chain := range chains {
		for _, f := range store.CheckChain(chain, known.Removed[source]) {
			if f.Code == store.ChainGap {
				gaps = append(gaps, f)
			}
		}
	}
	return gaps
}

// findGaps keeps all content while a snapshot is not there that nobody removed: somebody may have
// hidden it, and find it again.
func (p *pruner) findGaps(ctx context.Context) error {
	known, err := p.Store.Pruned(ctx) // after the look: who removes records it before
	if err != nil {
		return err
	}
	p.result.Recorded = known.Removed
	if p.AcceptGaps || p.Damaged {
		return nil
	}
	for _, f := range p.gaps(known, p.result.Snapshots) { // those that go now are no gap
		p.result.Blocked = true
		p.found(object.Error, FoundGap, fmt.Sprintf("source %s: %s, and no trusted record says that "+
			"they were removed", f.Key.Source, f.Message),
			"look for them in a copy of the store, or among older versions of the bucket; if they are "+
				"gone for good, run it once with --accept-gaps")
	}
	return nil
}

// garbage lists the content that the snapshots that stay do not name, and that is older than the
// grace.
func (p *pruner) garbage(ctx context.Context, stay []Verdict) ([]store.StoredContent, error) {
	live, err := p.live(ctx, stay)
	if err == nil {
		err = p.findGaps(ctx)
	}
	slices.SortStableFunc(p.result.Findings,
		func(a, b object.Finding) int { return strings.Compare(a.Message, b.Message) })
	if err != nil || p.result.Blocked {
		return nil, err
	}
	var list []store.StoredContent
	old := p.result.Now.Add(-p.Grace)
	err = p.Store.Content(ctx, func(c store.StoredContent) error {
		if _, named := live[c.Key]; named {
			return nil
		}
		if !c.Modified.Before(old) {
			p.result.Waits.add(c.Size)
			return nil
		}
		p.result.Frees.add(c.Size)
		list = append(list, c)
		return nil
	})
	return list, err
}

// removeContent removes what no snapshot names that is there now.
func (p *pruner) removeContent(ctx context.Context) error {
	verdicts := p.result.Snapshots
	defer func() { p.result.Snapshots = verdicts }()
	if err := p.look(ctx); err != nil {
		return err
	}
	there := map[[2]string]bool{}
	for _, v := range p.result.Snapshots {
		there[[2]string{v.Key.Source, v.Key.Name()}] = true
	}
	list, err := p.garbage(ctx, p.result.Snapshots)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		err = p.Step("content", func() error { return p.sweep(ctx, list) })
	}
	if err != nil {
		return err
	}
	if p.result.Blocked {
		n := 0
		for _, f := range p.result.Findings {
			if f.Code == FoundEnvelope || f.Code == FoundUntrusted || f.Code == FoundGap {
				n++
			}
		}
		return &BlockedError{Envelopes: n}
	}
	_, err = p.Store.RemoveLeftovers(ctx, p.result.Now.Add(-p.Grace),
		func(source, name string) bool { return there[[2]string{source, name}] })
	return err
}

func (p *pruner) sweep(ctx context.Context, list []store.StoredContent) error {
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pruneReads)
	for _, c := range list {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := p.Store.RemoveContent(gctx, c.Key)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, store.ErrRetained) {
				p.retained(string(c.Key), c.Size, err)
				return nil
			}
			if err != nil {
				return err
			}
			p.result.Freed.add(c.Size)
			p.Progress("keys removed", p.result.Freed.Keys, 0)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
