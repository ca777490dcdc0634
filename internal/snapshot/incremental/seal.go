package incremental

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/shard"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Shard is a shard of a snapshot and where it is stored.
type Shard struct {
	shard.Shard
	ID      store.ContentID
	At      store.Stored
	Written bool // by this run
	// Unchanged says that the shard is the parent's: so is its part of the index.
	Unchanged bool
}

// sealed is an index, and what of it is not in the index before.
type sealed struct {
	index   *Index
	parts   map[store.ContentID][]byte // new or changed
	deleted []store.ContentID          // of the index before
}

// sealIndex makes the index of a snapshot and seals those of its parts that are not in was, which
// may be nil.
func sealIndex(ids *store.ContentIDs, was *Index, head Head, shards []Shard,
	notCaptured []*graph.Node) (*sealed, error) {
	s := &sealer{ids: ids, was: was,
		sealed: sealed{index: newIndex(), parts: map[store.ContentID][]byte{}}}
	parts := map[string]*part{}
	for _, sh := range shards {
		name, p := "shard "+sh.Unit+" "+sh.Namespace, &part{Shard: sh.At.Key, ID: sh.ID[:]}
		if sh.Part != 0 {
			name += " " + strconv.FormatInt(sh.Part, 10)
		}
		s.index.keys[sh.ID] = sh.At.Key
		for _, n := range sh.Objects {
			s.index.keys[n.ContentID] = store.Key(n.Pack)
			s.index.Nodes[n.GroupKind()] = append(s.index.Nodes[n.GroupKind()], n)
		}
		if sh.Unchanged && s.reuse(name) {
			continue
		}
		for _, n := range sh.Objects {
			p.Objects = append(p.Objects, indexedObject{Node: n, ID: n.ContentID[:], Movable: n.Movable})
		}
		parts[name] = p
	}
	slices.SortFunc(notCaptured, func(a, b *graph.Node) int {
		return object.CompareRefs(a.Ref,
			b.Ref)
	})
	for _, n := range notCaptured {
		name := "left " + n.Namespace
		if parts[name] == nil {
			parts[name] = &part{}
		}
		out := *n
		out.Pack, out.ContentID = "", store.ContentID{} // of the parent, which may hold the object
		s.index.Nodes[n.GroupKind()] = append(s.index.Nodes[n.GroupKind()], &out)
		parts[name].Objects = append(parts[name].Objects, indexedObject{Node: &out, Movable: n.Movable})
	}
	var g task.Group
	g.SetLimit(4)
	for name, p := range parts {
		g.Go(func() error { return s.seal(name, p) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	head.Parts = digestOf(s.index.sums, store.ContentID{})
	s.index.Head = head
	if err := s.seal("head", &part{Head: &head}); err != nil {
		return nil, err
	}
	if was != nil {
		for id := range was.sums {
			if _, is := s.index.sums[id]; !is {
				s.deleted = append(s.deleted, id)
			}
		}
	}
	return &s.sealed, nil
}

// sealer makes the parts of one index.
type sealer struct {
	ids *store.ContentIDs
	was *Index
	mu  sync.Mutex
	sealed
}

// reuse adds the part of this name as it is in the index before. It returns false if there is none.
func (s *sealer) reuse(name string) bool {
	id := s.ids.Of("part", []byte(name))
	sum, ok := s.was.sums[id]
	if ok {
		s.index.sums[id] = sum
	}
	return ok
}

func (s *sealer) seal(name string, p *part) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("make index: %w", err)
	}
	enc, _ := zstdCodec()
	id, sum := s.ids.Of("part", []byte(name)), sha256.Sum256(text)
	var box []byte
	if s.was == nil || s.was.sums[id] != sum {
		box = s.ids.Seal(id, enc.EncodeAll(text, nil))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.sums[id] = sum
	if box != nil {
		s.parts[id] = box
	}
	return nil
}
