package service

import (
	"context"
	"errors"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/store"
)

// lastSeen knows when management clusters were last seen alive: by their newest snapshots in a
// store, and by those that this host knows of, in whichever store. The copy of a store may be
// behind: by its snapshots alone, a source that was seen a minute ago would look like one that has
// been silent for hours.
type lastSeen struct {
	store *store.Store
	known func(ctx context.Context, source string) (time.Time, error) // nil without a catalog
}

// of returns when a source was last seen, zero when nothing shows that, and the interval of the
// schedule of its snapshots in the store, 0 for one that was taken by hand.
func (l lastSeen) of(ctx context.Context, source string) (at time.Time, interval time.Duration,
	err error) {
	at, interval, err = lastStored(ctx, l.store, source)
	if err != nil || l.known == nil {
		return at, interval, err
	}
	elsewhere, err := l.known(ctx, source)
	if elsewhere.After(at) {
		at, interval = elsewhere, longInterval
	}
	return at, interval, err
}

// longInterval stands for the interval of a schedule that is not known, of snapshots in another
// store: a management cluster counts as seen recently for as long as one can.
const longInterval = time.Hour

// overridden adds to the answers of owners that the operator overrides when they were last seen, by
// UID: by their ownership records as well.
func (l lastSeen) overridden(ctx context.Context, dials map[string]preflight.Dial,
	records []ownership.Record) (map[string]preflight.Overridden, error) {
	out := map[string]preflight.Overridden{}
	for _, r := range records {
		is, known := out[r.By.UID]
		if !known {
			var err error
			if is, err = l.owner(ctx, r.By); err != nil {
				return nil, err
			}
			is.Dial = dials[r.By.UID]
		}
		if r.Trusted && r.Time.After(is.Seen) {
			is.Seen = r.Time
		}
		out[r.By.UID] = is
	}
	return out, nil
}

// owner returns when the snapshots of an owner last showed that it lived. Where none of them can be
// read, the storage says when it received the last one.
func (l lastSeen) owner(ctx context.Context, by object.Side) (is preflight.Overridden, err error) {
	is.Owner = by
	if is.Seen, is.Interval, err = l.of(ctx, by.UID); err != nil || !is.Seen.IsZero() {
		return is, err
	}
	listed, err := l.store.ListedSnapshots(ctx, by.UID)
	for _, s := range listed {
		if s.Modified.After(is.Seen) {
			is.Seen, is.Interval = s.Modified.UTC(), longInterval
		}
	}
	return is, err
}

// lastStored returns when the newest snapshot of a source in a store shows that the source lived,
// and the interval of its schedule: the time that it states, but not later than the storage
// received it, since the clock of its writer may have been ahead. Zero when there is none that
// counts.
func lastStored(ctx context.Context, st *store.Store, source string) (at time.Time,
	interval time.Duration, err error) {
	newest, _, err := st.Newest(ctx, source, store.Which{})
	if store.IsUnusable(err) || errors.Is(err, store.ErrDenied) {
		return at, 0, nil // the plan reports it
	}
	if err != nil || newest == nil {
		return at, 0, err
	}
	at, interval = newest.Time, time.Duration(newest.Interval)*time.Second
	if received := newest.Received; !received.IsZero() && received.Before(at) {
		at = received.UTC()
	}
	return at, interval, nil
}
