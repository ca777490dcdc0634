package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// mostProofs is how many envelopes are read at most in search of one that proves which
	// mgmtd.json is that of a store.
	mostProofs = 256
	// mostHiddenProofs is the same for envelopes that somebody hid or wrote over.
	mostHiddenProofs = 1000
	// proofPage is how many envelopes are listed before the first is read: a page of S3.
	proofPage = 1000
)

// proof is a search for the stores whose snapshots are in a bucket: those that envelopes name which
// a trusted key signed.
type proof struct {
	options Options

	first    EnvelopeKey // the one that was read before all were listed
	unread   []StoredSnapshot
	listed   bool // all are listed
	reads    int
	stores   map[string]*Store    // by id, for the memory of predecessors
	received map[string]time.Time // by id: when the storage received the first envelope that was read
	hidden   map[string]bool      // nil before the search for hidden ones; by id
}

// oldestProven returns the first of the versions of mgmtd.json, given oldest first, that is proven
// to be that of a store whose snapshots are here. What can be read counts before what somebody hid.
func (p *proof) oldestProven(ctx context.Context, versions []marker) (marker, bool, error) {
	for _, proves := range []func(context.Context, string) (bool, error){p.names, p.hides} {
		for _, m := range versions {
			if m.Origin != "" {
				return m, true, nil // that of a copy is signed
			}
			if proven, err := proves(ctx, m.StoreID); proven || err != nil {
				return m, proven, err
			}
		}
	}
	return marker{}, false, nil
}

// names reports whether an envelope names a store.
func (p *proof) names(ctx context.Context, id string) (bool, error) {
	for {
		if _, ok := p.received[id]; ok {
			return true, nil
		}
		batch, err := p.next(ctx)
		if err != nil || len(batch) == 0 {
			return false, err
		}
		if err := p.read(ctx, batch); err != nil {
			return false, err
		}
	}
}

// next returns the next envelopes to read: first the one of the first page that the storage
// received first, which is enough unless somebody attacks the store, and then the oldest and the
// newest by turns. Whoever writes junk can write neither before the first nor, where the first
// ones were signed by a key that is trusted no more, only after the last.
func (p *proof) next(ctx context.Context) ([]StoredSnapshot, error) {
	if p.received == nil {
		p.received, p.stores = map[string]time.Time{}, map[string]*Store{}
		first, err := p.firstPage(ctx)
		if err != nil || len(first) == 0 {
			p.listed = true
			return nil, err
		}
		oldest := slices.MinFunc(first, compareReceived)
		p.first = oldest.Key
		return []StoredSnapshot{oldest}, nil
	}
	if !p.listed {
		all, err := p.store("").ListedSnapshots(ctx, "")
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(i StoredSnapshot) bool { return i.Key == p.first })
		slices.SortFunc(all, compareReceived)
		for i, j := 0, len(all)-1; i <= j; i, j = i+1, j-1 {
			if p.unread = append(p.unread, all[i]); i < j {
				p.unread = append(p.unread, all[j])
			}
		}
		p.listed = true
	}
	n := min(len(p.unread), newestReads, mostProofs-p.reads)
	batch := p.unread[:n]
	p.unread = p.unread[n:]
	return batch, nil
}

