package catalog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Names of buckets and fixed keys; the tree is drawn in the package documentation. They are never
// changed.
var (
	bucketMeta        = []byte("meta")
	bucketSnapshots   = []byte("snapshots")
	bucketSnapshotIDs = []byte("snapshot-ids")
	bucketOperations  = []byte("operations")
	// bucketOperationIndex finds operations by kind and state.
	bucketOperationIndex = []byte("operation-index")
	// bucketRunning is the index of running operations that versions 1 to 7 had.
	bucketRunning = []byte("running")

	bucketUnits  = []byte("units")
	bucketSteps  = []byte("steps")
	bucketValues = []byte("values")
	bucketEvents = []byte("events")
	bucketPlan   = []byte("plan")
	// batchPrefix begins the name of the bucket of a batch's plan; "part" is what the first version
	// called a batch.
	batchPrefix = []byte("part-")

	keySchema   = []byte("schema")
	keyRecord   = []byte("record")
	keyPlanInfo = []byte("info")
	keyMirror   = []byte("mirror")
)

// snapshotKey orders snapshots by time. The other parts distinguish copies of a snapshot in two
// stores.
func snapshotKey(s SnapshotRecord) []byte {
	return fmt.Appendf(nil, "%016x/%s/%s/%s", s.Time.UnixNano(), s.ID, s.StoreID, s.Source)
}

// snapshotIDKey finds a snapshot by the beginning of its id.
func snapshotIDKey(s SnapshotRecord) []byte {
	return fmt.Appendf(nil, "%s/%s/%s", s.ID, s.StoreID, s.Source)
}

// checkSnapshotKey returns an error for a key that snapshotKey cannot have made.
func checkSnapshotKey(key []byte) error {
	parts := strings.Split(string(key), "/")
	if len(parts) != 4 || len(parts[0]) != 16 {
		return fmt.Errorf("snapshot key %q: want time/id/store/source", key)
	}
	if _, err := strconv.ParseInt(parts[0], 16, 64); err != nil {
		return fmt.Errorf("snapshot key %q: %w", key, err)
	}
	return nil
}

// epochKey orders epochs by store.
func epochKey(storeID, workloadID string) string { return storeID + "/" + workloadID }

// checkKeyPart returns an error for a part that would make a snapshot's key ambiguous.
func checkKeyPart(what, part string) error {
	if part == "" || strings.ContainsAny(part, "/\x00") {
		return fmt.Errorf("%s %q: must not be empty or contain a slash", what, part)
	}
	return nil
}

// sequenceKey orders events and chunks by number.
func sequenceKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, seq)
}

func parseSequenceKey(key []byte) (uint64, error) {
	if len(key) != 8 {
		return 0, fmt.Errorf("sequence key %q: want 8 bytes", key)
	}
	return binary.BigEndian.Uint64(key), nil
}

// valuePrefix begins the keys of all values of a step. No step key contains a zero byte, so no
// step's prefix begins another's.
func valuePrefix(step string) []byte {
	return append([]byte(step), 0)
}

func valueKey(step, key string) []byte {
	return append(valuePrefix(step), key...)
}

func parseValueKey(k []byte) (step, key string, err error) {
	before, after, ok := bytes.Cut(k, []byte{0})
	if !ok {
		return "", "", fmt.Errorf("value key %q: no zero byte between step and key", k)
	}
	return string(before), string(after), nil
}

// batchBucket returns the name of the bucket that holds the plan of a batch.
func batchBucket(name string) ([]byte, error) {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, fmt.Errorf("batch %q: want lower-case letters, digits and dashes", name)
	}
	return append(bytes.Clone(batchPrefix), name...), nil
}
