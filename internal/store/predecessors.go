package store

import (
	"context"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/task"
)

// ancestryReads is how many envelopes are read at once in search of predecessors.
const ancestryReads = 64

// chainWalk follows the parents of envelopes of one source. Each step is proven: by the hash that
// the successor has of an envelope, or by a link in a trusted prune record.
type chainWalk struct {
	store  *Store
	source string
	hidden bool // also read envelopes that delete markers hide

	mu      sync.Mutex
	parents map[string]Parent // by the SHA-256 of an envelope; zero for one without a parent
	listed  map[SnapshotID][]EnvelopeKey
	links   map[string][]Parent // of prune records; nil until they are read
	// changed are the keys with several versions and, for a repair, those that are hidden; nil until
	// they are listed.
	changed map[SnapshotID][]EnvelopeKey
}

// predecessors returns the hashes of the envelopes of a source that are heads or their
// predecessors. It reads all envelopes of the source once. Only where the chain is broken does it
// read the prune records, and search the older versions of the keys that may have the missing
// envelope.
func (s *Store) predecessors(ctx context.Context, source string, heads []keys.LastTrusted,
	hidden bool) (map[string]bool, error) {
	w := &chainWalk{store: s, source: source, hidden: hidden, parents: map[string]Parent{},
		listed: map[SnapshotID][]EnvelopeKey{}}
	if err := w.readCurrent(ctx); err != nil {
		return nil, err
	}
	proven, seen := map[string]bool{}, map[string]bool{}
	var next []Parent
	for _, h := range heads {
		next = append(next, Parent{SHA256: h.Hash})
	}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if at.SHA256 == "" || seen[at.SHA256] {
			continue
		}
		seen[at.SHA256] = true
		found, linked, err := w.find(ctx, at)
		if err != nil {
			return nil, err
		}
		if found {
			proven[at.SHA256] = true
			next = append(next, w.parents[at.SHA256])
		}
		next = append(next, linked...)
	}
	return proven, nil
}

// readCurrent reads what the keys of the source have now.
func (w *chainWalk) readCurrent(ctx context.Context) error {
	list, err := w.store.Snapshots(ctx, w.source)
	if err != nil {
		return err
	}
	g, readCtx := task.WithContext(ctx)
	g.SetLimit(ancestryReads)
	for _, key := range list {
		w.listed[key.ID] = append(w.listed[key.ID], key)
		g.Go(func() error {
			data, err := bucket.ReadAll(readCtx, w.store.bucket, key.String(), maxEnvelope)
			if err == nil {
				w.add(data)
			}
			return fatal(readCtx, err)
		})
	}
	return g.Wait()
}

// add notes the parent of an envelope, and returns the hash of the envelope.
func (w *chainWalk) add(data []byte) string {
	sum, parent := layout.SHA256Hex(data), parentOf(data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parents[sum] = parent
	return sum
}

// find reports whether the store has an envelope; otherwise it returns the predecessors to which
// prune records lead. The id is empty for a head, of which only the hash is known.
func (w *chainWalk) find(ctx context.Context, at Parent) (found bool, linked []Parent, err error) {
	if _, ok := w.parents[at.SHA256]; ok {
		return true, nil, nil
	}
	// Somebody wrote over the key that has the id.
	if found, err = w.search(ctx, at, w.listed[at.ID]); err != nil || found {
		return found, nil, err
	}
	if w.hidden && at.ID != "" {
		if found, err = w.searchChanged(ctx, at); err != nil || found {
			return found, nil, err
		}
	}
	if linked, err = w.linksOf(ctx, at.SHA256); err != nil || len(linked) > 0 || at.ID != "" {
		return false, linked, err
	}
	found, err = w.searchChanged(ctx, at)
	return found, nil, err
}

// linksOf returns the predecessors that trusted prune records name for a removed envelope.
func (w *chainWalk) linksOf(ctx context.Context, sum string) ([]Parent, error) {
	if w.links == nil {
		pruned, err := w.store.Pruned(ctx)
		if err := fatal(ctx, err); err != nil {
			return nil, err
		}
		w.links = bySHA256(pruned.links[w.source])
	}
	return w.links[sum], nil
}

// bySHA256 returns the parents that links have, by the hash of the removed envelope.
func bySHA256(links []record.Link) map[string][]Parent {
	found := make(map[string][]Parent, len(links))
	for _, l := range links {
		if !slices.Contains(found[l.SHA256], l.Parent) { // several records may have it
			found[l.SHA256] = append(found[l.SHA256], l.Parent)
		}
	}
	return found
}

// searchChanged searches the keys that have several versions for an envelope: those with its id, or
// all when that is not known.
func (w *chainWalk) searchChanged(ctx context.Context, at Parent) (bool, error) {
	if err := w.listChanged(ctx); err != nil {
		return false, err
	}
	if at.ID != "" {
		return w.search(ctx, at, w.changed[at.ID])
	}
	for _, list := range w.changed {
		if found, err := w.search(ctx, at, list); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// listChanged lists the versions of the source once.
func (w *chainWalk) listChanged(ctx context.Context) error {
	b, ok := w.store.bucket.(bucket.Repairer)
	if !ok || w.changed != nil {
		return nil
	}
	w.changed = map[SnapshotID][]EnvelopeKey{}
	err := b.ListVersions(ctx, layout.EnvelopeFolder+w.source+"/", func(name string,
		versions []bucket.Version) error {
		key, err := ParseEnvelopeKey(name)
		if err == nil && (w.hidden || !versions[0].Deleted) && !untouched(versions) {
			w.changed[key.ID] = append(w.changed[key.ID], key)
		}
		return nil
	})
	return fatal(ctx, err)
}

// search reads the older versions of keys until it finds an envelope.
func (w *chainWalk) search(ctx context.Context, at Parent, list []EnvelopeKey) (found bool,
	err error) {
	for _, key := range list {
		err := previousDocuments(ctx, w.store.bucket, key.String(), maxEnvelope,
			func(data []byte) (bool, error) {
				found = w.add(data) == at.SHA256
				return found, nil
			})
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// parentOf returns the parent that an envelope names; zero without one. The signature is not
// checked: the hash of a successor proves the bytes.
func parentOf(data []byte) Parent {
	var f document.File
	var e Envelope
	if document.Decode(data, &f) != nil || document.Decode([]byte(f.Payload), &e) != nil ||
		e.Parent == nil {
		return Parent{}
	}
	return *e.Parent
}
