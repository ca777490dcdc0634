package catalog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/mgmtd/mgmtd/internal/store"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	read := func(storeID, source string) store.Known {
		t.Helper()
		k, err := c.known(t.Context(), storeID, source)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	update := func(change store.KnownChange) {
		t.Helper()
		for range 2 { // the second has another base before it
			if err := c.updateKnown(t.Context(), "store", "source", change); err != nil {
				t.Fatal(err)
			}
			if change.Was != "" {
				return
			}
		}
	}
	first, other := read("store", "source"), read("store", "other")
	if len(first.Secret) != secretSize || first.Base != "" ||
		string(first.Secret) == string(other.Secret) {
		t.Fatalf("nothing known: %+v, %+v", first, other)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	a, b, d := store.ContentID{1}, store.ContentID{2}, store.ContentID{3}
	old, young := store.KnownKey{Size: 1, Written: at},
		store.KnownKey{Size: 2, Written: at.Add(time.Hour)}
	update(store.KnownChange{Base: "one", Parts: map[store.ContentID][]byte{a: []byte("x"),
		b: []byte("y")}, Keys: map[string]store.KnownKey{"x": old}})
	want := store.Known{Secret: first.Secret, Base: "one",
		Parts: map[store.ContentID][]byte{a: []byte("x"), b: []byte("y")},
		Keys:  map[string]store.KnownKey{"x": old}}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	update(store.KnownChange{Was: "one", Base: "two",
		Parts: map[store.ContentID][]byte{d: []byte("z")}, GoneParts: []store.ContentID{b},
		Keys: map[string]store.KnownKey{"y": young}})
	want.Base, want.Parts, want.Keys = "two", map[store.ContentID][]byte{a: []byte("x"),
		d: []byte("z")}, map[string]store.KnownKey{"x": old, "y": young}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	update(store.KnownChange{Was: "two", Base: "three", GoneParts: []store.ContentID{d},
		GoneKeys: []string{"y"}})
	want.Base, want.Parts, want.Keys = "three", map[store.ContentID][]byte{a: []byte("x")},
		map[string]store.KnownKey{"x": old}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Error(problems)
	}
	nothing := store.Known{Secret: first.Secret, Parts: map[store.ContentID][]byte{},
		Keys: map[string]store.KnownKey{}}
	// two runs began at "two"
	update(store.KnownChange{Was: "two", Base: "late",
		Parts: map[store.ContentID][]byte{b: []byte("x")}})
	if diff := cmp.Diff(nothing, read("store", "source")); diff != "" {
		t.Errorf("after a change of something else:\n%s", diff)
	}
	update(store.KnownChange{Base: "four", Parts: map[store.ContentID][]byte{a: []byte("x")},
		Keys: map[string]store.KnownKey{"x": old}})
	if err := c.ForgetKnown(t.Context(), "store", "source"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nothing, read("store", "source")); diff != "" {
		t.Errorf("forgotten:\n%s", diff)
	}
	if diff := cmp.Diff(other, read("store", "other")); diff != "" {
		t.Errorf("the other one:\n%s", diff)
	}
	if err := c.ForgetKnown(t.Context(), "store", "unknown"); err != nil {
		t.Error(err)
	}
}

func TestDamagedKnownIsForgotten(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	if _, err := c.known(t.Context(), "store", "source"); err != nil {
		t.Fatal(err)
	}
	err := c.update(t.Context(), func(tx *bolt.Tx) error {
		return tx.Bucket(bucketKnown).Bucket(knownName("store", "source")).Bucket(bucketParts).Put(
			make([]byte, 21), []byte("what"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if problems := c.Check(t.Context()); len(problems) != 1 {
		t.Errorf("check: %v", problems)
	}
	if k, err := c.known(t.Context(), "store", "source"); err != nil || k.Base != "" ||
		len(k.Parts) > 0 || len(k.Secret) != secretSize {
		t.Errorf("known: %+v, %v", k, err)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Errorf("check: %v", problems)
	}
}
