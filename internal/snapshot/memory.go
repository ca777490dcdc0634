package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
)

// repackAge is how old stored content becomes before it is written anew, so that old packs, of
// which ever less is needed, can go.
const repackAge = 7 * 24 * time.Hour

// errBaseLeft says that the snapshot whose keys were used again is not the newest any more, or not
// there: nothing keeps a prune from taking its keys. The run begins anew, with another base or
// none.
var errBaseLeft = errors.New("the snapshot before was replaced or deleted while this one was taken")

// reuse is what one run knows and learns of content that is stored already. Its methods may be
// called concurrently.
type reuse struct {
	memory incremental.StateStore
	known  incremental.State
	ids    *store.ContentIDs
	base   *store.Signed          // nil: all is new
	tree   store.Tree             // of base
	index  *index                 // of base
	shards map[string]storedShard // of base, if this process took it
	cut    *Cut                   // likewise
	proven bool                   // what happened since base can be watched
	old    time.Time              // what was written before is written anew

	content time.Duration // for how long the storage keeps what is written now, if it does

	mu   sync.Mutex
	keys map[string]incremental.StoredKey // of this snapshot
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

// recall finds out what can be used again. A base that cannot be read, or is not the newest
// snapshot, gives nothing.
func recall(ctx context.Context, o Options, now time.Time) (*reuse, error) {
	r := &reuse{keys: map[string]incremental.StoredKey{}, old: now.Add(-repackAge)}
	_, r.content = o.Store.Retention()
	if o.State == nil || !o.Store.Signs() {
		return r, nil
	}
	r.memory = o.State
	var err error
	if r.known, err = o.State.Load(ctx); err != nil {
		return nil, fmt.Errorf("recall what is stored: %w", err)
	}
	if r.ids, err = o.Store.ContentIDs(r.known.Secret); err != nil {
		return nil, err
	}
	cached := o.Cache.remove(o, r.known.Snapshot, r.ids)
	if r.known.Snapshot == "" || o.Full {
		return r, nil
	}
	newest, err := newest(ctx, o)
	if err != nil || newest == nil || baseOf(*newest) != r.known.Snapshot {
		return r, err
	}
	tree, err := o.Store.GetTree(ctx, newest.Tree)
	if _, corrupt := errors.AsType[*store.CorruptError](err); corrupt ||
		errors.Is(err, store.ErrNotFound) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if cached != nil {
		r.base, r.tree, r.index, r.shards, r.cut = newest, tree, cached.index, cached.shards, cached.cut
	} else if x, err := openIndex(r.ids, r.known.Parts); err == nil {
		// else it was made with other keys
		r.base, r.tree, r.index = newest, tree, x
	}
	return r, nil
}

// ask asks the source for its kinds and providers, which costs more than all else where little has
// changed. When nothing at all was written to it since the base, nor between its questions and its
// cut, their answers are still right.
func (r *reuse) ask(ctx context.Context, o Options) (indexHead, error) {
	head := indexHead{Reader: readerOf(o.Writer, o.Rows),
		Scope: slices.Sorted(slices.Values(o.Scope.Namespaces))}
	var err error
	if head.Asked, err = now(ctx, o.Source); err != nil {
		return head, err
	}
	if r.base != nil {
		if was := (&base{at: r.base.ResourceVersion}); !was.reaches(head.Asked) {
			return head, errHistory // to ask for what was then would be to ask for the future
		}
		was := r.index.head
		if r.proven, err = verifyHistory(ctx, o.Source, was.History, r.base.ResourceVersion); err != nil {
			return head, err
		}
		if r.proven && was.Reader == head.Reader && was.Asked == r.base.ResourceVersion &&
			head.Asked == was.Asked {
			head.Kinds, head.Providers = was.Kinds, was.Providers
			return head, nil
		}
	}
	if head.Kinds, err = o.Source.Kinds(ctx); err != nil {
		return head, err
	}
	head.Providers, err = o.Providers(ctx, head.Kinds)
	return head, err
}

// since is what the source can be followed from, nil when it has to be read whole.
func (r *reuse) since(head indexHead) *base {
	if r.base == nil {
		return nil
	}
	b := base{index: r.index, at: r.base.ResourceVersion, proven: r.proven, head: head, cut: r.cut}
	if !b.fits() {
		return nil
	}
	return &b
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

// find gives the key under which content, or what has this digest, is stored, or "". With a memory
// it also gives the id to know the content by.
func (r *reuse) find(keys []store.Key, name string, content []byte) (store.ContentID, store.Key) {
	if r.ids == nil {
		return store.ContentID{}, ""
	}
	id := r.ids.Of(name, content)
	if r.base == nil || !r.again(keys, r.index.places[id]) {
		return id, ""
	}
	return id, r.index.places[id]
}

// again tells whether a key can be used again.
func (r *reuse) again(keys []store.Key, key store.Key) bool {
	meta, known := r.known.Keys[string(key)]
	_, there := slices.BinarySearch(keys, key)
	return known && there && !meta.Written.Before(r.old)
}

// use notes a key that this snapshot uses again.
func (r *reuse) use(key store.Key) { r.note(key, r.known.Keys[string(key)]) }

// learn notes a key that this snapshot wrote.
func (r *reuse) learn(at store.Stored, written time.Time) {
	k := incremental.StoredKey{Size: at.Size, Written: written}
	if r.content > 0 {
		k.Retained = written.Add(r.content)
	}
	r.note(at.Key, k)
}

func (r *reuse) note(key store.Key, k incremental.StoredKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[string(key)] = k
}

// retain makes the storage keep what this snapshot uses again for as long as its envelope. Keys
// whose retention lasts, as far as is known, are not asked about.
func (r *reuse) retain(ctx context.Context, o Options, tree store.Key) error {
	envelope, _ := o.Store.Retention()
	if envelope == 0 {
		return nil
	}
	least := o.Now().Add(envelope)
	keys := []store.Key{tree}
	for key, k := range r.keys {
		if k.Retained.Before(least) {
			keys = append(keys, store.Key(key))
		}
	}
	until, err := o.Store.Retain(ctx, keys)
	if _, damaged := errors.AsType[*store.CorruptError](err); r.base != nil &&
		(damaged || errors.Is(err, store.ErrNotFound)) {
		return errBaseLeft // somebody took or overwrote what is used again
	}
	if err != nil {
		return fmt.Errorf("retain what is used again: %w", err)
	}
	for i, key := range keys {
		if k, ok := r.keys[string(key)]; ok { // not the tree
			k.Retained = until[i]
			r.keys[string(key)] = k
		}
	}
	return nil
}

// putTree stores the tree of this snapshot, unless it is the base's, and returns its key and how
// many bytes it names.
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

// kept looks, once the envelope is there, whether the base still is: whoever deleted it just before
// may have taken keys along that only it named.
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

// remember keeps for the next run where content is, and what the source looked like.
func (r *reuse) remember(ctx context.Context, o Options, now store.Signed, head indexHead,
	shards []storedShard, cut *Cut) error {
	change := incremental.StateDelta{To: baseOf(now), Keys: r.keys}
	if r.base != nil {
		change.From = r.known.Snapshot
		change.Keys, change.DeletedKeys = difference(r.known.Keys, r.keys)
	}
	s, err := sealIndex(r.ids, r.index, head, shards, cut.left)
	if err != nil {
		return err
	}
	change.Parts, change.DeletedParts = s.parts, s.gone
	if err := r.memory.Update(ctx, change); err != nil {
		return fmt.Errorf("remember what is stored: %w", err)
	}
	if o.Cache == nil || o.Keep { // whoever asked for the nodes may change them
		return nil
	}
	byName := make(map[string]storedShard, len(shards))
	for _, sh := range shards {
		byName[sh.name()] = sh
	}
	o.Cache.put(o, &cachedRun{base: change.To, keys: keysOf(r.ids), index: s.index, cut: cut,
		shards: byName})
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
