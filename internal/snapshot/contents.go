package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/spill"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// inMemory is how many bytes Contents have in memory, compressed: those of about a hundred workload
// clusters.
const inMemory = 8 << 20

// Contents holds the bytes of chosen objects, each compressed: so many of them in memory, and the
// others in a temporary file.
type Contents struct {
	claims claims

	mu     sync.Mutex // guards what follows
	bodies map[object.Ref][]byte
	size   int // of bodies
	most   int // of size, as long as the temporary file takes the others
	// spilled are the places of the others in outside, which is nil until it is needed.
	spilled map[object.Ref]spill.Place
	outside *spill.File
	codec   *codec
}

func newContents(kinds []kube.Kind) (*Contents, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	return &Contents{claims: newClaims(kinds), bodies: map[object.Ref][]byte{}, most: inMemory,
		spilled: map[object.Ref]spill.Place{}, codec: c}, nil
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
	c.keep(r, packed)
	return int64(len(c.bodies) + len(c.spilled)), c.codec.learn(r.GroupKind(), body)
}

// keep keeps the compressed bytes of an object, in memory when there is no other place for them.
func (c *Contents) keep(r object.Ref, packed []byte) {
	c.drop(r) // a list that broke off may give an object twice
	if c.size+len(packed) > c.most {
		if c.outside == nil {
			c.outside = spill.New()
		}
		if p, added := c.outside.Add(packed); added {
			c.spilled[r] = p
			return
		}
	}
	c.bodies[r] = packed
	c.size += len(packed)
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

// ErrNotLoaded means that Contents do not have an object.
var ErrNotLoaded = errors.New("not among the objects loaded")

// Bytes returns the object as the source served it. Errors: ErrNotLoaded; those of a temporary
// file.
func (c *Contents) Bytes(r object.Ref) ([]byte, error) {
	c.mu.Lock()
	packed, there := c.bodies[r]
	at, spilled := c.spilled[r]
	if !there && !spilled {
		c.mu.Unlock()
		return nil, fmt.Errorf("read %s: %w", r, ErrNotLoaded)
	}
	from, dec := c.outside, c.codec.dec
	c.mu.Unlock()
	if spilled {
		var err error
		if packed, err = from.Read(at); err != nil {
			return nil, fmt.Errorf("read %s: %w", r, err)
		}
	}
	return dec.DecodeAll(packed, nil)
}

// Drop frees the bytes of an object that is not read again. What is in the temporary file is freed
// together with the Contents.
func (c *Contents) Drop(r object.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(r)
}

func (c *Contents) drop(r object.Ref) {
	c.size -= len(c.bodies[r])
	delete(c.bodies, r)
	delete(c.spilled, r)
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
	_, there := c.bodies[r]
	_, spilled := c.spilled[r]
	return there || spilled
}
