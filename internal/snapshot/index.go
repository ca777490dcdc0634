package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// index is the source as the base found it: every object that was read, captured or left out, and
// where its content is. The catalog keeps it in sealed parts, one for each shard and one for what
// was left out in each namespace, so that what is written follows the changes.
type index struct {
	head   indexHead
	nodes  map[object.GroupKind][]*graph.Node // those without a Pack were left out
	places map[store.ContentID]store.Key
	sums   map[store.ContentID][sha256.Size]byte // of each part's text
}

// indexHead is what the nodes depend on besides the objects. When any of it is another, objects are
// read again.
type indexHead struct {
	// Reader says what made the nodes; see readerOf.
	Reader string      `json:"reader"`
	Scope  []string    `json:"scope,omitempty"`
	Kinds  []kube.Kind `json:"kinds"` // all that the source had
	// none and nil are two answers, as in the shard that has them
	Providers []kube.Provider `json:"providers"`
	// Asked is the resourceVersion before the source was asked for its kinds and providers.
	Asked string `json:"asked,omitempty"`
	// NotInCut are kinds that were not read as of the cut: what changed since then is not known of
	// them.
	NotInCut []object.GroupKind `json:"notInCut,omitempty"`
	History  string             `json:"history,omitempty"`
	// Parts is a digest of all others: a part that was lost, or is of another run, must not pass
	// for one that never was.
	Parts string `json:"parts"`
}

// readerRevision is raised whenever a node is made of other fields, another choice of objects is
// taken, or kube.Kind says something else of the same CRD.
const readerRevision = 1

// readerOf names the program that made nodes, and its rows of kinds: builds of a version that is being
// worked on have one name.
func readerOf(writer string, rows *capi.Table) string {
	return fmt.Sprintf("%s %d %s", writer, readerRevision, rows.Fingerprint())
}

// indexPart is one part as JSON.
type indexPart struct {
	Head    *indexHead      `json:"head,omitempty"`
	Shard   store.Key       `json:"shard,omitempty"`
	ID      []byte          `json:"id,omitempty"` // content id of the shard
	Objects []indexedObject `json:"objects,omitempty"`
}

type indexedObject struct {
	*graph.Node
	ID      []byte `json:"id,omitempty"`
	Movable bool   `json:"movable,omitempty"`
}

// zstdCodec makes the encoder and the decoder of texts that are in memory whole. Both may be used
// by many at once.
var zstdCodec = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err)
	}
	return enc, dec
})

