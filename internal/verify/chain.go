package verify

import (
	"context"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// hidden is the hint for snapshots that may have been hidden.
const hidden = "if nobody deleted it on purpose, somebody hid it: check the access log " +
	"of the store"

// chain reports neighbours of the snapshot that are missing or were replaced: its parent, and the
// newest one that the catalog remembers. Neither makes the snapshot itself less than whole.
func (r *run) chain(ctx context.Context) error {
	keys, err := r.Store.Snapshots(ctx, r.Snapshot.Source.UID)
	if err != nil {
		return err
	}
	there := map[store.SnapshotID]store.EnvelopeKey{}
	for _, key := range keys {
		there[key.ID] = key
	}
	if r.Snapshot.Parent != nil {
		r.parent(ctx, there)
	}
	return r.newest(ctx, there)
}

func (r *run) parent(ctx context.Context, there map[store.SnapshotID]store.EnvelopeKey) {
	parent := r.Snapshot.Parent
	key, ok := there[parent.ID]
	if !ok {
		r.chainFinding(object.Info, fmt.Sprintf("the snapshot before it, %s (number %d), is not in "+
			"the store", parent.ID, r.Snapshot.Sequence-1), hidden)
		return
	}
	// An envelope that cannot be read is reported by the verification of that snapshot.
	if e, err := r.Store.GetEnvelope(ctx, key); err == nil && e.SHA256 != parent.SHA256 {
		r.chainFinding(object.Warning, fmt.Sprintf("the snapshot before it, %s, is not the one that it "+
			"was made after", parent.ID), "somebody changed that envelope: do not restore from it, and "+
			"check the access log of the store")
	}
}

func (r *run) newest(ctx context.Context, there map[store.SnapshotID]store.EnvelopeKey) error {
	newest, err := r.Catalog.Snapshots(ctx, catalog.SnapshotFilter{StoreID: r.Store.ID(),
		Source: r.Snapshot.Source.UID, Limit: 1})
	if err != nil {
		return err
	}
	for _, s := range newest {
		if _, ok := there[store.SnapshotID(s.ID)]; !ok && s.Sequence > r.Snapshot.Sequence {
			r.chainFinding(object.Warning, fmt.Sprintf("a later snapshot, %s (number %d), was in the "+
				"store and is not there now", s.ID, s.Sequence), hidden)
		}
	}
	return nil
}

func (r *run) chainFinding(severity object.Severity, message, hint string) {
	r.Findings = append(r.Findings, object.Finding{Severity: severity, Code: object.CodeChain,
		Message: message, Hint: hint})
}
