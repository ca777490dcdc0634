package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/snapshot/store"
)

// repackAge is how old stored content becomes before it is written anew, so that old packs, of which ever less is needed, can go.
const repackAge = 7 * 24 * time.Hour

// Memory knows, from one snapshot of a source in a store to the next, under which keys content is stored, so that what did not change is not written again. What it
// forgets is written once more; what it says is believed as far as the tree of the base names the key, and the base is the newest snapshot of the source. A store
// without a signing key has none: its ids could be computed by who reads the catalog, and guesses at a Secret be confirmed.
type Memory interface {
	Recall(ctx context.Context) (Known, error)
	// Remember changes what is known. When change.Was is not what is known, as after another run in between, all of it is forgotten.
	Remember(ctx context.Context, change KnownChange) error
}

// Known is the content of the base, which is the snapshot that was remembered last.
type Known struct {
	Secret []byte // of the content ids; the same for as long as anything is known
	Base   string // the key of its envelope and its SHA-256; empty when nothing is known
	Places map[store.ContentID]string
	Keys   map[string]KnownKey
}

// KnownKey is a shard or a pack.
type KnownKey struct {
	Size    int64     `json:"size"`
	Written time.Time `json:"written"`
}

// KnownChange is the difference between two bases.
type KnownChange struct {
	Was, Base string
	Places    map[store.ContentID]string // new
	Gone      []store.ContentID
	Keys      map[string]KnownKey // new
	GoneKeys  []string
}

// errBaseLeft says that the snapshot whose keys were used again is not the newest any more, or not there: nothing keeps a prune from taking its keys. The run begins
// anew, with another base or none.
var errBaseLeft = errors.New("the snapshot before was replaced or deleted while this one was taken")

// reuse is what one run knows and learns of content that is stored already. Its methods may be called concurrently.
type reuse struct {
	memory Memory
	known  Known
	ids    *store.ContentIDs
	base   *store.Signed // nil: all is new
	tree   store.Tree    // of base
	old    time.Time     // what was written before is written anew

	mu   sync.Mutex
	used map[store.ContentID]string // content of this snapshot
	keys map[string]KnownKey        // of this snapshot
}

// wrote is how many bytes of shards and packs this snapshot was the first to need.
func (r *reuse) wrote() (bytes int64) {
	for key, k := range r.keys {
		if _, known := r.known.Keys[key]; !known || r.base == nil {
			bytes += k.Size
		}
	}
	return bytes
}

// recall finds out what can be used again. A base that cannot be read, or is not the newest snapshot, gives nothing.
func recall(ctx context.Context, o Options, now time.Time) (*reuse, error) {
	r := &reuse{used: map[store.ContentID]string{}, keys: map[string]KnownKey{}, old: now.Add(-repackAge)}
	if o.Memory == nil || !o.Store.Signs() {
		return r, nil
	}
	r.memory = o.Memory
	var err error
	if r.known, err = o.Memory.Recall(ctx); err != nil {
		return nil, fmt.Errorf("recall what is stored: %w", err)
	}
	if r.ids, err = o.Store.ContentIDs(r.known.Secret); err != nil {
		return nil, err
	}
	if r.known.Base == "" || o.Full {
		return r, nil
	}
	newest, err := newest(ctx, o)
	if err != nil || newest == nil || baseOf(*newest) != r.known.Base {
		return r, err
	}
	tree, err := o.Store.GetTree(ctx, newest.Tree)
	if _, corrupt := errors.AsType[*store.CorruptError](err); corrupt || errors.Is(err, store.ErrNotFound) {
		return r, nil
	}
	if err == nil {
		r.base, r.tree = newest, tree
	}
	return r, err
}

// baseOf is how the memory names a snapshot.
func baseOf(s store.Signed) string { return s.Key().String() + " " + s.SHA256 }

// follows tells whether the snapshot that is about to be the next one is the base's.
func (r *reuse) follows(parent *store.Signed) error {
	if r.base != nil && (parent == nil || parent.SHA256 != r.base.SHA256) {
		return errBaseLeft
	}
	return nil
}

// find gives the key under which content is stored, or "". With a memory it also gives the id to learn the key by.
func (r *reuse) find(keys []store.Key, name string, content []byte) (store.ContentID, store.Key) {
	if r.ids == nil {
		return store.ContentID{}, ""
	}
	id := r.ids.Of(name, content)
	if r.base == nil {
		return id, ""
	}
	key, ok := r.known.Places[id]
	meta, known := r.known.Keys[key]
	if _, there := slices.BinarySearch(keys, store.Key(key)); !ok || !known || !there || meta.Written.Before(r.old) {
		return id, ""
	}
	r.learn(id, store.Stored{Key: store.Key(key), Size: meta.Size}, meta.Written)
	return id, store.Key(key)
}

