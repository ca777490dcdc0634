package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Snapshot is a snapshot in a store, opened for reading.
type Snapshot struct {
	Envelope store.Envelope
	About    About
	Graph    *graph.Graph
	store    *store.Store
}

// Open reads the tree and all shards of a snapshot and links its graph. It needs an identity unless
// the store is plain. The caller has checked the envelope's signature. Errors: *store.KeyError,
// *store.CorruptError, store.ErrNotFound.
func Open(ctx context.Context, st *store.Store, e store.Envelope, rows *capi.Table) (
	*Snapshot, error) {
	tree, err := st.GetTree(ctx, e.Tree)
	if err != nil {
		return nil, err
	}
	parts := make([]Shard, len(tree.Shards))
	b := &budget{most: e.Counts.Objects}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(shardWrites)
	for i, key := range tree.Shards {
		g.Go(func() error {
			text, err := st.GetShard(gctx, key)
			if err != nil {
				return err
			}
			if parts[i], err = decodeShard(text, b); err != nil {
				return &store.CorruptError{Key: string(key), Reason: err.Error()}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, named(e, err)
	}
	return link(st, e, tree, parts, rows)
}

// named says which snapshot it is that an identity is missing for: there may be several, written to
// different recipients.
func named(e store.Envelope, err error) error {
	if _, ok := errors.AsType[*store.KeyError](err); ok {
		return fmt.Errorf("read snapshot %s of %s: %w", e.ID, e.Time.Format(time.RFC3339), err)
	}
	return err
}

// link makes the graph and checks that it is the one that the envelope and the tree speak of.
func link(st *store.Store, e store.Envelope, tree store.Tree, parts []Shard, rows *capi.Table) (
	*Snapshot, error) {
	damaged := func(format string, a ...any) error {
		return &store.CorruptError{Key: string(e.Tree), Reason: fmt.Sprintf(format, a...)}
	}
	s := &Snapshot{Envelope: e, store: st}
	var nodes []*graph.Node
	seen := map[object.Ref]bool{}
	for _, p := range parts {
		if p.About != nil {
			s.About = *p.About
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

// Contents holds the bytes of chosen objects, compressed one by one: a tenth of their size, and any
// of them at hand.
type Contents struct {
	mu     sync.Mutex
	bodies map[object.Ref][]byte
	enc    *zstd.Encoder
	dec    *zstd.Decoder
	claims claims
}

func newContents(kinds []kube.Kind) (*Contents, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0))
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	return &Contents{bodies: map[object.Ref][]byte{}, enc: enc, dec: dec, claims: newClaims(kinds)},
		nil
}

// put keeps the bytes of an object and returns how many objects there are now.
func (c *Contents) put(r object.Ref, body []byte) int64 {
	packed := c.enc.EncodeAll(body, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies[r] = packed
	return int64(len(c.bodies))
}

// complete reads what a cut has, and what did not come while the source was looked at: it was not
// wanted then.
func (c *Contents) complete(ctx context.Context, source Source, cut *Cut) error {
	r := &reading{source: source, at: cut.ResourceVersion, read: newReader(cut.Kinds, cut.Graph.Rows)}
	byKind := map[object.GroupKind][]object.Key{}
	for _, n := range cut.Graph.Nodes {
		if _, there := c.bodies[n.Ref]; !there {
			byKind[n.GroupKind()] = append(byKind[n.GroupKind()], n.Key())
		}
	}
	for gk, keys := range byKind {
		k, _ := kube.FindKind(cut.Kinds, gk)
		err := r.fetch(ctx, k, keys, r.at, func(n *graph.Node, raw []byte) error {
			c.put(n.Ref, raw)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Load reads the packs that hold nodes and keeps these objects. Each is checked against the hash in
// its shard.
func (s *Snapshot) Load(ctx context.Context, nodes []*graph.Node,
	progress func(done, total int64)) (
	*Contents, error) {
	c, err := newContents(s.About.Kinds)
	if err != nil {
		return nil, err
	}
	byPack, err := objectsByPack(nodes)
	if err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for pack, wanted := range byPack {
		g.Go(func() error {
			return c.loadPack(gctx, s.store, store.Key(pack), wanted, progress,
				int64(len(nodes)))
		})
	}
	if err := g.Wait(); err != nil {
		return nil, named(s.Envelope, err)
	}
	return c, nil
}

func (c *Contents) loadPack(ctx context.Context, st *store.Store, pack store.Key,
	wanted map[string]*graph.Node, progress func(done, total int64), total int64) error {
	found := 0
	err := st.ReadPack(ctx, pack, func(name string, body []byte) error {
		n := wanted[name]
		if n == nil {
			return nil
		}
		if why := c.claims.broken(n, body); why != "" {
			return &store.CorruptError{Key: string(pack), Reason: fmt.Sprintf("%s is not what its "+
				"shard says: %s", n.Ref, why)}
		}
		found++
		done := c.put(n.Ref, body)
		if progress != nil {
			progress(done, total)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found != len(wanted) {
		return &store.CorruptError{Key: string(pack), Reason: fmt.Sprintf("holds %d of %d objects "+
			"that shards say are in it", found, len(wanted))}
	}
	return nil
}

// claims compares objects with what shards say of them.
type claims struct {
	read  *reader
	kinds []kube.Kind
}

func newClaims(kinds []kube.Kind) claims {
	read := newReader(kinds, nil)
	read.noRefs = true
	return claims{read: read, kinds: kinds}
}

// broken says in what an object is another one than its node claims. Checks look at nodes and
// writes use the bytes, so the two must not differ in anything that a check goes by (invariant I8);
// a name that occurs twice would be read one way here and another way there.
func (c claims) broken(n *graph.Node, body []byte) string {
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != n.Content {
		return "its bytes do not fit the hash"
	}
	if !jsontext.Value(body).IsValid() {
		return "not JSON, or a name occurs twice"
	}
	k, ok := kube.FindKind(c.kinds, n.GroupKind())
	if !ok {
		return "its kind is not among those captured"
	}
	k.Version = n.Version
	if gjson.GetBytes(body, "kind").String() != n.Kind ||
		gjson.GetBytes(body, "apiVersion").String() != k.APIVersion() {
		return "another kind or version"
	}
	is := c.read.node(k, body)
	switch {
	case is.Ref != n.Ref:
		return "another name or namespace"
	case is.UID != n.UID, !slices.EqualFunc(is.Owners, n.Owners, sameOwner):
		return "another UID, or other owners"
	case is.Paused != n.Paused, is.Deleting != n.Deleting, is.WorkloadID != n.WorkloadID:
		return "another state"
	}
	return ""
}

// sameOwner compares what an owner reference says; where the owner is follows from its kind, and
// not all kinds of the source are known here.
func sameOwner(a, b graph.Owner) bool {
	return a.UID == b.UID && a.Name == b.Name && a.GroupKind() == b.GroupKind()
}

// Bytes returns the object as the source served it.
func (c *Contents) Bytes(r object.Ref) ([]byte, error) {
	c.mu.Lock()
	packed, ok := c.bodies[r]
	c.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("read %s: not among the objects loaded", r)
	}
	return c.dec.DecodeAll(packed, nil)
}
