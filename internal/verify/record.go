package verify

import (
	"context"
	"errors"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Record writes a result to the catalog and, where it would count, to the store. It returns further
// findings: a store that does not accept the result is no fault of the snapshot. Nothing is
// recorded of a snapshot whose signature is not accepted. After damage the next snapshot of the
// source is a full one, since an incremental one would name the same keys.
func Record(ctx context.Context, o Options, r *Result) ([]object.Finding, error) {
	if o.Unreadable != nil {
		return nil, nil
	}
	var found []object.Finding
	var err error
	if o.Untrusted == nil {
		found, err = put(ctx, o, r)
	}
	if r.damaged > 0 {
		err = errors.Join(err,
			o.Catalog.ForgetSnapshotState(ctx, o.Store.ID(), o.Snapshot.Source.UID))
	}
	return found, err
}

func put(ctx context.Context, o Options, r *Result) ([]object.Finding, error) {
	err := o.Catalog.PutVerification(ctx, catalog.RecordOf(o.Snapshot), catalog.Verification{
		Time: r.Verification.Time.UTC().Truncate(time.Millisecond), Level: r.Verification.Level,
		OK: r.Verification.Outcome == store.OutcomeOK,
	})
	if o.CatalogOnly || !o.Store.CanRecordVerifications() {
		return nil, err
	}
	if _, failed := o.Store.PutVerification(ctx, o.Snapshot, r.Verification); failed != nil {
		return []object.Finding{{Severity: object.Warning, Code: object.CodeNotRecorded,
			Message: failed.Error(), Hint: "the result is in this catalog only; check what the store lets " +
				"us write"}}, err
	}
	return nil, err
}
