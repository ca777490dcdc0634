package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// A migration brings a catalog from the previous version to its version. It runs once, in one
// transaction with the migrations that follow it.
type migration struct {
	version uint32
	name    string
	run     func(*bolt.Tx) error
}

// migrations, in the order of their versions. Never change one that was released: add another, and
// a test for it.
var migrations = []migration{
	{1, "make the buckets", makeBuckets},
	{2, "make the bucket of schedules", makeSchedules},
	{3, "make the bucket of what is stored", makeSnapshotState},
	{4, "forget what is stored, which is remembered in another way", makeKnownAgain},
	{5, "move the states of verifies into a bucket of their own", moveVerifies},
	{6, "derive the causes of stops from the messages", deriveStopCauses},
	{7, "make the bucket of epochs", makeEpochs},
	{8, "index the operations by kind and state", indexOperations},
	{9, "make the bucket of places", makePlaces},
}

// oldStopMessages are the messages by which versions before 6 recognized the cause of a stop.
var oldStopMessages = map[string]StopCause{
	"stopped on request":             StopRequested,
	"stopped since the daemon ended": StopDaemonEnded,
	"the process at work on it died": StopProcessDied,
}

// deriveStopCauses sets the cause of stopped operations. It skips a damaged record.
func deriveStopCauses(tx *bolt.Tx) error {
	operations := tx.Bucket(bucketOperations)
	return operations.ForEachBucket(func(k []byte) error {
		b := operations.Bucket(k)
		op, err := decodeOperation(b.Get(keyRecord))
		cause := oldStopMessages[op.Message]
		if err != nil || op.State != Stopped || cause == "" {
			return nil
		}
		op.StopCause = cause
		value, err := json.Marshal(op)
		if err != nil {
			return err
		}
		return b.Put(keyRecord, value)
	})
}

func makeKnownAgain(tx *bolt.Tx) error {
	if err := tx.DeleteBucket(bucketSnapshotState); err != nil {
		return err
	}
	return makeSnapshotState(tx)
}

func makeSnapshotState(tx *bolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(bucketSnapshotState)
	return err
}

func makeSchedules(tx *bolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(bucketSchedules)
	return err
}

func makeBuckets(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketSnapshots, bucketSnapshotIDs, bucketRunning,
		bucketOperations} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("make bucket %s: %w", name, err)
		}
	}
	return nil
}

// migrate runs the migrations that are newer than the file. It writes nothing to a file that is up
// to date, newer (*FutureSchemaError) or not a catalog (*DamagedError).
func (c *Catalog) migrate(list []migration) error {
	known := list[len(list)-1].version
	var found uint32
	err := c.view(context.Background(), func(tx *bolt.Tx) (err error) {
		found, err = schemaVersion(tx)
		return err
	})
	switch {
	case err != nil:
		return err
	case found > known:
		return &FutureSchemaError{Path: c.path, Found: found, Known: known}
	case found == known:
		return nil
	}
	err = c.update(context.Background(), func(tx *bolt.Tx) error {
		for _, m := range list {
			if m.version <= found {
				continue
			}
			if err := m.run(tx); err != nil {
				return fmt.Errorf("migration %d (%s): %w", m.version, m.name, err)
			}
		}
		return tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint32(nil, known))
	})
	if err != nil {
		return fmt.Errorf("open catalog %s: %w", c.path, err)
	}
	return nil
}

// schemaVersion returns 0 for a new file.
func schemaVersion(tx *bolt.Tx) (uint32, error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return 0, fmt.Errorf("%w: another program's file, it begins with bucket %q", errRecord, name)
		}
		return 0, nil
	}
	value := meta.Get(keySchema)
	if len(value) != 4 {
		return 0, fmt.Errorf("%w: schema version %q", errRecord, value)
	}
	return binary.BigEndian.Uint32(value), nil
}
