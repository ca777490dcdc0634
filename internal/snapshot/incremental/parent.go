package incremental

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/store"
)

// repackAge is how old stored content becomes before it is written again. Otherwise old packs, of
// which ever less is needed, would stay for ever.
const repackAge = 7 * 24 * time.Hour

// Chain is the snapshots of one source in one store, each the parent of the next. What a snapshot
// reuses is that of the newest one of its own scope.
type Chain struct {
	Store  *store.Store
	Source string     // UID
	Scope  string     // ID
	State  StateStore // nil: every snapshot reads and writes everything
	Cache  *RunCache
}

func (c Chain) name() string { return c.Store.ID() + " " + c.Source + " " + c.Scope }

// Newest returns the snapshot that the next one follows, nil when there is none, and what was
// passed over: what nobody trusted wrote must not prevent the next snapshot.
func (c Chain) Newest(ctx context.Context) (*store.Signed, []store.PassedOver, error) {
	return c.Store.Newest(ctx, c.Source, store.Which{})
}

// NewestOfScope returns the newest snapshot of the chain's scope, given the newest of all.
func (c Chain) NewestOfScope(ctx context.Context, newest *store.Signed) (*store.Signed, error) {
	if newest == nil || newest.ScopeID() == c.Scope {
		return newest, nil
	}
	of, _, err := c.Store.Newest(ctx, c.Source, store.Which{
		Accept: func(e *store.Signed) bool { return e.ScopeID() == c.Scope }})
	return of, err
}

// Parent is what is known of the newest snapshot of a chain in its scope. Its fields do not change,
// but a run changes the nodes in Index, Shards and Cut, which belong to it.
type Parent struct {
	// Snapshot is nil when nothing of it can be used: everything is read and written.
	Snapshot *store.Signed
	Tree     store.Tree
	Index    *Index
	// Shards, by name, and Cut are set if this process created the snapshot.
	Shards map[string]Shard
	Cut    *capture.Cut

	state        State
	ids          *store.ContentIDs // nil: there is no state
	repackBefore time.Time         // content written before that is written again
}

// LoadParent returns what can be used of the newest snapshot. It is nothing if full is set, if the
// state is that of another snapshot, or if the snapshot cannot be read.
func (c Chain) LoadParent(ctx context.Context, full bool, now time.Time) (*Parent, error) {
	p := &Parent{repackBefore: now.Add(-repackAge)}
	if c.State == nil || !c.Store.Signs() {
		return p, nil
	}
	var err error
	if p.state, err = c.State.Load(ctx, c.Scope); err != nil {
		return nil, fmt.Errorf("recall what is stored: %w", err)
	}
	if p.ids, err = c.Store.ContentIDs(p.state.Secret); err != nil {
		return nil, err
	}
	cached := c.Cache.remove(c.name(), p.state.Snapshot, p.ids)
	if p.state.Snapshot == "" || full {
		return p, nil
	}
	newest, _, err := c.Newest(ctx)
	if err == nil {
		newest, err = c.NewestOfScope(ctx, newest)
	}
	if err != nil || newest == nil || stateName(*newest) != p.state.Snapshot {
		return p, err
	}
	tree, err := c.Store.GetTree(ctx, newest.Tree)
	if err != nil { // a parent that cannot be read is none
		return p, store.OfStore(ctx, err)
	}
	if cached != nil {
		p.Index, p.Shards, p.Cut = cached.index, cached.shards, cached.cut
	} else if p.Index, err = openIndex(p.ids, p.state.Parts); err != nil {
		return p, nil // it was made with other keys
	}
	p.Snapshot, p.Tree = newest, tree
	return p, nil
}

// stateName is how a state names a snapshot.
func stateName(s store.Signed) string { return s.Key().String() + " " + s.SHA256 }

// Precedes reports whether a snapshot that uses p may follow newest, the newest of its scope, which
// may be nil.
func (p *Parent) Precedes(newest *store.Signed) bool {
	return p.Snapshot == nil || newest != nil && newest.SHA256 == p.Snapshot.SHA256
}

// FindPack returns the pack to reuse for the object with this name and digest, or "", and the
// content ID, which is zero when there is no state.
func (p *Parent) FindPack(name, digest string) (store.ContentID, store.Key) {
	return p.find(p.Tree.Packs, name, []byte(digest))
}

// FindShard returns the key to reuse for a shard with this text, or "", and the content ID, which
// is zero when there is no state.
func (p *Parent) FindShard(text []byte) (store.ContentID, store.Key) {
	return p.find(p.Tree.Shards, "shard", text)
}

func (p *Parent) find(keys []store.Key, name string, content []byte) (store.ContentID, store.Key) {
	if p.ids == nil {
		return store.ContentID{}, ""
	}
	id := p.ids.Of(name, content)
	if p.Snapshot == nil || !p.reusable(keys, p.Index.keys[id]) {
		return id, ""
	}
	return id, p.Index.keys[id]
}

// ReusablePack reports whether a snapshot may name a pack of the parent again.
func (p *Parent) ReusablePack(key store.Key) bool { return p.reusable(p.Tree.Packs, key) }

// ReusableShard reports whether a snapshot may name a shard of the parent again.
func (p *Parent) ReusableShard(key store.Key) bool { return p.reusable(p.Tree.Shards, key) }

func (p *Parent) reusable(keys []store.Key, key store.Key) bool {
	stored, known := p.state.Keys[string(key)]
	_, there := slices.BinarySearch(keys, key)
	return known && there && !stored.Written.Before(p.repackBefore)
}

// Keys are the shards and packs of a snapshot.
type Keys map[string]StoredKey

// AddReused adds a key of the parent.
func (k Keys) AddReused(p *Parent, key store.Key) { k[string(key)] = p.state.Keys[string(key)] }

