package store

import (
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// lockedStore makes a store with one snapshot in a bucket that retains what is written for a day.
func lockedStore(t *testing.T) (*Store, *faultbucket.Versioned, Signed) {
	t.Helper()
	b := faultbucket.NewVersioned()
	b.RetainFor = 24 * time.Hour
	s := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, testKeys(t)), Create: true})
	return s, b, mustWriteSnapshot(t, s, 1, nil)
}

// TestRetainNeverRetainsTheBytesOfSomebodyElse: somebody who can only put writes over keys without
// a checksum. What is retained is the version that this store wrote.
func TestRetainNeverRetainsTheBytesOfSomebodyElse(t *testing.T) {
	for _, sums := range []bool{true, false} {
		s, b, e := lockedStore(t)
		b.NoChecksums = !sums
		tree, err := s.GetTree(t.Context(), e.Tree)
		if err != nil {
			t.Fatal(err)
		}
		key := tree.Shards[0]
		for range 3 {
			b.Overwrite(string(key), []byte("junk"))
		}
		b.RetainFor = 48 * time.Hour
		if _, err := s.Retain(t.Context(), []Key{key}); !IsCorrupt(err) {
			t.Errorf("retain of what was overwritten: %v, want *CorruptError", err)
		}
		versions, err := b.Versions(t.Context(), string(key))
		if err != nil || len(versions) != 4 {
			t.Fatalf("%d versions, %v", len(versions), err)
		}
		for i, v := range versions {
			until := b.UntilOf(string(key), v.ID)
			if ours := i == 3; ours != (time.Until(until) > 47*time.Hour) {
				t.Errorf("version %d, ours %v, is retained until %v", i, ours, until)
			}
		}
	}
}

// TestRetainOfASpoiledStoreRetainsItsOwnMarker: a snapshot goes on when somebody writes over
// mgmtd.json, and the version of the store is what is retained.
func TestRetainOfASpoiledStoreRetainsItsOwnMarker(t *testing.T) {
	s, b, e := lockedStore(t)
	b.Overwrite(markerKey, []byte("junk"))
	b.RetainFor = 48 * time.Hour
	if _, err := s.Retain(t.Context(), []Key{e.Tree}); err != nil {
		t.Fatal(err)
	}
	versions, err := b.Versions(t.Context(), markerKey)
	if err != nil || len(versions) != 2 {
		t.Fatalf("%v, %v", versions, err)
	}
	if until := b.UntilOf(markerKey, versions[0].ID); !until.IsZero() {
		t.Errorf("junk is retained until %v", until)
	}
	if until := b.UntilOf(markerKey, versions[1].ID); time.Until(until) < 47*time.Hour {
		t.Errorf("mgmtd.json is retained until %v", until)
	}
}

// TestRetainedUntilIsTheEarliestOfAllKeys: a snapshot is retained until the first of its keys is
// not, and the keys for which that is earlier than was asked are counted.
func TestRetainedUntilIsTheEarliestOfAllKeys(t *testing.T) {
	s, b, e := lockedStore(t)
	all, err := s.RetainedUntil(t.Context(), e)
	if err != nil || !all.Asked || all.Short != 0 || time.Until(all.Until) < 23*time.Hour {
		t.Fatalf("%+v, %v", all, err)
	}
	b.Unlock(string(e.Tree))
	less, err := s.RetainedUntil(t.Context(), e)
	if err != nil || less.Short != 1 || less.First != string(e.Tree) || !less.Until.IsZero() ||
		less.Keys != all.Keys {
		t.Errorf("without the tree: %+v, %v", less, err)
	}
	b.RetainFor = 0
	b.Unlock(e.Key().String())
	if none, err := s.RetainedUntil(t.Context(), e); err != nil || none.Asked || none.Keys != 0 {
		t.Errorf("without Object Lock: %+v, %v", none, err)
	}
}

// TestJunkVersionsOnTopCostNothing: 1,000 versions of 33 MiB on top of a key are not read, whether
// the storage has hashes of them or not.
func TestJunkVersionsOnTopCostNothing(t *testing.T) {
	for _, sums := range []bool{true, false} {
		s, b, e := lockedStore(t)
		b.NoChecksums = !sums
		for range 1000 {
			b.Overwrite(string(e.Tree), make([]byte, 1<<10))
			b.Overwrite(e.Key().String(), make([]byte, 1<<10))
		}
		if _, err := s.GetTree(t.Context(), e.Tree); err != nil {
			t.Fatal(err)
		}
		if got, err := s.GetEnvelope(t.Context(), e.Key()); err != nil || got.SHA256 != e.SHA256 {
			t.Fatal(err)
		}
		if b.Read() > 8<<10 {
			t.Errorf("checksums %v: %d bytes of versions were read", sums, b.Read())
		}
	}
}

// TestASearchAmongVersionsIsBounded: where the version that was written first is gone, and the
// storage has no hashes, a search ends.
func TestASearchAmongVersionsIsBounded(t *testing.T) {
	s, b, e := lockedStore(t)
	b.NoChecksums = true
	b.Forget(string(e.Tree))
	s.limits.maxStored = 4 << 10
	junk := make([]byte, 3<<10)
	for range 100 {
		b.Overwrite(string(e.Tree), junk)
	}
	if _, err := s.GetTree(t.Context(), e.Tree); !IsCorrupt(err) {
		t.Errorf("%v, want *CorruptError", err)
	}
	if b.Read() > 8*s.limits.maxStored {
		t.Errorf("%d bytes were read", b.Read())
	}
}
