package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/store"
)

// SnapshotRecord is the index entry of a snapshot: what its envelope says, and the last
// verification. It names no object.
type SnapshotRecord struct {
	// StoreID is the id of the store that holds it.
	StoreID string `json:"storeID"`
	// Source is the UID of the source's kube-system namespace.
	Source string `json:"source"`
	// SourceName is the display name of the source.
	SourceName string `json:"sourceName,omitempty"`
	// ID of the snapshot.
	ID string `json:"id"`
	// Key of its envelope in the bucket.
	Key string `json:"key"`
	// Time of the cut.
	Time time.Time `json:"time"`
	// ResourceVersion of the cut.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Sequence is its number among its source's, from 1.
	Sequence int64 `json:"sequence"`
	// Objects, Units and Missing are counts.
	Objects int `json:"objects"`
	Units   int `json:"units"`
	Missing int `json:"missing,omitempty"`
	// Bytes stored in the shards and packs that it names.
	Bytes int64 `json:"bytes"`
	// Tree is the key of its tree.
	Tree string `json:"tree"`
	// Partial is true when only chosen namespaces or workload clusters were captured.
	Partial bool `json:"partial,omitempty"`
	// Verified is the last verification; nil when there was none.
	Verified *Verification `json:"verified,omitempty"`
}

// Verification is the outcome of one verify.
type Verification struct {
	Time time.Time `json:"time"`
	// Level is the depth of the verify.
	Level store.VerifyLevel `json:"level"`
	// OK is false when there was a finding of severity error or worse.
	OK bool `json:"ok"`
}

// SnapshotFilter picks snapshots; the zero value picks all.
type SnapshotFilter struct {
	// StoreID, Source (UID) and SourceName must be equal where they are set.
	StoreID, Source, SourceName string
	// NotAfter picks snapshots whose cut is not later; zero means any.
	NotAfter time.Time
	// Limit is the largest number to return; 0 means no limit.
	Limit int
}

func (f SnapshotFilter) fits(s SnapshotRecord) bool {
	return (f.StoreID == "" || f.StoreID == s.StoreID) &&
		(f.Source == "" || f.Source == s.Source) &&
		(f.SourceName == "" || f.SourceName == s.SourceName) &&
		(f.NotAfter.IsZero() || !s.Time.After(f.NotAfter))
}

// PutSnapshot adds a snapshot to the index, or replaces its entry. The same snapshot (store, source
// and id) may be put any number of times.
func (c *Catalog) PutSnapshot(ctx context.Context, s SnapshotRecord) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("put snapshot: %w", err)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("put snapshot %s: %w", s.ID, err)
	}
	err = c.update(ctx, func(tx *bolt.Tx) error {
		ids, snapshots := tx.Bucket(bucketSnapshotIDs), tx.Bucket(bucketSnapshots)
		// The time is part of the key: a changed time must not leave a second record.
		if old := ids.Get(snapshotIDKey(s)); old != nil {
			if err := snapshots.Delete(bytes.Clone(old)); err != nil {
				return err
			}
		}
		if err := ids.Put(snapshotIDKey(s), snapshotKey(s)); err != nil {
			return err
		}
		return snapshots.Put(snapshotKey(s), value)
	})
	if err != nil {
		return fmt.Errorf("put snapshot %s: %w", s.ID, err)
	}
	return nil
}

// RecordOf returns what the index stores about a snapshot: as one of the store that it was read
// from, which may be a copy.
func RecordOf(e store.Signed) SnapshotRecord {
	return SnapshotRecord{
		StoreID: e.HeldBy, Source: e.Source.UID, SourceName: e.Source.Name, ID: string(e.ID),
		Key: e.Key().String(), Time: e.Time,
		ResourceVersion: e.ResourceVersion, Sequence: e.Sequence, Objects: int(e.Counts.Objects),
		Units: int(e.Counts.Units), Missing: int(e.Counts.Missing),
		Bytes: e.Bytes, Tree: string(e.Tree), Partial: e.Partial,
	}
}

