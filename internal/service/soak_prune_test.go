package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
)

// pruned is what was removed, or may have been, since the last check.
type pruned struct {
	any  bool                       // since the soak began
	gone map[store.EnvelopeKey]bool // it was said that these are gone
	// a prune that ended early, or heard no answer, meant these to go
	meant     map[store.EnvelopeKey]bool
	snapshots int
	freed     retention.Amount
}

func newPruned() pruned {
	return pruned{gone: map[store.EnvelopeKey]bool{}, meant: map[store.EnvelopeKey]bool{}}
}

// unlessGone passes over what cannot be done with a snapshot that was removed meanwhile. That it is
// damaged is not to be said of it.
func (k *soak) unlessGone(err error, of ...taken) error {
	if err == nil || classify(err).Reason == ReasonFindings {
		return err
	}
	for _, s := range of {
		if _, statErr := os.Stat(filepath.Join(k.dir, "store", s.Key().String())); errors.Is(statErr,
			os.ErrNotExist) {
			return nil
		}
	}
	return err
}

// pass lets so much time pass that a run under way may be too old to make a snapshot. A prune reads
// the clock before each removal; a host that sleeps right then may cause a false gap, and one that
// sleeps for an hour loses its record, so that little time passes during prunes, however many of
// these the others get through meanwhile.
func (k *soak) pass(r *rand.Rand) error {
	d := time.Duration(10+r.IntN(140)) * time.Minute
	if k.pruning.TryLock() {
		defer k.pruning.Unlock()
	} else {
		d /= 100
	}
	k.clock.Pass(d)
	k.bucket.ListAll()
	return nil
}

// passHours advances the clock so far that a prune may remove everything that no rule retains. That
// includes the newest whole snapshot when the last one is partial. Each worker removes something
// first in the round that follows.
func (k *soak) passHours(r *rand.Rand) {
	k.noFaults = true
	if r.IntN(2) == 0 {
		for range k.sources {
			if err := k.assertExpected(k.take(r, false, []string{"team-0"})); err != nil {
				k.t.Error(err)
			}
		}
	}
	k.clock.Pass(time.Duration(r.IntN(10)) * time.Hour)
	k.bucket.ListAll()
}

// prune removes what its random rules do not retain.
func (k *soak) prune(r *rand.Rand) error {
	o := retention.Options{Grace: retention.MinGrace}
	switch r.IntN(5) {
	case 0: // nothing but what has expired
	case 1:
		o.Policy = retention.Policy{Hourly: 1 + r.IntN(3), Daily: 1 + r.IntN(2)}
	case 2:
		o.Policy.Within = time.Duration(1+r.IntN(12)) * time.Hour
	default:
		o.Policy.Last = 1 + r.IntN(6)
	}
	if r.IntN(4) == 0 {
		o.Grace = 0
	}
	if r.IntN(4) == 0 {
		o.Source = k.sources[r.IntN(len(k.sources))].UID
	}
	return k.runPrune(o)
}

// remove deletes a snapshot by name. A refusal is an answer.
func (k *soak) remove(r *rand.Rand) error {
	of, ok := k.pick(r)
	if r.IntN(2) == 0 {
		of, ok = k.newestWhole(k.sources[r.IntN(len(k.sources))])
	}
	if !ok {
		return nil
	}
	err := k.runPrune(retention.Options{Grace: retention.MinGrace,
		Delete: []store.EnvelopeKey{of.Key()}})
	if _, refused := errors.AsType[*retention.RefusedError](err); refused {
		return nil
	}
	return err
}

// newestWhole gives the snapshot that is least to be removed, of those that are good.
func (k *soak) newestWhole(source *snapshottest.Source) (newest taken, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, of := range k.taken {
		if of.source == source && !of.Partial && (!ok || compareKeys(of.Key(), newest.Key()) > 0) {
			newest, ok = of, true
		}
	}
	return newest, ok
}

func (k *soak) runPrune(o retention.Options) error {
	k.pruning.RLock()
	defer k.pruning.RUnlock()
	c, p, err := k.s.openPrune(k.t.Context(), "", o)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.pruned.any = true
	k.mu.Unlock()
	p.options.Now = k.clock.Now
	op := catalog.Operation{Kind: catalog.KindPrune, Source: catalog.Side{UID: o.Source},
		Store: p.options.Store.ID()}
	return k.operation(op, func(ctx context.Context, j *catalog.Journal) error {
		result, err := k.s.prune(ctx, c, j, p.options)
		if result == nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, key := range result.Removed {
			k.pruned.gone[key] = true
		}
		for _, v := range result.Snapshots {
			if v.Goes() && !k.pruned.gone[v.Key] {
				if err == nil && !slices.ContainsFunc(result.Findings, leaves) {
					k.t.Errorf("a prune that succeeded says nothing of %s", v.Key)
				}
				k.pruned.meant[v.Key] = true
			}
		}
		k.pruned.snapshots += len(result.Removed)
		k.pruned.freed.Keys += result.Freed.Keys
		k.pruned.freed.Bytes += result.Freed.Bytes
		if err != nil && k.noFaults {
			return fmt.Errorf("%w: %v", err, result.Findings)
		}
		return err
	})
}

// pin pins a snapshot. One that was removed in that moment is an error.
func (k *soak) pin(r *rand.Rand) error {
	of, ok := k.pick(r)
	if !ok {
		return nil
	}
	st, err := k.open()
	if err == nil {
		err = st.PutPin(k.t.Context(), of.Key(), "soak", k.clock.Now())
	}
	return k.unlessGone(err, of)
}

// unpin takes one of the pins away that are there.
func (k *soak) unpin(r *rand.Rand) error {
	st, err := k.open()
	if err != nil {
		return err
	}
	pins, err := st.Pins(k.t.Context(), "")
	if err != nil || len(pins) == 0 {
		return err
	}
	var keys []store.EnvelopeKey
	for key := range pins {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	key := keys[r.IntN(len(keys))]
	k.mu.Lock()
	delete(k.last.pinned, key) // from now on it may go
	k.mu.Unlock()
	return st.RemovePin(k.t.Context(), key)
}
