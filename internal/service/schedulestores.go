package service

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Taken implements schedule.Stores.
func (r *scheduledRuns) Taken(ctx context.Context, id catalog.OperationID) (store.EnvelopeKey,
	error) {
	op, err := r.catalog.Operation(ctx, id)
	if err != nil {
		return store.EnvelopeKey{}, err
	}
	record, err := r.catalog.GetSnapshot(ctx, op.SnapshotID, catalog.SnapshotFilter{StoreID: op.Store,
		Source: op.Source.UID})
	if err != nil {
		return store.EnvelopeKey{}, err
	}
	return store.ParseEnvelopeKey(record.Key)
}

// IsStored implements schedule.Stores. An envelope that somebody wrote over does not count.
func (r *scheduledRuns) IsStored(ctx context.Context, s schedule.Schedule,
	key store.EnvelopeKey) (bool, error) {
	return guarded(r.s, "search of the store", func() (bool, error) { return r.isStored(ctx, s, key) })
}

func (r *scheduledRuns) isStored(ctx context.Context, s schedule.Schedule,
	key store.EnvelopeKey) (bool, error) {
	st, err := r.s.openStore(ctx, s.Location, nil)
	if err != nil {
		return false, err
	}
	e, err := st.GetEnvelope(ctx, key)
	if store.IsMissing(err) || store.IsUnusable(err) {
		return false, nil
	}
	return err == nil && st.CanBeParent(&e), err
}

// NewestStored implements schedule.Stores.
func (r *scheduledRuns) NewestStored(ctx context.Context, s schedule.Schedule, source string) (
	schedule.Stored, error) {
	return guarded(r.s, "search of the store", func() (schedule.Stored, error) {
		return r.newestStored(ctx, s, source)
	})
}

func (r *scheduledRuns) newestStored(ctx context.Context, s schedule.Schedule, source string) (
	schedule.Stored, error) {
	st, err := r.s.openStore(ctx, s.Location, nil)
	if err != nil {
		return schedule.Stored{}, err
	}
	scope := s.Scope(source).ID
	e, _, err := st.Newest(ctx, source, store.Which{
		Accept: func(e *store.Signed) bool { return e.ScopeID() == scope }})
	if err != nil || e == nil {
		return schedule.Stored{}, err
	}
	taken := e.Time
	if at := e.Received; !at.IsZero() && at.Before(taken) {
		taken = at
	}
	return schedule.Stored{Key: e.Key(), Time: taken}, nil
}
