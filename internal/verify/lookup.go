package verify

import (
	"context"
	"errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Known is what is known about a snapshot from earlier verifications.
type Known struct {
	// Verification is the one that counts; nil when none does.
	Verification *catalog.Verification
	// Untrusted means that there are results and that none of them counts.
	Untrusted bool
	// Damaged are results that cannot be read.
	Damaged []error
}

// LookupStore returns what the results in a store say about a snapshot. keys are those of the
// snapshot, as store.VerificationKeys lists them.
func LookupStore(ctx context.Context, st *store.Store, e store.Signed,
	keys []store.VerificationKey) (Known, error) {
	list, damaged, err := st.ReadVerifications(ctx, keys)
	if err != nil {
		return Known{}, err
	}
	k := Known{Damaged: damaged}
	if c, ok := st.DecidingVerification(e, list); ok {
		k.Verification = &catalog.Verification{Time: c.Time, Level: c.Level,
			OK: c.Outcome == store.OutcomeOK}
	} else {
		k.Untrusted = len(list) > 0
	}
	return k, nil
}

// Lookup is LookupStore with what the catalog knows in addition: some stores hold no results. c may
// be nil.
func Lookup(ctx context.Context, c *catalog.Catalog, st *store.Store, e store.Signed,
	keys []store.VerificationKey) (Known, error) {
	k, err := LookupStore(ctx, st, e, keys)
	if err != nil || c == nil {
		return k, err
	}
	r, err := c.GetSnapshot(ctx, string(e.ID), catalog.SnapshotFilter{StoreID: st.ID(),
		Source: e.Source.UID})
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return Known{}, err
	}
	k.Verification = catalog.LaterVerification(k.Verification, r.Verified)
	return k, nil
}

// Whole returns the keys of the envelopes of all snapshots that the last verification which counts
// found whole.
func Whole(ctx context.Context, c *catalog.Catalog, st *store.Store) (map[store.EnvelopeKey]bool,
	error) {
	indexed, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: st.ID()})
	if err != nil {
		return nil, err
	}
	keys, err := st.VerificationKeys(ctx, "")
	if err != nil {
		return nil, err
	}
	verified := map[string]bool{}
	for _, s := range indexed {
		if s.Verified != nil {
			verified[s.Key] = true
		}
	}
	for key := range keys {
		verified[key] = true
	}
	whole := map[store.EnvelopeKey]bool{}
	for text := range verified {
		key, err := store.ParseEnvelopeKey(text)
		if err != nil {
			continue
		}
		e, err := st.GetEnvelope(ctx, key)
		if errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrStoreMissing) ||
			ctx.Err() != nil {
			return nil, err // without an answer the snapshot would count as not verified
		}
		if err != nil {
			continue // gone or damaged: a prune reports that
		}
		k, err := Lookup(ctx, c, st, e, keys[text])
		if err != nil {
			return nil, err
		}
		if k.Verification != nil && k.Verification.OK {
			whole[key] = true
		}
	}
	return whole, nil
}