func (p *proof) firstPage(ctx context.Context) (page []StoredSnapshot, err error) {
	err = p.options.Bucket.List(ctx, layout.EnvelopeFolder, func(i bucket.Info) error {
		if k, err := ParseEnvelopeKey(i.Key); err == nil {
			page = append(page, StoredSnapshot{Key: k, Modified: i.Modified})
		}
		if len(page) == proofPage {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return page, err
}

// read reads envelopes, as they are now, and notes which stores they name.
func (p *proof) read(ctx context.Context, batch []StoredSnapshot) error {
	p.reads += len(batch)
	documents := make([][]byte, len(batch))
	g, readCtx := task.WithContext(ctx)
	for i, stored := range batch {
		g.Go(func() (err error) {
			documents[i], err = bucket.ReadAll(readCtx, p.options.Bucket, stored.Key.String(),
				maxEnvelope)
			return fatal(readCtx, err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, stored := range batch {
		id, err := p.storeOf(ctx, stored.Key, documents[i])
		if err != nil {
			return err
		}
		if at, ok := p.received[id]; id != "" && (!ok || stored.Modified.Before(at)) {
			p.received[id] = stored.Modified
		}
	}
	return nil
}

// storeOf returns the id of the store that an envelope names; empty unless a trusted key signed it.
func (p *proof) storeOf(ctx context.Context, key EnvelopeKey, data []byte) (string, error) {
	id := claimedStore(data)
	if id == "" {
		return "", nil
	}
	e, err := p.store(id).openProven(ctx, key, data)
	format, isFormat := errors.AsType[*FormatError](err)
	if err == nil && e.Trust == Trusted || isFormat && format.Trusted {
		return id, nil
	}
	return "", fatal(ctx, err)
}

// store returns the store with an id, as far as reading envelopes goes.
func (p *proof) store(id string) *Store {
	if p.stores[id] == nil {
		o := p.options
		p.stores[id] = &Store{bucket: o.Bucket, keys: o.Keys, plain: o.Plain,
			marker: marker{StoreID: id}, limits: formatLimits(), ancestry: &ancestry{}}
	}
	return p.stores[id]
}

// hides reports whether an envelope that somebody hid or wrote over names a store.
func (p *proof) hides(ctx context.Context, id string) (bool, error) {
	if p.hidden == nil {
		p.hidden = map[string]bool{}
		if err := p.searchHidden(ctx, id); err != nil {
			return false, err
		}
	}
	return p.hidden[id], nil
}

// searchHidden reads older versions of envelopes until one names the store that is asked for.
func (p *proof) searchHidden(ctx context.Context, id string) error {
	b, ok := p.options.Bucket.(bucket.Repairer)
	if !ok {
		return nil
	}
	tries := 0
	err := b.ListVersions(ctx, layout.EnvelopeFolder, func(key string, v []bucket.Version) error {
		k, err := ParseEnvelopeKey(key)
		if err != nil || len(v) == 1 {
			return nil //nolint:nilerr // not an envelope, or one that nobody touched
		}
		err = previousDocuments(ctx, p.options.Bucket, key, maxEnvelope, func(data []byte) (bool, error) {
			named, err := p.storeOf(ctx, k, data)
			if named != "" {
				p.hidden[named] = true
			}
			tries++
			return named == id || tries >= mostHiddenProofs, err
		})
		if err == nil && (p.hidden[id] || tries >= mostHiddenProofs) {
			err = errStop
		}
		return err
	})
	return fatal(ctx, err)
}

// contradicts returns a *CorruptError when envelopes that trusted keys signed name other stores
// than mgmtd.json, and were there before it: somebody wrote over it, and nothing shows what it was.
// Where versions show that it was written once, nobody did.
func (p *proof) contradicts(ctx context.Context, m marker) error {
	if len(p.received) == 0 {
		return nil
	}
	if v, ok := p.options.Bucket.(bucket.Versioned); ok {
		versions, err := v.Versions(ctx, markerKey)
		if err := fatal(ctx, err); err != nil {
			return err
		}
		if err == nil && len(versions) == 1 {
			return nil
		}
	}
	info, err := p.options.Bucket.Stat(ctx, markerKey)
	if err != nil {
		return err
	}
	for id, at := range p.received {
		if at.Before(info.Modified) {
			return &CorruptError{Key: markerKey, Reason: fmt.Sprintf("it names store %s, but snapshots "+
				"that were here before, and that a trusted key signed, are of store %s: somebody wrote "+
				"over it", m.StoreID, id)}
		}
	}
	return nil
}
