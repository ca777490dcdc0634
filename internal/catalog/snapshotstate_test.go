package catalog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
)

func TestSnapshotStateIsUpdatedByDeltas(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	read := func(storeID, source string) incremental.State {
		t.Helper()
		k, err := c.snapshotState(t.Context(), stateName(storeID, source, store.ScopeWhole))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	update := func(change incremental.StateDelta) {
		t.Helper()
		for range 2 { // the second finds another snapshot stored
			if err := c.updateSnapshotState(t.Context(), stateName("store", "source",
				store.ScopeWhole), change); err != nil {
				t.Fatal(err)
			}
			if change.From != "" {
				return
			}
		}
	}
	first, other := read("store", "source"), read("store", "other")
	if len(first.Secret) != secretSize || first.Snapshot != "" ||
		string(first.Secret) == string(other.Secret) {
		t.Fatalf("nothing known: %+v, %+v", first, other)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	a, b, d := store.ContentID{1}, store.ContentID{2}, store.ContentID{3}
	old, young := incremental.StoredKey{Size: 1, Written: at},
		incremental.StoredKey{Size: 2, Written: at.Add(time.Hour)}
	update(incremental.StateDelta{To: "one", Parts: map[store.ContentID][]byte{a: []byte("x"),
		b: []byte("y")}, Keys: map[string]incremental.StoredKey{"x": old}})
	want := incremental.State{Secret: first.Secret, Snapshot: "one",
		Parts: map[store.ContentID][]byte{a: []byte("x"), b: []byte("y")},
		Keys:  map[string]incremental.StoredKey{"x": old}}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	update(incremental.StateDelta{From: "one", To: "two",
		Parts: map[store.ContentID][]byte{d: []byte("z")}, DeletedParts: []store.ContentID{b},
		Keys: map[string]incremental.StoredKey{"y": young}})
	want.Snapshot, want.Parts, want.Keys = "two", map[store.ContentID][]byte{a: []byte("x"),
		d: []byte("z")}, map[string]incremental.StoredKey{"x": old, "y": young}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	update(incremental.StateDelta{From: "two", To: "three", DeletedParts: []store.ContentID{d},
		DeletedKeys: []string{"y"}})
	want.Snapshot, want.Parts, want.Keys = "three", map[store.ContentID][]byte{a: []byte("x")},
		map[string]incremental.StoredKey{"x": old}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Error(problems)
	}
	nothing := incremental.State{Secret: first.Secret, Parts: map[store.ContentID][]byte{},
		Keys: map[string]incremental.StoredKey{}}
	// two runs began at "two"
	update(incremental.StateDelta{From: "two", To: "late",
		Parts: map[store.ContentID][]byte{b: []byte("x")}})
	if diff := cmp.Diff(nothing, read("store", "source")); diff != "" {
		t.Errorf("after a change of something else:\n%s", diff)
	}
	update(incremental.StateDelta{To: "four", Parts: map[store.ContentID][]byte{a: []byte("x")},
		Keys: map[string]incremental.StoredKey{"x": old}})
	if err := c.ForgetSnapshotState(t.Context(), "store", "source"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nothing, read("store", "source")); diff != "" {
		t.Errorf("forgotten:\n%s", diff)
	}
	if diff := cmp.Diff(other, read("store", "other")); diff != "" {
		t.Errorf("the other one:\n%s", diff)
	}
	if err := c.ForgetSnapshotState(t.Context(), "store", "unknown"); err != nil {
		t.Error(err)
	}
}

func TestDamagedSnapshotStateIsDeleted(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	if _, err := c.snapshotState(t.Context(), stateName("store", "source",
		store.ScopeWhole)); err != nil {
		t.Fatal(err)
	}
	err := c.update(t.Context(), func(tx *bolt.Tx) error {
		return tx.Bucket(bucketSnapshotState).Bucket(stateName("store", "source", store.ScopeWhole)).Bucket(
			bucketParts).Put(
			make([]byte, 21), []byte("what"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if problems := c.Check(t.Context()); len(problems) != 1 {
		t.Errorf("check: %v", problems)
	}
	if k, err := c.snapshotState(t.Context(), stateName("store", "source",
		store.ScopeWhole)); err != nil || k.Snapshot != "" ||
		len(k.Parts) > 0 || len(k.Secret) != secretSize {
		t.Errorf("known: %+v, %v", k, err)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Errorf("check: %v", problems)
	}
}
