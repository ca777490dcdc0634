package retention

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// requests limits how many envelopes and trees are read, and keys deleted, at once: each is a small
// request.
const requests = 8

// Snapshot is one envelope of a store, as listed and read.
type Snapshot struct {
	store.StoredSnapshot
	// Envelope is nil when it cannot be read; Err says why.
	Envelope *store.Signed
	Err      error
}

// usable reports whether s counts as a snapshot of its source: what it says of itself can be
// relied upon, and later snapshots may follow it.
func (s *Snapshot) usable(st *store.Store) bool {
	return s.Envelope != nil && st.CanBeParent(s.Envelope)
}

// taken returns when s was taken: what it says itself, but not later than the storage received it.
func (s *Snapshot) taken() time.Time {
	if s.Modified.Before(s.Key.Time) {
		return s.Modified
	}
	return s.Key.Time
}

// inventory is one listing of a store, and what is known about its snapshots from elsewhere.
type inventory struct {
	began     time.Time  // before the listing, by our clock
	snapshots []Snapshot // by source, newest first
	pins      map[store.EnvelopeKey]Reason
	used      map[string]store.SnapshotID // by operation
	// hiddenUsed is used of operations whose records somebody hid.
	hiddenUsed map[string]store.SnapshotID
}

// newInventory lists the snapshots of all sources, their pins, and the operations that need them.
// Envelopes in earlier are not read again, since envelopes never change.
func newInventory(ctx context.Context, o *Options, earlier []Snapshot) (*inventory, error) {
	inv := &inventory{began: o.Now()}
	var err error
	if inv.snapshots, err = listSnapshots(ctx, o, earlier); err != nil {
		return nil, err
	}
	// After the list: what is pinned or used meanwhile counts.
	if inv.pins, err = readPins(ctx, o.Store); err != nil {
		return nil, err
	}
	if inv.used, err = o.InUse(ctx); err != nil {
		return nil, err
	}
	inv.hiddenUsed, err = o.HiddenInUse(ctx) // after the others: one may be hidden meanwhile
	return inv, err
}

// listSnapshots lists the envelopes of all sources and reads those that are not in earlier.
func listSnapshots(ctx context.Context, o *Options, earlier []Snapshot) ([]Snapshot, error) {
	stored, err := o.Store.StoredSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	read := map[store.EnvelopeKey]Snapshot{}
	for _, s := range earlier {
		read[s.Key] = s
	}
	list := make([]Snapshot, len(stored))
	var mu sync.Mutex
	var done int64
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for i, s := range stored {
		if known, ok := read[s.Key]; ok && known.Size == s.Size && known.Envelope != nil {
			list[i] = known
			continue
		}
		g.Go(func() error {
			snapshot, err := readSnapshot(gctx, o.Store, s)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			list[i], done = snapshot, done+1
			o.Progress("envelopes read", done, int64(len(stored)))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(s Snapshot) bool { return s.Envelope == nil && s.Err == nil })
	slices.SortFunc(list, bySourceNewestFirst)
	return list, nil
}

// readSnapshot reads an envelope. Envelope and Err are both nil when another prune has removed it
// since it was listed.
func readSnapshot(ctx context.Context, st *store.Store, s store.StoredSnapshot) (Snapshot, error) {
	e, err := st.GetEnvelope(ctx, s.Key)
	switch {
	case err == nil:
		return Snapshot{StoredSnapshot: s, Envelope: &e}, nil
	case store.IsMissing(err):
		gone, goneErr := st.SnapshotGone(ctx, s.Key)
		if goneErr != nil {
			return Snapshot{}, goneErr
		}
		if gone {
			return Snapshot{StoredSnapshot: s}, nil
		}
		return Snapshot{StoredSnapshot: s, Err: err}, nil
	case store.OfStore(ctx, err) != nil:
		return Snapshot{}, err
	default:
		return Snapshot{StoredSnapshot: s, Err: err}, nil
	}
}

// readPins lists the pins and reads why they were put. A pin that cannot be read, that an unknown
// signer put, or that an attacker hid, pins all the same: an attacker who can place delete markers
// must not make a prune remove a pinned snapshot.
func readPins(ctx context.Context, st *store.Store) (map[store.EnvelopeKey]Reason, error) {
	list, err := st.Pins(ctx, "")
	if err != nil {
		return nil, err
	}
	hidden, err := st.HiddenPins(ctx)
	if err != nil {
		return nil, err
	}
	pins := map[store.EnvelopeKey]Reason{}
	for k := range hidden {
		pins[k] = Reason{Pinned, ", though somebody hid the pin"}
	}
	for k := range list {
		pin, err := st.GetPin(ctx, k)
		switch {
		case err == nil && pin.Reason != "":
			pins[k] = Reason{Pinned, ": " + pin.Reason}
		case err == nil, store.IsMissing(err):
			// A listed pin counts even if it was removed just now, or the storage does not find it.
			pins[k] = Reason{Kind: Pinned}
		case store.OfStore(ctx, err) != nil:
			return nil, err
		case store.IsUnusable(err):
			pins[k] = Reason{Pinned, ", though the pin is damaged"}
		default:
			pins[k] = Reason{Pinned, ", though the pin cannot be read"}
		}
	}
	return pins, nil
}

func bySourceNewestFirst(a, b Snapshot) int {
	if a.Key.Source != b.Key.Source {
		return strings.Compare(a.Key.Source, b.Key.Source)
	}
	return strings.Compare(b.Key.String(), a.Key.String())
}