// PutVerification records the outcome of a verify; it adds s to the index when it is not there.
// Damage stays until a verify that supersedes it (store.VerifyLevel.Supersedes), and an older
// outcome does not replace a later one. It may run any number of times.
func (c *Catalog) PutVerification(ctx context.Context, s SnapshotRecord, v Verification) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("put verification: %w", err)
	}
	err := c.update(ctx, func(tx *bolt.Tx) error {
		ids, snapshots := tx.Bucket(bucketSnapshotIDs), tx.Bucket(bucketSnapshots)
		record := s
		if at := ids.Get(snapshotIDKey(s)); at != nil {
			var err error
			if record, err = decodeSnapshot(snapshots.Get(at)); err != nil {
				return err
			}
		}
		record.Verified = LaterVerification(record.Verified, &v)
		value, err := json.Marshal(record)
		if err != nil {
			return err
		}
		return errors.Join(ids.Put(snapshotIDKey(record), snapshotKey(record)),
			snapshots.Put(snapshotKey(record), value))
	})
	if err != nil {
		return fmt.Errorf("put verification of snapshot %s: %w", s.ID, err)
	}
	return nil
}

// LaterVerification returns the one of two verifications that decides the state of a snapshot;
// either may be nil.
func LaterVerification(a, b *Verification) *Verification {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	if b.Time.Before(a.Time) {
		a, b = b, a
	}
	if !a.OK && b.OK && !b.Level.Supersedes(a.Level) {
		return a
	}
	return b
}

