package schedule

import (
	"context"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

const (
	// storeEvery is how often the store of a schedule is searched for its last snapshot.
	storeEvery = 5 * time.Minute
	// storeAfterRun is how long after a run that succeeded its snapshot is searched for, at most:
	// somebody who hides each snapshot needs a moment.
	storeAfterRun = time.Minute
	// storeListEvery is how often a store is listed whose last snapshot is missing: a list of many
	// snapshots costs more than the read of one.
	storeListEvery = time.Hour
	// storeTimeout bounds one search.
	storeTimeout = time.Minute
)

// Stored is a snapshot that a store has; the zero value is none.
type Stored struct {
	Key store.EnvelopeKey
	// Time is when the snapshot was taken, by its writer or by the storage that received it,
	// whichever is earlier: either clock may have been ahead.
	Time time.Time
}

// Stores answers which snapshots of a schedule are really in its store.
type Stores interface {
	// Taken returns the key of the snapshot that an operation took.
	Taken(ctx context.Context, op catalog.OperationID) (store.EnvelopeKey, error)
	// IsStored reports whether a trusted envelope is stored under a key.
	IsStored(ctx context.Context, s Schedule, key store.EnvelopeKey) (bool, error)
	// NewestStored returns the newest trusted snapshot in the scope of a schedule.
	NewestStored(ctx context.Context, s Schedule, source string) (Stored, error)
}

// freshness is what is known of the newest snapshot of a schedule in its store.
type freshness struct {
	// good is when the newest snapshot was taken that the store had when it was searched last; when
	// it was never searched, the recorded last success.
	good time.Time
	// doubt says that the last search did not find the snapshot of the last success, or failed.
	// Later successes do not count until a search finds the snapshot of one.
	doubt bool
	// found is the newest snapshot when that of the last success is missing, of the list at listed.
	found  Stored
	listed time.Time
}

// Scope returns the scope of the snapshots of a source, which is named by its UID.
func (s *Schedule) Scope(source string) store.Scope {
	return store.ScopeOf(source, s.Namespaces, s.Selector, s.Name)
}

// scopeIn names the location of a schedule and the scope of its snapshots of a source.
func (s *Schedule) scopeIn(source string) string { return s.Location + " " + s.Scope(source).ID }

// lastGood returns when the newest snapshot was taken that counts: the last success, unless the
// store lacks its snapshot.
func (d *scheduled) lastGood() time.Time {
	if d.fresh.doubt && d.fresh.good.Before(d.state.LastSuccess) {
		return d.fresh.good
	}
	return d.state.LastSuccess
}

// followStore searches the store of a schedule for its last snapshot until the context ends: a
// while after each run, and at an interval. A run that succeeded says nothing of what happened to
// its snapshot since.
func (r *Scheduler) followStore(ctx context.Context, d *scheduled) {
	wait := time.Duration(0)
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-d.ran:
			t.Stop()
			wait = min(storeAfterRun, d.interval(r.now())/2)
		case <-t.C:
			r.searchStore(ctx, d)
			wait = storeEvery
		}
	}
}

// searchStore finds out whether the snapshot of the last success is in the store, and if it is not,
// which one is the newest.
func (r *Scheduler) searchStore(ctx context.Context, d *scheduled) {
	r.mu.Lock()
	state, was := d.state, d.fresh
	r.mu.Unlock()
	last, err := store.ParseEnvelopeKey(state.LastSnapshot)
	if err != nil || state.LastScope != d.scopeIn(last.Source) {
		return // no success is recorded, or one with another selection or location
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	is, err := r.searchFor(ctx, d, last, state, was)
	if ctx.Err() != nil && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		is = was
		is.doubt = true
		if !was.doubt {
			r.Log.Warn("the store could not be searched for the last snapshot of the schedule; later ones "+
				"count once it was", "schedule", d.Name, "error", err)
		}
	} else if is.doubt && !was.doubt {
		r.Log.Warn("the last snapshot of the schedule is not in the store any more", "schedule", d.Name,
			"key", last, "newest", is.found.Key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d.fresh = is
	r.Metrics.NewestStored(d.Name, d.lastGood())
	r.observe(d, r.now())
}

// searchFor returns what is known after a search for the snapshot last.
func (r *Scheduler) searchFor(ctx context.Context, d *scheduled, last store.EnvelopeKey,
	state catalog.ScheduleState, was freshness) (freshness, error) {
	stored, err := r.Stores.IsStored(ctx, d.Schedule, last)
	if err != nil {
		return was, err
	}
	if stored {
		return freshness{good: state.LastSuccess}, nil
	}
	now := r.now()
	is := was
	if was.found.Key != (store.EnvelopeKey{}) && now.Sub(was.listed).Abs() < storeListEvery {
		stored, err = r.Stores.IsStored(ctx, d.Schedule, was.found.Key)
		if err != nil || stored {
			is.setGood(was.found.Time, state)
			return is, err
		}
	}
	found, err := r.Stores.NewestStored(ctx, d.Schedule, last.Source)
	if err != nil {
		return was, err
	}
	if found.Key != was.found.Key { // else its time may be ahead of the clock, and counts as before
		is.found = Stored{Key: found.Key, Time: reached(found.Time, now)}
	}
	is.listed = now
	is.setGood(is.found.Time, state)
	return is, nil
}

// setGood sets the time of the newest snapshot that is there. It may be a later one than that of
// the last success: somebody else took it, and a prune removed the one before.
func (f *freshness) setGood(taken time.Time, state catalog.ScheduleState) {
	f.good, f.doubt = taken, taken.Before(state.LastSuccess)
}