// openIndex reads sealed parts. Any that cannot be opened, as after the keys or the recipients
// changed, makes all of it useless.
func openIndex(ids *store.ContentIDs, sealed map[store.ContentID][]byte) (*index, error) {
	x := &index{nodes: map[object.GroupKind][]*graph.Node{}, places: map[store.ContentID]store.Key{},
		sums: map[store.ContentID][sha256.Size]byte{}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(4)
	headless, headName := true, store.ContentID{}
	for name, data := range sealed {
		g.Go(func() error {
			text, err := ids.Open(name, data)
			if err != nil {
				return err
			}
			_, dec := zstdCodec()
			if text, err = dec.DecodeAll(text, nil); err != nil {
				return fmt.Errorf("open index: %w", err)
			}
			var p indexPart
			if err := json.Unmarshal(text, &p); err != nil {
				return fmt.Errorf("open index: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if p.Head != nil {
				x.head, headless, headName = *p.Head, false, name
			}
			x.sums[name] = sha256.Sum256(text)
			return x.add(p)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if headless || x.head.Parts != digestOf(x.sums, headName) {
		return nil, errors.New("open index: it has no head, or not all parts")
	}
	return x, nil
}

func (x *index) add(p indexPart) error {
	if p.Shard != "" {
		if len(p.ID) != len(store.ContentID{}) {
			return fmt.Errorf("open index: shard without id")
		}
		x.places[store.ContentID(p.ID)] = p.Shard
	}
	for _, o := range p.Objects {
		if o.Node == nil || o.Kind == "" || o.Name == "" || o.Pack != "" &&
			len(o.ID) != len(store.ContentID{}) {
			return fmt.Errorf("open index: incomplete object")
		}
		n := o.Node
		n.Movable = o.Movable
		if n.Pack != "" {
			n.ContentID = store.ContentID(o.ID)
			x.places[n.ContentID] = store.Key(n.Pack)
		}
		x.nodes[n.GroupKind()] = append(x.nodes[n.GroupKind()], n)
	}
	return nil
}

// digestOf is a digest of the sums of all parts but the head.
func digestOf(sums map[store.ContentID][sha256.Size]byte, head store.ContentID) string {
	h := sha256.New()
	for _, name := range slices.SortedFunc(maps.Keys(sums),
		func(a, b store.ContentID) int { return bytes.Compare(a[:], b[:]) }) {
		if sum := sums[name]; name != head {
			_, _ = h.Write(append(name[:], sum[:]...)) // never fails
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// objects is how many it has.
func (x *index) objects() (n int) {
	for _, nodes := range x.nodes {
		n += len(nodes)
	}
	return n
}

// sealed is an index to be remembered.
type sealed struct {
	index *index
	parts map[store.ContentID][]byte // new or changed
	gone  []store.ContentID          // of the index before
}

// sealIndex makes the index of a snapshot and seals those of its parts that are not in was, which
// may be nil.
func sealIndex(ids *store.ContentIDs, was *index, head indexHead, shards []storedShard,
	left []*graph.Node) (*sealed, error) {
	s := &sealer{
		ids: ids, was: was,
		sealed: sealed{
			index: &index{nodes: map[object.GroupKind][]*graph.Node{},
				places: map[store.ContentID]store.Key{},
				sums:   map[store.ContentID][sha256.Size]byte{}},
			parts: map[store.ContentID][]byte{},
		},
	}
	parts := map[string]*indexPart{}
	for _, sh := range shards {
		name, p := "shard "+sh.Unit+" "+sh.Namespace, &indexPart{Shard: sh.at.Key, ID: sh.id[:]}
		s.index.places[sh.id] = sh.at.Key
		for _, n := range sh.Objects {
			s.index.places[n.ContentID] = store.Key(n.Pack)
			s.index.nodes[n.GroupKind()] = append(s.index.nodes[n.GroupKind()], n)
		}
		if sh.kept && s.keep(name) {
			continue
		}
		for _, n := range sh.Objects {
			p.Objects = append(p.Objects, indexedObject{Node: n, ID: n.ContentID[:], Movable: n.Movable})
		}
		parts[name] = p
	}
	slices.SortFunc(left, func(a, b *graph.Node) int { return object.CompareRefs(a.Ref, b.Ref) })
	for _, n := range left {
		name := "left " + n.Namespace
		if parts[name] == nil {
			parts[name] = &indexPart{}
		}
		out := *n
		out.Pack, out.ContentID = "", store.ContentID{} // of the base, in which it was captured
		s.index.nodes[n.GroupKind()] = append(s.index.nodes[n.GroupKind()], &out)
		parts[name].Objects = append(parts[name].Objects, indexedObject{Node: &out, Movable: n.Movable})
	}
	var g errgroup.Group
	g.SetLimit(4)
	for name, p := range parts {
		g.Go(func() error { return s.seal(name, p) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	head.Parts = digestOf(s.index.sums, store.ContentID{})
	s.index.head = head
	if err := s.seal("head", &indexPart{Head: &head}); err != nil {
		return nil, err
	}
	if was != nil {
		for id := range was.sums {
			if _, is := s.index.sums[id]; !is {
				s.gone = append(s.gone, id)
			}
		}
	}
	return &s.sealed, nil
}

// sealer makes the parts of one index.
type sealer struct {
	ids *store.ContentIDs
	was *index
	mu  sync.Mutex
	sealed
}

// keep takes a part over that is as it was, if it was there.
func (s *sealer) keep(name string) bool {
	id := s.ids.Of("part", []byte(name))
	sum, ok := s.was.sums[id]
	if ok {
		s.index.sums[id] = sum
	}
	return ok
}

func (s *sealer) seal(name string, p *indexPart) error {
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
