package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// manyFetched is how many objects of a kind are read one by one at most.
const manyFetched = 200

// packing puts the objects of a cut into packs, but for those that are in packs of the base.
type packing struct {
	options  Options
	reuse    *reuse
	started  time.Time
	shards   *shardWriter
	about    func(*Cut) About
	contents *Contents // nil: not asked for
	writers  []*store.PackWriter

	mu    sync.Mutex
	added map[*graph.Node]*store.PackRef
	fetch []*graph.Node // as they were in the base, but their content has to be written
	read  int64         // objects whose bytes came from the source
}

// capture streams the objects of the source, or those that changed since the base, and those that
// are not stored yet into packs. No more than a few packs are in memory at once.
func (p *packing) capture(ctx context.Context, kinds []kube.Kind, since *base) (*Cut, []store.Key,
	error) {
	defer p.abort() // does nothing to those that are closed
	if err := p.begin(ctx); err != nil {
		return nil, nil, err
	}
	to := takers{early: p.early, keep: p.keep}
	if since == nil { // else most shards are stored already
		to.looked = p.looked
	}
	cut, err := captureSince(ctx, p.options.Source, kinds, p.options.Scope,
		p.options.Rows, since, to)
	if err == nil {
		err = p.fetchAll(ctx, cut)
	}
	if err != nil {
		return nil, nil, err
	}
	sizes := map[store.Key]int64{}
	for _, w := range p.writers {
		if err := w.Close(); err != nil {
			return nil, nil, err
		}
		for _, pack := range w.Packs() {
			sizes[pack.Key] = pack.Size
		}
	}
	p.placed(cut)
	packs := map[store.Key]bool{}
	for _, n := range cut.Graph.Nodes {
		key := store.Key(n.Pack)
		switch {
		case packs[key]:
		case p.added[n] != nil:
			p.reuse.learn(store.Stored{Key: key, Size: sizes[key]}, p.started)
		default:
			p.reuse.use(key)
		}
		packs[key] = true
	}
	return cut, slices.Collect(maps.Keys(packs)), nil
}

// begin opens the packs that objects go to from now on.
func (p *packing) begin(ctx context.Context) error {
	w, err := p.options.Store.NewPackWriter(ctx, p.started)
	if err == nil {
		p.writers = append(p.writers, w)
	}
	return err
}

func (p *packing) abort() {
	for _, w := range p.writers {
		w.Abort()
	}
}

// placed tells the nodes in which packs they are, once these are closed.
func (p *packing) placed(cut *Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range cut.Graph.Nodes {
		if ref := p.added[n]; ref != nil {
			n.Pack = string(ref.Key())
		}
	}
}

// looked uses the second in which the source proves that nothing is left to come: it stores what
// most probably is the snapshot. What changes now goes to packs of its own.
func (p *packing) looked(ctx context.Context, cut *Cut) (func(context.Context) error, error) {
	seen := p.writers[0]
	list := slices.DeleteFunc(shards(cut.Graph, p.about(cut)), func(s Shard) bool {
		// What was left out at first and then needed came without its bytes: it is still to be
		// fetched.
		return slices.ContainsFunc(s.Objects, func(n *graph.Node) bool {
			return p.added[n] == nil &&
				n.Pack == ""
		})
	})
	return func(ctx context.Context) error {
		if err := seen.Close(); err != nil {
			return err
		}
		p.placed(cut)
		return p.shards.putAhead(ctx, list)
	}, p.begin(ctx)
}

// early takes an object that the cut probably has. The same one may come again, changed or not.
func (p *packing) early(n *graph.Node, raw []byte) error {
	if raw == nil {
		return nil
	}
	if err := p.add(n, raw); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read++
	p.options.Progress("objects captured", p.read, 0)
	return nil
}

// keep takes an object of the cut; without bytes it is as the base has it, or as it came early.
func (p *packing) keep(n *graph.Node, raw []byte) error {
	if raw != nil {
		return p.early(n, raw)
	}
	p.mu.Lock()
	stored := p.added[n] != nil
	p.mu.Unlock()
	if stored || n.Pack != "" && p.reuse.again(p.reuse.tree.Packs, store.Key(n.Pack)) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetch = append(p.fetch, n)
	return nil
}

func (p *packing) add(n *graph.Node, raw []byte) error {
	name, err := entryName(n)
	if err != nil {
		return err
	}
	if p.contents != nil {
		p.contents.put(n.Ref, raw)
	}
	id, key := p.reuse.find(p.reuse.tree.Packs, name, []byte(n.Content))
	n.ContentID, n.Pack = id, string(key)
	if key != "" {
		return nil
	}
	ref, err := p.writers[len(p.writers)-1].Add(name, raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.added[n] = ref
	return err
}

// fetchAll reads what did not change and has to be written all the same: it was left out so far, or
// is in a pack that has become old. Of a kind with many such objects all are read.
func (p *packing) fetchAll(ctx context.Context, cut *Cut) error {
	byKind := map[object.GroupKind]map[object.Key]*graph.Node{}
	for _, n := range p.fetch {
		if byKind[n.GroupKind()] == nil {
			byKind[n.GroupKind()] = map[object.Key]*graph.Node{}
		}
		byKind[n.GroupKind()][n.Key()] = n
	}
	r := &reading{source: p.options.Source, at: cut.ResourceVersion, read: newReader(cut.Kinds,
		cut.Graph.Rows)}
	for gk, nodes := range byKind {
		k, _ := kube.FindKind(cut.Kinds, gk)
		found := 0
		take := func(is *graph.Node, raw []byte) error {
			n := nodes[is.Key()]
			if n == nil {
				return nil
			}
			if is.UID != n.UID || is.ResourceVersion != n.ResourceVersion || is.Content != n.Content {
				return fmt.Errorf("%w: %s is not what it was", errHistory, n.Ref)
			}
			found++
			return p.early(n, raw)
		}
		var err error
		if len(nodes) > manyFetched {
			err = r.each(ctx, k, "", "", take)
		} else {
			err = r.fetch(ctx, k, slices.Collect(maps.Keys(nodes)), r.at, take)
		}
		if err == nil && found != len(nodes) {
			err = fmt.Errorf("%w: %d of %d objects of %s are there", errHistory, found, len(nodes), gk)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
