package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Contents holds the bytes of chosen objects in memory, each compressed to about a tenth of its
// size.
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

// put adds the bytes of an object and returns how many objects there are now.
func (c *Contents) put(r object.Ref, body []byte) int64 {
	// EncodeAll returns a slice with the capacity of its input (klauspost/compress v1.20,
	// zstd/encoder.go). What is stored is a copy, so that the rest is freed.
	packed := bytes.Clone(c.enc.EncodeAll(body, nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies[r] = packed
	return int64(len(c.bodies))
}

// Load reads the packs that hold nodes and returns these objects. Each is checked against the hash
// in its shard.
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

// Drop frees the bytes of an object that is not read again.
func (c *Contents) Drop(r object.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bodies, r)
}
