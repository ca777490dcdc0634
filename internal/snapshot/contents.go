package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Contents holds the bytes of chosen objects in memory, each compressed.
type Contents struct {
	mu     sync.Mutex // guards bodies and codec
	bodies map[object.Ref][]byte
	codec  *codec
	claims claims
}

func newContents(kinds []kube.Kind) (*Contents, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	return &Contents{bodies: map[object.Ref][]byte{}, codec: c, claims: newClaims(kinds)}, nil
}

// put adds the bytes of an object and returns how many objects there are now.
func (c *Contents) put(r object.Ref, body []byte) (int64, error) {
	c.mu.Lock()
	enc, err := c.codec.encoder()
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	// EncodeAll returns a slice with the capacity of its input (klauspost/compress v1.20,
	// zstd/encoder.go). What is stored is a copy, so that the rest is freed.
	packed := bytes.Clone(enc.EncodeAll(body, nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies[r] = packed
	return int64(len(c.bodies)), c.codec.learn(r.GroupKind(), body)
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
	g, gctx := task.WithContext(ctx)
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
	c.rest()
	return c, nil
}

// rest frees what only put needs.
func (c *Contents) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.codec.rest()
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
		done, err := c.put(n.Ref, body)
		if err == nil && progress != nil {
			progress(done, total)
		}
		return err
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
	if !ok {
		c.mu.Unlock()
		return nil, fmt.Errorf("read %s: not among the objects loaded", r)
	}
	dec := c.codec.dec
	c.mu.Unlock()
	return dec.DecodeAll(packed, nil)
}

// Drop frees the bytes of an object that is not read again.
func (c *Contents) Drop(r object.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bodies, r)
}

// Only returns contents of some of the objects, without the others and what was made to compress
// them. It leaves out those that c does not have.
func (c *Contents) Only(refs []object.Ref) (*Contents, error) {
	only, err := newContents(nil)
	if err != nil {
		return nil, err
	}
	defer only.rest()
	for _, ref := range refs {
		if !c.has(ref) {
			continue
		}
		body, err := c.Bytes(ref)
		if err == nil {
			_, err = only.put(ref, body)
		}
		if err != nil {
			return nil, err
		}
	}
	return only, nil
}

func (c *Contents) has(r object.Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.bodies[r]
	return ok
}
