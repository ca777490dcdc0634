package catalog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Check reads everything in the catalog and returns all problems: records that cannot be decoded,
// indexes that disagree with their records, and damaged pages. It changes nothing, and writers go
// on meanwhile. When the context has ended, its error is the only finding.
func (c *Catalog) Check(ctx context.Context) []error {
	found, err := c.checkRecords(ctx)
	if err != nil {
		// bbolt's own check runs in a goroutine of its own, where a read outside of the file would
		// end the process.
		return append(found, err)
	}
	return append(found, c.checkPages()...)
}

// checkRecords checks everything but the pages. The error is that of the context, or of a file that
// cannot be read any further.
func (c *Catalog) checkRecords(ctx context.Context) (found []error, err error) {
	report := func(err error) {
		if err != nil {
			found = append(found, err)
		}
	}
	err = c.view(ctx, func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketSnapshots, bucketSnapshotIDs, bucketOperations,
			bucketOperationIndex, bucketSchedules, bucketVerifies, bucketEpochs, bucketPlaces,
			bucketSnapshotState} {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("%w: bucket %s is missing", errRecord, name)
			}
		}
		checkSnapshots(tx, report)
		checkOperations(tx, report)
		checkSchedules(tx, report)
		checkVerifies(tx, report)
		checkEpochs(tx, report)
		checkPlaces(tx, report)
		checkSnapshotStates(tx, report)
		return nil
	})
	return found, err
}

// checkPages runs bbolt's check. A writing transaction would block every other one for as long as
// it takes, and in a reading one writers change the list of free pages meanwhile, which the check
// reads. So it checks a copy of the file as of one transaction. Where there is no room for a copy,
// writers wait.
func (c *Catalog) checkPages() (found []error) {
	if c.db.IsReadOnly() { // nobody writes to it
		return c.pagesOf(c.db, false)
	}
	dir, err := os.MkdirTemp(filepath.Dir(c.path), "."+filepath.Base(c.path)+".check-*")
	if err != nil {
		return c.pagesOf(c.db, true)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			found = append(found, fmt.Errorf("remove the copy that was checked: %w", err))
		}
	}()
	file := filepath.Join(dir, "copy")
	if err := c.db.View(func(tx *bolt.Tx) error { return tx.CopyFile(file, 0o600) }); err != nil {
		return c.pagesOf(c.db, true)
	}
	copied, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return []error{fmt.Errorf("pages: %w", err)}
	}
	found = c.pagesOf(copied, false)
	if err := copied.Close(); err != nil {
		found = append(found, c.wrap(err))
	}
	return found
}

// pagesOf runs bbolt's check of a file, in a writing transaction where others write to it, which it
// rolls back.
func (c *Catalog) pagesOf(db *bolt.DB, others bool) (found []error) {
	tx, err := db.Begin(others)
	if err != nil {
		return []error{c.wrap(err)}
	}
	for err := range tx.Check() {
		found = append(found, fmt.Errorf("pages: %w", err))
	}
	if err := tx.Rollback(); err != nil {
		found = append(found, c.wrap(err))
	}
	return found
}

func checkSnapshots(tx *bolt.Tx, report func(error)) {
	snapshots, ids := tx.Bucket(bucketSnapshots), tx.Bucket(bucketSnapshotIDs)
	report(snapshots.ForEach(func(k, v []byte) error {
		err := checkSnapshotKey(k)
		report(err)
		s, err := decodeSnapshot(v)
		if err != nil {
			report(fmt.Errorf("snapshot %s: %w", k, err))
			return nil
		}
		if !bytes.Equal(k, snapshotKey(s)) {
			report(fmt.Errorf("snapshot %s: stored under %s", snapshotKey(s), k))
		}
		if !bytes.Equal(ids.Get(snapshotIDKey(s)), k) {
			report(fmt.Errorf("snapshot %s: not in the index of ids", k))
		}
		return nil
	}))
	report(ids.ForEach(func(k, v []byte) error {
		if snapshots.Get(v) == nil {
			report(fmt.Errorf("snapshot id %s: there is no %s", k, v))
		}
		return nil
	}))
}

func checkOperations(tx *bolt.Tx, report func(error)) {
	index := tx.Bucket(bucketOperationIndex)
	operations := tx.Bucket(bucketOperations)
	report(operations.ForEach(func(k, _ []byte) error {
		b := operations.Bucket(k)
		if b == nil {
			report(fmt.Errorf("operation %s: not a bucket", k))
			return nil
		}
		op, err := readOperation(tx, OperationID(k))
		if err != nil {
			report(fmt.Errorf("operation %s: %w", k, err))
			return nil
		}
		if string(op.ID) != string(k) {
			report(fmt.Errorf("operation %s: stored under %s", op.ID, k))
		}
		if index.Get(op.indexKey()) == nil {
			report(fmt.Errorf("operation %s: is %s, but not in the index", k, op.indexWord()))
		}
		checkOperation(b, func(err error) {
			if err != nil {
				report(fmt.Errorf("operation %s: %w", k, err))
			}
		})
		return nil
	}))
	checkIndex(tx, report)
}

// checkOperation checks steps, values, events and the plan.
func checkOperation(b *bolt.Bucket, report func(error)) {
	inner := func(name []byte, fn func(k, v []byte) error) {
		bucket, err := operationBucket(b, name)
		if err == nil {
			err = bucket.ForEach(func(k, v []byte) error { report(fn(k, v)); return nil })
		}
		report(err)
	}
	inner(bucketSteps, func(k, v []byte) error {
		record, err := decodeStep(v)
		if err == nil && record.Step.String() != string(k) {
			err = fmt.Errorf("step %s: stored under %s", record.Step, k)
		}
		return err
	})
	inner(bucketValues, func(k, _ []byte) error {
		step, _, err := parseValueKey(k)
		if err == nil && b.Bucket(bucketSteps).Get([]byte(step)) == nil {
			err = fmt.Errorf("values of step %s, which was never begun", step)
		}
		return err
	})
	var last uint64
	inner(bucketEvents, func(k, v []byte) error {
		seq, err := parseSequenceKey(k)
		if err != nil {
			return err
		}
		e, err := decodeEvent(v)
		if err != nil {
			return err
		}
		if last++; seq != last || uint64(e.Seq) != seq {
			return fmt.Errorf("event %d: stored as %d, in place %d", e.Seq, seq, last)
		}
		return nil
	})
	_ = b.ForEachBucket(func(name []byte) error {
		if bytes.Equal(name, bucketPlan) || bytes.HasPrefix(name, batchPrefix) {
			_, err := decodePlanInfo(b.Bucket(name).Get(keyPlanInfo))
			report(err)
		}
		return nil
	})
}
