package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// recordMaxAge limits the age of the inventory that a prune record is written from, and the age of
// the record that deletions are made from. It is well below the hour after which another prune may
// replace our record (store.PutPruneRecord); otherwise that prune could list before our deletions
// and overwrite the record after them.
const recordMaxAge = 20 * time.Minute

// maxAcceptedGap limits the length of a gap that AcceptGaps records. A snapshot every 30 seconds
// for a year makes fewer.
const maxAcceptedGap = 2_000_000

// maxClockSkew is how far our clock may be from the storage's without a finding.
const maxClockSkew = 5 * time.Minute

// putRecord records which snapshots are about to go, which also returns the storage's time, and
// decides again by that time.
func (e *execution) putRecord(ctx context.Context) error {
	before, err := e.Store.Pruned(ctx)
	if err != nil {
		return err
	}
	if err := e.refreshInventory(ctx); err != nil {
		return err
	}
	for _, key := range before.Unusable {
		e.report(object.Warning, object.CodePruneRecord, key+
			" is damaged, or not signed by a trusted key",
			"it is passed over: gaps that it explains are reported as such")
	}
	removal := e.removal()
	if e.AcceptGaps || e.Damaged {
		if removal.Numbers, err = e.acceptGaps(before); err != nil {
			return err
		}
	}
	e.recorded = e.Now()
	ours := e.recorded.UTC()
	at, err := e.Store.PutPruneRecord(ctx, before, removal, ours)
	if errors.Is(err, store.ErrRecordGone) && store.Exceeded(e.recorded, e.Now(), recordMaxAge) {
		at, err = ours, nil // replaced while this host slept: too old to remove anything by
	}
	if err != nil {
		return err
	}
	if skew := at.Sub(ours).Abs(); skew > maxClockSkew {
		e.report(object.Warning, object.CodeClock,
			fmt.Sprintf("the clock of the storage and that of this host "+
				"are %s apart", skew.Round(time.Second)), "set the clock: expiry and \"within\" count by that "+
				"of the storage, times of snapshots by that of the host that takes them")
	}
	e.result.Now, e.result.Estimated = at, false
	return e.decide(at)
}

// refreshInventory lists the store again, and decides again, when the plan is too old to be put on
// record: the host was asleep, or the storage is slow.
func (e *execution) refreshInventory(ctx context.Context) error {
	if !store.Exceeded(e.inventory.began, e.Now(), recordMaxAge) {
		return nil
	}
	inv, err := newInventory(ctx, &e.Options, e.inventory.snapshots)
	if err != nil {
		return err
	}
	e.inventory = inv
	return e.decide(e.Now().UTC())
}

// decide decides again, as of a time. Only snapshots that went before go still: others are neither
// in the plan nor on record.
func (e *execution) decide(now time.Time) error {
	went := map[store.EnvelopeKey]bool{}
	for _, v := range e.result.Snapshots {
		went[v.Key] = v.Goes()
	}
	verdicts, err := decide(&e.Options, e.inventory, now)
	if err != nil {
		return err
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.Goes() && !went[v.Key] {
			v.retain(Reason{Kind: NotPlanned})
		}
	}
	e.result.Snapshots = verdicts
	return nil
}

// removal returns the snapshots that go and those that stay.
func (e *execution) removal() (r store.Removal) {
	for _, v := range e.result.Snapshots {
		r.Listed = append(r.Listed, v.Key)
		switch {
		case v.Envelope == nil:
		case v.Goes():
			r.Gone = append(r.Gone, v.Envelope)
		default:
			r.Stay = append(r.Stay, v.Envelope)
		}
	}
	return r
}

// acceptGaps returns the sequence numbers of all gaps, and of what is missing, by source.
func (e *execution) acceptGaps(before store.Pruned) (map[string][]int64, error) {
	removed := map[string][]int64{}
	for _, m := range e.Missing {
		removed[m.Source] = append(removed[m.Source], m.Sequence)
	}
	for _, g := range gaps(e.Store, before, e.inventory.snapshots) {
		if g.To-g.From >= maxAcceptedGap {
			return nil, &store.UsageError{Text: fmt.Sprintf("accept gaps: snapshots number %d to %d of "+
				"source %s are too many to be one", g.From, g.To, g.Key.Source)}
		}
		for n := g.From; n <= g.To; n++ {
			removed[g.Key.Source] = append(removed[g.Key.Source], n)
		}
	}
	return removed, nil
}