// learn notes where content of this snapshot is.
func (r *reuse) learn(id store.ContentID, at store.Stored, written time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids != nil {
		r.used[id] = string(at.Key)
	}
	r.keys[string(at.Key)] = KnownKey{Size: at.Size, Written: written}
}

// putTree stores the tree of this snapshot, unless it is the base's, and returns its key and how many bytes it names.
func (r *reuse) putTree(ctx context.Context, o Options, tree store.Tree) (store.Key, int64, error) {
	var bytes int64
	for _, k := range r.keys {
		bytes += k.Size
	}
	same := func(a, b []store.Key) bool {
		a = slices.Clone(a)
		slices.Sort(a)
		return slices.Equal(slices.Compact(a), b)
	}
	if r.base != nil && same(tree.Shards, r.tree.Shards) && same(tree.Packs, r.tree.Packs) {
		return r.base.Tree, bytes, nil
	}
	key, err := o.Store.PutTree(ctx, tree)
	return key, bytes, err
}

// kept looks, once the envelope is there, whether the base still is: whoever deleted it just before may have taken keys along that only it named.
func (r *reuse) kept(ctx context.Context, o Options) error {
	if r.base == nil {
		return nil
	}
	_, err := o.Store.GetEnvelope(ctx, r.base.Key())
	if errors.Is(err, store.ErrNotFound) {
		return errBaseLeft
	}
	return err
}

// remember keeps where content is for the next run.
func (r *reuse) remember(ctx context.Context, now store.Signed) error {
	if r.memory == nil {
		return nil
	}
	change := KnownChange{Was: r.known.Base, Base: baseOf(now), Places: r.used, Keys: r.keys}
	if r.base == nil {
		change.Was = ""
	} else {
		change.Places, change.Gone = difference(r.known.Places, r.used)
		change.Keys, change.GoneKeys = difference(r.known.Keys, r.keys)
	}
	if err := r.memory.Remember(ctx, change); err != nil {
		return fmt.Errorf("remember what is stored: %w", err)
	}
	return nil
}

// difference is what is new in now, and what of was is not in it.
func difference[K, V comparable](was, now map[K]V) (added map[K]V, gone []K) {
	added = maps.Clone(now)
	for k, v := range was {
		if is, ok := now[k]; !ok {
			gone = append(gone, k)
		} else if is == v {
			delete(added, k)
		}
	}
	return added, gone
}

// packed is where an object of this run went: into a pack of an earlier snapshot, or into one that has no key yet.
type packed struct {
	node *Node
	id   store.ContentID
	ref  *store.PackRef
}

// captureToPacks streams every object from the source, and those that are not stored yet into packs. No more than a few packs are in memory at once.
func captureToPacks(ctx context.Context, o Options, started time.Time, r *reuse, contents *Contents) (*Cut, []store.Key, error) {
	w, err := o.Store.NewPackWriter(ctx, started)
	if err != nil {
		return nil, nil, err
	}
	defer w.Abort() // does nothing after Close
	var mu sync.Mutex
	var added []packed
	var count int64
	cut, err := Capture(ctx, o.Source, o.Scope, Rules, func(n *Node, raw []byte) error {
		name, err := store.EntryName(store.Entry{Group: n.Group, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name})
		if err != nil {
			return err
		}
		if contents != nil {
			contents.put(n.Ref, raw)
		}
		p := packed{node: n}
		var key store.Key
		if p.id, key = r.find(r.tree.Packs, name, raw); key != "" {
			n.Pack = string(key)
		} else if p.ref, err = w.Add(name, raw); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if p.ref != nil {
			added = append(added, p)
		}
		count++
		o.Progress("objects captured", count, 0)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	sizes := map[store.Key]int64{}
	for _, p := range w.Packs() {
		sizes[p.Key] = p.Size
	}
	for _, p := range added {
		key := p.ref.Key()
		p.node.Pack = string(key)
		r.learn(p.id, store.Stored{Key: key, Size: sizes[key]}, started)
	}
	packs := map[store.Key]bool{}
	for _, n := range cut.Graph.Nodes {
		packs[store.Key(n.Pack)] = true
	}
	return cut, slices.Collect(maps.Keys(packs)), nil
}
