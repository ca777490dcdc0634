package incremental

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

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Index is the source as the parent's run read it: every object, captured or not, and where its
// content is stored. A StateStore has it in sealed parts, one for each shard and one for the
// objects that were not captured in each namespace, so that a run writes the parts that changed.
type Index struct {
	Head Head
	// Nodes are all objects; those without a Pack were not captured.
	Nodes map[object.GroupKind][]*graph.Node

	keys map[store.ContentID]store.Key         // of the shard or pack that holds the content
	sums map[store.ContentID][sha256.Size]byte // of each part's text
}

func newIndex() *Index {
	return &Index{Nodes: map[object.GroupKind][]*graph.Node{}, keys: map[store.ContentID]store.Key{},
		sums: map[store.ContentID][sha256.Size]byte{}}
}

// Head is what the nodes depend on besides the objects. If any of it changes, objects are read
// again.
type Head struct {
	// Reader identifies the program that made the nodes; see readerOf.
	Reader string      `json:"reader"`
	Scope  []string    `json:"scope,omitempty"` // namespaces
	Kinds  []kube.Kind `json:"kinds"`           // all that the source served
	// Selector is that of the scope.
	Selector string `json:"selector,omitempty"`
	// Providers may be empty or nil, which differ, as in the shard that has them.
	Providers []kube.Provider `json:"providers"`
	// InspectedAt is a resourceVersion from before the source was asked for its kinds and
	// providers.
	InspectedAt string `json:"asked,omitempty"`
	// NotInCut are kinds that were not read as of the cut: their changes since cannot be watched.
	NotInCut []object.GroupKind `json:"notInCut,omitempty"`
	// Unread are kinds that could not be read at all.
	Unread []object.GroupKind `json:"unread,omitempty"`
	// LeaseDigest identifies the history of the source up to the cut; see leaseFingerprint.
	LeaseDigest string `json:"history,omitempty"`
	// Parts is a digest of all other parts: an index must not open if one of them is missing, or is
	// that of another run.
	Parts string `json:"parts"`
}

// readerRevision is raised whenever a node is made of other fields, other objects are selected, or
// kube.Kind says something else of the same CRD.
const readerRevision = 3

// readerOf identifies the program that makes nodes, and its edge table: development builds of one
// version have the same name.
func readerOf(writer string, rows *capi.Table) string {
	return fmt.Sprintf("%s %d %s", writer, readerRevision, rows.Fingerprint())
}

// compatible reports whether nodes of an index with head was can be used with head h: they were
// made by the same program, for the same scope and providers, and the same kinds are
// cluster-scoped, which decides which object a name means.
func (h Head) compatible(was Head) bool {
	return was.Reader == h.Reader && slices.Equal(was.Scope, h.Scope) &&
		was.Selector == h.Selector && slices.Equal(was.Providers, h.Providers) &&
		slices.Equal(clusterScoped(was.Kinds), clusterScoped(h.Kinds))
}

func clusterScoped(kinds []kube.Kind) (names []string) {
	for _, k := range kinds {
		if !k.Namespaced {
			names = append(names, k.GroupKind.String())
		}
	}
	slices.Sort(names)
	return names
}

// part is one part of an index as JSON.
type part struct {
	Head    *Head           `json:"head,omitempty"`
	Shard   store.Key       `json:"shard,omitempty"`
	ID      []byte          `json:"id,omitempty"` // content ID of the shard
	Objects []indexedObject `json:"objects,omitempty"`
}

type indexedObject struct {
	*graph.Node
	ID      []byte `json:"id,omitempty"`
	Movable bool   `json:"movable,omitempty"`
}

// zstdCodec makes the encoder and the decoder of parts. Both may be used concurrently.
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

// openIndex opens sealed parts. If one of them cannot be opened, for example after the keys or the
// recipients changed, the index is useless and an error is returned.
func openIndex(ids *store.ContentIDs, sealed map[store.ContentID][]byte) (*Index, error) {
	x := newIndex()
	var mu sync.Mutex
	var g task.Group
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
			var p part
			if err := json.Unmarshal(text, &p); err != nil {
				return fmt.Errorf("open index: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if p.Head != nil {
				x.Head, headless, headName = *p.Head, false, name
			}
			x.sums[name] = sha256.Sum256(text)
			return x.add(p)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if headless || x.Head.Parts != digestOf(x.sums, headName) {
		return nil, errors.New("open index: it has no head, or not all parts")
	}
	return x, nil
}

func (x *Index) add(p part) error {
	if p.Shard != "" {
		if len(p.ID) != len(store.ContentID{}) {
			return fmt.Errorf("open index: shard without id")
		}
		x.keys[store.ContentID(p.ID)] = p.Shard
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
			x.keys[n.ContentID] = store.Key(n.Pack)
		}
		x.Nodes[n.GroupKind()] = append(x.Nodes[n.GroupKind()], n)
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

// objects is the number of objects in the index.
func (x *Index) objects() (n int) {
	for _, nodes := range x.Nodes {
		n += len(nodes)
	}
	return n
}