// AddWritten adds a key that was written to st.
func (k Keys) AddWritten(st *store.Store, at store.Stored, written time.Time) {
	stored := StoredKey{Size: at.Size, Written: written}
	if _, content := st.Retention(); content > 0 {
		stored.Retained = written.Add(content)
	}
	k[string(at.Key)] = stored
}

// Bytes is the size of all keys.
func (k Keys) Bytes() (bytes int64) {
	for _, stored := range k {
		bytes += stored.Size
	}
	return bytes
}

// NewBytes is the size of the keys that are not the parent's.
func (k Keys) NewBytes(p *Parent) (bytes int64) {
	for key, stored := range k {
		if _, known := p.state.Keys[key]; !known || p.Snapshot == nil {
			bytes += stored.Size
		}
	}
	return bytes
}

// Inspection is what a source serves, and whether its history is that of the parent.
type Inspection struct {
	Head Head
	// HistoryVerified says that etcd was not restored since the parent.
	HistoryVerified bool
}

// Inspect asks a source for its kinds and providers. That costs more than all else where little
// has changed: when nothing at all was written to the source since the parent, nor between the
// parent's inspection and its cut, the answers are still right and come from the index. Inspect
// returns capture.ErrHistory when the source is older than the parent.
func (p *Parent) Inspect(ctx context.Context, source capture.Source, scope capture.Scope,
	providers func(context.Context, []kube.Kind) ([]kube.Provider, error), writer string,
	rows *capi.Table) (
	i Inspection, err error) {
	i.Head = Head{Reader: readerOf(writer, rows),
		Scope: slices.Sorted(slices.Values(scope.Namespaces)), Selector: scope.Selector.String()}
	if i.Head.InspectedAt, err = capture.Newest(ctx, source); err != nil {
		return i, err
	}
	if p.Snapshot != nil {
		parentAt := p.Snapshot.ResourceVersion
		if !capture.NotOlder(i.Head.InspectedAt, parentAt) {
			// a list of leases as of the parent would be one of the future
			return i, capture.ErrHistory
		}
		was := p.Index.Head
		i.HistoryVerified, err = verifyHistory(ctx, source, was.LeaseDigest, parentAt)
		if err != nil {
			return i, err
		}
		if i.HistoryVerified && was.Reader == i.Head.Reader && was.InspectedAt == parentAt &&
			i.Head.InspectedAt == was.InspectedAt {
			i.Head.Kinds, i.Head.Providers = was.Kinds, was.Providers
			return i, nil
		}
	}
	if i.Head.Kinds, err = source.Kinds(ctx); err != nil {
		return i, err
	}
	i.Head.Providers, err = providers(ctx, i.Head.Kinds)
	return i, err
}

// Baseline returns what a capture can start from; nil when the source has to be read whole.
func (p *Parent) Baseline(i Inspection) *capture.Baseline {
	if p.Snapshot == nil || !i.Head.compatible(p.Index.Head) {
		return nil
	}
	return &capture.Baseline{
		ResourceVersion: p.Snapshot.ResourceVersion, Kinds: p.Index.Head.Kinds,
		NotInCut: slices.Concat(p.Index.Head.NotInCut, p.Index.Head.Unread),
		Nodes:    p.Index.Nodes, Cut: p.Cut,
		HistoryVerified: i.HistoryVerified,
	}
}

// Run is what a run leaves for the next one.
type Run struct {
	Snapshot store.Signed
	Head     Head // without NotInCut, Unread and LeaseDigest
	Shards   []Shard
	Cut      *capture.Cut
	Keys     Keys
}

// Remember stores what a run leaves, and caches it. It does nothing when there is no state. An
// error makes the next run read and write everything.
func (c Chain) Remember(ctx context.Context, p *Parent, source capture.Source, r Run,
	now func() time.Time) error {
	if p.ids == nil {
		return nil
	}
	r.Head.NotInCut = r.Cut.NotInCut
	for _, k := range r.Cut.Unread {
		r.Head.Unread = append(r.Head.Unread, k.GroupKind)
	}
	// without a digest the next run cannot use watches from here
	if f, err := fingerprintLeases(ctx, source, r.Cut.ResourceVersion); err == nil {
		r.Head.LeaseDigest = f.proof(now())
	}
	delta := StateDelta{To: stateName(r.Snapshot), Keys: r.Keys}
	if p.Snapshot != nil {
		delta.From = p.state.Snapshot
		delta.Keys, delta.DeletedKeys = difference(p.state.Keys, r.Keys)
	}
	var was *Index
	if p.Snapshot != nil {
		was = p.Index
	}
	s, err := sealIndex(p.ids, was, r.Head, r.Shards, r.Cut.NotCaptured)
	if err != nil {
		return err
	}
	delta.Parts, delta.DeletedParts = s.parts, s.deleted
	if err := c.State.Update(ctx, c.Scope, delta); err != nil {
		return fmt.Errorf("remember what is stored: %w", err)
	}
	if c.Cache == nil {
		return nil
	}
	shards := make(map[string]Shard, len(r.Shards))
	for _, sh := range r.Shards {
		shards[sh.Name()] = sh
	}
	c.Cache.put(c.name(), &cachedRun{snapshot: delta.To, keys: keysOf(p.ids), index: s.index,
		cut: r.Cut, shards: shards})
	return nil
}

// difference returns what of now is new or changed since was, and the keys of was that are not in
// now.
func difference[K, V comparable](was, now map[K]V) (added map[K]V, deleted []K) {
	added = maps.Clone(now)
	for k, v := range was {
		if is, ok := now[k]; !ok {
			deleted = append(deleted, k)
		} else if is == v {
			delete(added, k)
		}
	}
	return added, deleted
}
