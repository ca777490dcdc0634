package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"
)

// forgetBatch is how many operations one transaction deletes: other writes wait for it.
const forgetBatch = 200

// ForgetOperations deletes operations that ended before a time, and those beyond the newest retain
// operations that schedules make: snapshots, verifies, prunes and copies. Without it, a schedule of
// every 30 seconds fills the disk. The number does not count for restores and moves: the watch of a
// fence needs them, and routine operations of a few days would push them out. It never deletes an
// operation that can still be resumed or rolled back, a restore that is not released, an operation
// that the state of a schedule or of a verify names as its last, nor one whose record is damaged,
// which Check reports. It returns how many it deleted. It may run at any time and any number of
// times.
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

// forgettableOperations returns the keys of the operations that ForgetOperations deletes. It
// decodes only those that are old, and neither beyond the newest retain nor unfinished.
func forgettableOperations(tx *bolt.Tx, before time.Time, retain int) ([][]byte, error) {
	needed, err := lastOperations(tx)
	if err != nil {
		return nil, err
	}
	operations := tx.Bucket(bucketOperations)
	for _, id := range newestBefore(tx, unfinishedPrefixes(allKinds...), "", math.MaxInt) {
		if b := operations.Bucket([]byte(id)); b != nil {
			op, err := decodeOperation(b.Get(keyRecord))
			needed[id] = needed[id] || err != nil || !op.forgettable(b)
		}
	}
	lasting := map[OperationID]bool{}
	for _, id := range newestBefore(tx, allPrefixes(KindRestore, KindMove), "", math.MaxInt) {
		lasting[id] = true
	}
	var old [][]byte
	count := 0
	cursor := operations.Cursor()
	for k, _ := cursor.Last(); k != nil; k, _ = cursor.Prev() {
		id := OperationID(k)
		if !lasting[id] {
			count++
		}
		beyond := count > retain && !lasting[id]
		if needed[id] || !beyond && !id.Time().Before(before) { // it ended even later
			continue
		}
		if !beyond {
			op, err := decodeOperation(operations.Bucket(k).Get(keyRecord))
			if err != nil || !op.Updated.Before(before) {
				continue
			}
		}
		old = append(old, bytes.Clone(k))
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

// ForgetOperation deletes one operation that is settled, or never resumed for another reason.
// ErrNotFound when there is none, ErrUnfinished when it has work left.
func (c *Catalog) ForgetOperation(ctx context.Context, id OperationID) error {
	err := c.update(ctx, func(tx *bolt.Tx) error {
		if tx.Bucket(bucketOperations).Bucket([]byte(id)) == nil {
			return ErrNotFound
		}
		deleted, err := deleteOperations(tx, [][]byte{[]byte(id)})
		if err == nil && deleted == 0 {
			err = ErrUnfinished
		}
		tx.OnCommit(c.notify)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget operation %s: %w", id, err)
	}
	return nil
}

// HasWorkLeft reports whether an operation is one that ForgetOperations never deletes: it can be
// resumed, rolled back or released. ErrNotFound when there is none.
func (c *Catalog) HasWorkLeft(ctx context.Context, id OperationID) (left bool, err error) {
	err = c.view(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		op, err := decodeOperation(b.Get(keyRecord))
		left = !op.forgettable(b)
		return err
	})
	if err != nil {
		err = fmt.Errorf("get operation %s: %w", id, err)
	}
	return left, err
}

// deleteOperations deletes the operations of these keys and returns their number. It passes over
// one that began to run again since it was found, and one whose record is damaged: that may have
// work left.
func deleteOperations(tx *bolt.Tx, keys [][]byte) (deleted int, err error) {
	operations := tx.Bucket(bucketOperations)
	for _, k := range keys {
		b := operations.Bucket(k)
		if b == nil {
			continue
		}
		op, err := decodeOperation(b.Get(keyRecord))
		if err != nil || !op.forgettable(b) {
			continue
		}
		err = errors.Join(tx.Bucket(bucketOperationIndex).Delete(op.indexKey()),
			operations.DeleteBucket(k))
		if err != nil {
			return 0, err
		}
		deleted++
	}
	return deleted, nil
}

// forgettable reports whether the operation is never resumed or released: it is settled, or it has
// ended and is of a kind that starts from scratch, or it failed before it changed anything, which
// neither a management cluster nor a mirror knows of. b is its bucket.
func (op Operation) forgettable(b *bolt.Bucket) bool {
	untouched := op.State == Failed && !op.Changed && b.Get(keyMirror) == nil
	return op.Settled() || op.Kind.Restarts() && op.State.Ended() || untouched
}