// ReplaceSnapshots makes the index of one store from scratch, in one transaction: it drops
// snapshots that are not in the list. The others retain their verification, unless the list has a
// later one (as with PutVerification). It returns how many are new and how many were dropped, and
// may run any number of times.
func (c *Catalog) ReplaceSnapshots(ctx context.Context, storeID string, list []SnapshotRecord) (
	added, dropped int, err error) {
	for _, s := range list {
		if err := s.check(); err != nil {
			return 0, 0, fmt.Errorf("replace snapshots: %w", err)
		}
		if s.StoreID != storeID {
			return 0, 0, fmt.Errorf("replace snapshots of store %s: %s is of store %s", storeID, s.ID,
				s.StoreID)
		}
	}
	err = c.update(ctx, func(tx *bolt.Tx) error {
		added, dropped = 0, 0
		ids, snapshots := tx.Bucket(bucketSnapshotIDs), tx.Bucket(bucketSnapshots)
		old := map[string]SnapshotRecord{}
		err := snapshots.ForEach(func(_, v []byte) error {
			s, err := decodeSnapshot(v)
			if err == nil && s.StoreID == storeID {
				old[string(snapshotIDKey(s))] = s
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, s := range old {
			if err := errors.Join(ids.Delete(snapshotIDKey(s)),
				snapshots.Delete(snapshotKey(s))); err != nil {
				return err
			}
		}
		for _, s := range list {
			before, known := old[string(snapshotIDKey(s))]
			if !known {
				added++
			}
			s.Verified = LaterVerification(before.Verified, s.Verified)
			delete(old, string(snapshotIDKey(s)))
			value, err := json.Marshal(s)
			if err != nil {
				return err
			}
			if err := errors.Join(ids.Put(snapshotIDKey(s), snapshotKey(s)), snapshots.Put(snapshotKey(s),
				value)); err != nil {
				return err
			}
		}
		dropped = len(old)
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("replace snapshots of store %s: %w", storeID, err)
	}
	return added, dropped, nil
}

// ForgetSnapshots drops snapshots of one store from the index, by the keys of their envelopes. It
// ignores keys that are not in the index, so it may run any number of times.
func (c *Catalog) ForgetSnapshots(ctx context.Context, storeID string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	gone := map[string]bool{}
	for _, k := range keys {
		gone[k] = true
	}
	err := c.update(ctx, func(tx *bolt.Tx) error {
		ids, snapshots := tx.Bucket(bucketSnapshotIDs), tx.Bucket(bucketSnapshots)
		var drop []SnapshotRecord
		err := snapshots.ForEach(func(_, v []byte) error {
			s, err := decodeSnapshot(v)
			if err == nil && s.StoreID == storeID && gone[s.Key] {
				drop = append(drop, s)
			}
			return err
		})
		for _, s := range drop {
			err = errors.Join(err, ids.Delete(snapshotIDKey(s)), snapshots.Delete(snapshotKey(s)))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("forget snapshots of store %s: %w", storeID, err)
	}
	return nil
}

// Snapshots returns the snapshots that fit the filter, newest first.
func (c *Catalog) Snapshots(ctx context.Context, filter SnapshotFilter) ([]SnapshotRecord, error) {
	var found []SnapshotRecord
	err := c.view(ctx, func(tx *bolt.Tx) error {
		cursor := tx.Bucket(bucketSnapshots).Cursor()
		for k, v := cursor.Last(); k != nil; k, v = cursor.Prev() {
			s, err := decodeSnapshot(v)
			if err != nil {
				return err
			}
			if !filter.fits(s) {
				continue
			}
			if found = append(found, s); len(found) == filter.Limit {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return found, nil
}

// HighestSequence returns the highest number that the index has of a source in a store; 0 when it
// has none.
func (c *Catalog) HighestSequence(ctx context.Context, storeID, source string) (int64, error) {
	records, err := c.Snapshots(ctx, SnapshotFilter{StoreID: storeID, Source: source})
	var highest int64
	for _, r := range records {
		highest = max(highest, r.Sequence)
	}
	return highest, err
}

// GetSnapshot returns the one snapshot that fits the filter and whose id begins with prefix; it
// ignores the filter's limit. Errors: ErrNotFound; *AmbiguousError when several fit, also copies of
// one snapshot in two stores.
func (c *Catalog) GetSnapshot(ctx context.Context, prefix string, filter SnapshotFilter) (
	SnapshotRecord, error) {
	var found []SnapshotRecord
	err := c.view(ctx, func(tx *bolt.Tx) error {
		found = nil
		if prefix == "" {
			return nil
		}
		cursor := tx.Bucket(bucketSnapshotIDs).Cursor()
		for k, v := cursor.Seek([]byte(prefix)); bytes.HasPrefix(k, []byte(prefix)); k,
			v = cursor.Next() {
			value := tx.Bucket(bucketSnapshots).Get(v)
			if value == nil {
				return fmt.Errorf("%w: snapshot %q is in the index of ids only", errRecord, k)
			}
			s, err := decodeSnapshot(value)
			if err != nil {
				return err
			}
			if filter.fits(s) {
				found = append(found, s)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return SnapshotRecord{}, fmt.Errorf("get snapshot %q: %w", prefix, err)
	case len(found) == 0:
		return SnapshotRecord{}, fmt.Errorf("get snapshot %q: %w", prefix, ErrNotFound)
	case len(found) > 1:
		matches := make([]string, len(found))
		for i, s := range found {
			matches[i] = fmt.Sprintf("%s (source %s, store %s)", s.ID, s.Source, s.StoreID)
		}
		return SnapshotRecord{}, &AmbiguousError{What: "snapshot", Prefix: prefix, Matches: matches}
	}
	return found[0], nil
}

func (s SnapshotRecord) check() error {
	for _, part := range []struct{ what, value string }{{"snapshot id", s.ID}, {"store id", s.StoreID},
		{"source", s.Source}} {
		if err := checkKeyPart(part.what, part.value); err != nil {
			return err
		}
	}
	// Nanoseconds since 1970 must fit the key and sort there.
	if s.Time.Before(time.Unix(0, 0)) || s.Time.After(time.Unix(0, math.MaxInt64)) {
		return fmt.Errorf("snapshot %s: time %s cannot be stored", s.ID, s.Time)
	}
	return nil
}

func decodeSnapshot(value []byte) (SnapshotRecord, error) {
	return decode[SnapshotRecord]("snapshot", value)
}

// checked is implemented by the records that the catalog stores as JSON.
type checked interface{ check() error }

// decode reads a stored record. A catalog may be damaged or edited by hand: decode returns a valid
// record, or an error that wraps errRecord.
func decode[T checked](what string, value []byte) (T, error) {
	var record, none T
	if err := json.Unmarshal(value, &record); err != nil {
		return none, fmt.Errorf("%w: %s: %w", errRecord, what, err)
	}
	if err := record.check(); err != nil {
		return none, fmt.Errorf("%w: %s: %w", errRecord, what, err)
	}
	return record, nil
}
