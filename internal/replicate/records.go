package replicate

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

// copyRecords brings the pins and the results of verifies of the snapshots in the copy, and records
// which numbers are not in it on purpose.
func (r *run) copyRecords(ctx context.Context) error {
	if err := r.copyPins(ctx); err != nil {
		return err
	}
	if err := r.copyVerifications(ctx); err != nil {
		return err
	}
	return r.explain(ctx)
}

// copyPins pins in the copy what is pinned in the origin. A pin of the copy stays when that of the
// origin goes.
func (r *run) copyPins(ctx context.Context) error {
	from, err := r.From.Pins(ctx, "")
	if err != nil {
		return &store.OriginError{Err: err}
	}
	to, err := r.To.Pins(ctx, "")
	if err != nil {
		return err
	}
	for key := range from {
		if !r.present[key] || to[key] {
			continue
		}
		copied, err := r.To.CopyPin(ctx, r.From, key)
		if err != nil {
			return err
		}
		if copied {
			r.result.Pins++
		}
	}
	return nil
}

// copyVerifications brings the results of verifies that the copy does not have.
func (r *run) copyVerifications(ctx context.Context) error {
	from, err := r.From.VerificationKeys(ctx, "")
	if err != nil {
		return &store.OriginError{Err: err}
	}
	to, err := r.To.VerificationKeys(ctx, "")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for key := range r.present {
		of := key.String()
		for _, k := range from[of] {
			if slices.Contains(to[of], k) {
				continue
			}
			g.Go(func() error {
				copied, err := r.To.CopyVerification(gctx, r.From, k)
				mu.Lock()
				defer mu.Unlock()
				if copied && err == nil {
					r.result.Verifications++
				}
				if store.IsCorrupt(err) {
					err = nil // what is in the copy counts for nothing there, like any damaged record
				}
				return err
			})
		}
	}
	return g.Wait()
}

// explain records in the copy which numbers are not there on purpose: those that the origin
// removed, by its records, and those that are left out. What is in the origin and could not be
// copied is not among them, and no number is that the copy once had: a copy retains for longer than
// its origin, so that who hides a snapshot in the copy mostly hides one that the origin removed.
// What a prune of the copy removes, that prune records.
func (r *run) explain(ctx context.Context) error {
	explained := map[string][]store.Range{}
	for source, ranges := range r.removed.from.Removed {
		// A number that two writers gave may be removed and there.
		explained[source] = store.WithoutNumbers(ranges, r.numbers[source])
	}
	for source, ranges := range r.leftOut {
		explained[source] = append(explained[source], ranges...)
	}
	if !r.unexplained(explained) {
		return nil
	}
	there, unknown, err := r.sequences(ctx)
	if err != nil {
		return err
	}
	for source, numbers := range there {
		explained[source] = store.WithoutNumbers(explained[source], numbers)
	}
	if !r.unexplained(explained) {
		return nil
	}
	if err := r.neverCopied(ctx, explained, unknown); err != nil {
		return err
	}
	before, err := r.To.Pruned(ctx)
	if err != nil {
		return err
	}
	r.result.Explained, err = r.To.PutExplained(ctx, before, explained, there, r.Now())
	return err
}

// neverCopied takes out of explained what the copy once had, or may have had: those numbers of
// which it has a record, and all of a source that has an envelope in the copy of which neither a
// record nor its own text says the number.
func (r *run) neverCopied(ctx context.Context, explained map[string][]store.Range,
	unknown []store.EnvelopeKey) error {
	if !r.To.RecordsCopied() {
		clear(explained)
		r.unknowable("the copy was made by an earlier version, which kept no record of what came to it")
		return nil
	}
	copied, err := r.To.Copied(ctx)
	if errors.Is(err, store.ErrDenied) {
		clear(explained)
		r.unknowable("what somebody hides in the copy cannot be seen: " + err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	numbers := map[string][]int64{}
	for key, sequence := range copied {
		numbers[key.Source] = append(numbers[key.Source], sequence)
	}
	for source := range explained {
		explained[source] = store.WithoutNumbers(explained[source], numbers[source])
	}
	for _, key := range unknown {
		if _, ok := copied[key]; !ok {
			delete(explained, key.Source)
		}
	}
	return nil
}

// unknowable reports that numbers stay unexplained, since the copy may have had them.
func (r *run) unknowable(reason string) {
	r.result.report(object.Warning, object.CodeSnapshotMissing, "numbers that the origin removed and "+
		"that are not in the copy stay unexplained: "+reason, "see that none of them is missed in the "+
		"copy, and accept its gaps once")
}

// unexplained reports whether some of the numbers are not in the records of the copy.
func (r *run) unexplained(numbers map[string][]store.Range) bool {
	for source, ranges := range numbers {
		for _, n := range ranges {
			if !r.removed.to.ExplainsAll(source, n) {
				return true
			}
		}
	}
	return false
}

// sequences returns the numbers of the snapshots in the copy, by source, and the snapshots that are
// listed and whose number cannot be read, or is in what no trusted key signed.
func (r *run) sequences(ctx context.Context) (there map[string][]int64, unknown []store.EnvelopeKey,
	err error) {
	stored, err := r.To.StoredSnapshots(ctx)
	if err != nil {
		return nil, nil, err
	}
	there = map[string][]int64{}
	var mu sync.Mutex
	g, gctx := task.WithContext(ctx)
	g.SetLimit(requests)
	for _, s := range stored {
		if sequence, ok := r.Known(r.To.ID(), s.Key); ok {
			mu.Lock()
			there[s.Key.Source] = append(there[s.Key.Source], sequence)
			mu.Unlock()
			continue
		}
		g.Go(func() error {
			e, err := r.To.GetEnvelope(gctx, s.Key)
			if store.OfStore(gctx, err) != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !r.To.Accepted(&e) {
				unknown = append(unknown, s.Key)
				return nil
			}
			there[e.Source.UID] = append(there[e.Source.UID], e.Sequence)
			return nil
		})
	}
	return there, unknown, g.Wait()
}
