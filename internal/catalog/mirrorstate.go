package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// MirrorState says which records of an operation this catalog has in common with the mirror in the
// store.
type MirrorState struct {
	// Seq is the number of the newest record that this host wrote, or imported; 0 when none.
	Seq int64 `json:"seq"`
	// Last is the SHA-256 of that record, as stored.
	Last string `json:"last,omitempty"`
	// Next is the SHA-256 of the record that this host was about to write under Seq+1.
	Next string `json:"next,omitempty"`
	// From is the number of the record up to which this host imported the operation; 0 on the host
	// that began it.
	From int64 `json:"from,omitempty"`
	// Runs is the number of the run (Operation.Runs) in the newest record that the store took of this
	// host, or of its last run that gave the mirror up. The run of another host that takes over from
	// it has a higher one.
	Runs int `json:"runs,omitempty"`
	// Imported is when the operation was taken from the mirror; zero on the host that began it.
	Imported time.Time `json:"imported,omitzero"`
}

// Mirror returns the state of the mirror of an operation; zero when it has none.
func (c *Catalog) Mirror(ctx context.Context, id OperationID) (MirrorState, error) {
	var state MirrorState
	err := c.view(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		value := b.Get(keyMirror)
		if value == nil {
			return nil
		}
		if err := json.Unmarshal(value, &state); err != nil {
			return fmt.Errorf("%w: mirror: %w", errRecord, err)
		}
		return nil
	})
	if err != nil {
		return MirrorState{}, fmt.Errorf("get mirror of operation %s: %w", id, err)
	}
	return state, nil
}

// SetMirror records the state of the mirror. It is no change of the operation.
func (c *Catalog) SetMirror(ctx context.Context, id OperationID, state MirrorState) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		return putJSON(b, keyMirror, state)
	})
	if err != nil {
		return fmt.Errorf("set mirror of operation %s: %w", id, err)
	}
	return nil
}
