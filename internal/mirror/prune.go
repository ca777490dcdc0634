package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Retention is how long the mirror of an operation that ended for good stays: as long as the
// catalog remembers operations.
const Retention = 30 * 24 * time.Hour

// Prune removes the mirrors of operations that ended for good longer than Retention ago. It
// removes no other one: an unfinished operation stays until it is finished or rolled back, and so
// does what no trusted key signed. What the storage retains stays for a later prune. It returns
// how many records are gone.
func Prune(ctx context.Context, st *store.Store, now time.Time) (int, error) {
	list, err := List(ctx, st)
	removed := 0
	for _, found := range list {
		if err != nil {
			break
		}
		if found.Problem != nil || !found.Head.Final || now.Sub(found.Head.Time) < Retention {
			continue
		}
		var n int
		n, err = st.RemoveOperation(ctx, string(found.ID), found.Seq)
		removed += n
		if errors.Is(err, store.ErrRetained) {
			err = nil
		}
	}
	return removed, err
}

// InUse returns the snapshots that operations may still read, by the id of the operation, as their
// mirrors say. These may run on any host. An operation that names no snapshot may need those that
// it took. Errors: those of a storage that does not answer, or that does not hand out a record that
// it lists.
func InUse(ctx context.Context, st *store.Store) (map[string]store.SnapshotID, error) {
	all, err := list(ctx, st)
	if err != nil {
		return nil, err
	}
	used := map[string]store.SnapshotID{}
	for _, found := range all {
		if found.Problem != nil {
			if found, err = newestReadable(ctx, st, found.ID); err != nil {
				return nil, err
			}
		}
		if found.Seq > 0 && !found.Head.Final {
			used[string(found.ID)] = store.SnapshotID(found.Head.Snapshot)
		}
	}
	return used, nil
}

// HiddenInUse is InUse for the operations of which somebody hid the newest record, in a versioned
// bucket, with a delete marker or by writing over it. It lists all versions of all records.
func HiddenInUse(ctx context.Context, st *store.Store) (map[string]store.SnapshotID, error) {
	hidden, err := st.HiddenOperations(ctx)
	if err != nil {
		return nil, fmt.Errorf("whether an operation whose records somebody hid needs a snapshot: %w",
			err)
	}
	used := map[string]store.SnapshotID{}
	for _, h := range hidden {
		id := h.Key.Operation
		if _, err := catalog.ParseOperationID(id); err != nil || h.Head.Final {
			continue
		}
		shown, err := newestReadable(ctx, st, catalog.OperationID(id))
		if err != nil {
			return nil, err
		}
		if shown.Seq < h.Key.Seq {
			used[id] = store.SnapshotID(h.Head.Snapshot)
		}
	}
	return used, nil
}

// newestReadable reads the head of the newest record that can be read, for an operation whose
// newest one cannot: it is damaged, or only another host trusts its key. The number of the record
// is 0 when there is none. Any other error is returned: what the storage does not hand out may say
// that a snapshot is in use.
func newestReadable(ctx context.Context, st *store.Store, id catalog.OperationID) (Found, error) {
	keys, err := st.OperationRecords(ctx, string(id))
	if err != nil {
		return Found{}, err
	}
	for _, key := range slices.Backward(keys) {
		head, err := st.GetOperationHead(ctx, key)
		if err == nil {
			return Found{ID: id, Seq: key.Seq, Head: head}, nil
		}
		if store.IsMissing(err) {
			gone, goneErr := st.OperationRecordGone(ctx, key)
			if gone {
				continue
			}
			if err = goneErr; err == nil {
				err = &store.BucketError{Op: "get", Key: key.String(), Class: store.ErrUnreachable,
					Err: errors.New("the storage lists it and does not find it"),
					Tip: "run it again later; if it stays so, have the storage repair its index"}
			}
		}
		if _, untrusted := errors.AsType[*store.TrustError](err); !untrusted &&
			!store.IsUnusable(err) {
			return Found{}, fmt.Errorf("whether operation %s needs a snapshot: %w", id, err)
		}
	}
	return Found{ID: id}, nil
}
