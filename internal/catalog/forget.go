package catalog

import (
	"bytes"
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// forgetBatch is how many operations one transaction deletes: other writes wait for it.
const forgetBatch = 200

// ForgetOperations deletes operations that ended before a time, and those beyond the newest retain
// operations. Without it, a schedule of every 30 seconds fills the disk. It never deletes an
// operation that can still be resumed or rolled back, a restore that is not released, nor an
// operation that the state of a schedule or of a verify names as its last. It returns how many it
// deleted. It may run at any time and any number of times.
func (c *Catalog) ForgetOperations(ctx context.Context, before time.Time, retain int) (int, error) {
	var old [][]byte
	err := c.view(ctx, func(tx *bolt.Tx) (err error) {
		old, err = forgettableOperations(tx, before, retain)
		return err
	})
	forgotten := 0
	for len(old) > 0 && err == nil {
		batch := old[:min(forgetBatch, len(old))]
		old = old[len(batch):]
		var deleted int
		err = c.update(ctx, func(tx *bolt.Tx) (err error) {
			deleted, err = deleteOperations(tx, batch)
			return err
		})
		forgotten += deleted
	}
	if err != nil {
		return forgotten, fmt.Errorf("forget operations: %w", err)
	}
	return forgotten, nil
}

// forgettableOperations returns the keys of the operations that ForgetOperations deletes.
func forgettableOperations(tx *bolt.Tx, before time.Time, retain int) ([][]byte, error) {
	needed, err := lastOperations(tx)
	if err != nil {
		return nil, err
	}
	var old [][]byte
	count := 0
	cursor := tx.Bucket(bucketOperations).Cursor()
	for k, _ := cursor.Last(); k != nil; k, _ = cursor.Prev() {
		count++
		op, err := decodeOperation(tx.Bucket(bucketOperations).Bucket(k).Get(keyRecord))
		if err != nil {
			return nil, err
		}
		if op.forgettable() && !needed[op.ID] && (count > retain || op.Updated.Before(before)) {
			old = append(old, bytes.Clone(k))
		}
	}
	return old, nil
}

// lastOperations returns the operations that the states of schedules and verifies name.
func lastOperations(tx *bolt.Tx) (map[OperationID]bool, error) {
	last := map[OperationID]bool{}
	err := tx.Bucket(bucketSchedules).ForEach(func(_, v []byte) error {
		s, err := decode[ScheduleState]("schedules", v)
		last[s.LastOperation] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return last, tx.Bucket(bucketVerifies).ForEach(func(_, v []byte) error {
		s, err := decode[VerifyState]("verifies", v)
		last[s.LastOperation] = true
		return err
	})
}

// deleteOperations deletes the operations of these keys and returns their number. It passes over
// one that began to run again since it was found.
func deleteOperations(tx *bolt.Tx, keys [][]byte) (deleted int, err error) {
	operations := tx.Bucket(bucketOperations)
	for _, k := range keys {
		b := operations.Bucket(k)
		if b == nil {
			continue
		}
		op, err := decodeOperation(b.Get(keyRecord))
		if err != nil {
			return 0, err
		}
		if !op.forgettable() {
			continue
		}
		if err := operations.DeleteBucket(k); err != nil {
			return 0, err
		}
		deleted++
	}
	return deleted, nil
}

// forgettable reports whether the operation is never resumed or released: it is settled, or it has
// ended and is of a kind that starts from scratch.
func (op Operation) forgettable() bool {
	restarts := op.Kind == KindSnapshot || op.Kind == KindVerify || op.Kind == KindPrune
	return op.Settled() || restarts && op.State.Ended()
}
