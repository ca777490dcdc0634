package catalog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	read := func(store, source string) Known {
		t.Helper()
		k, err := c.Known(t.Context(), store, source)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	update := func(change KnownChange) {
		t.Helper()
		for range 2 { // the second has another base before it
			if err := c.UpdateKnown(t.Context(), "store", "source", change); err != nil {
				t.Fatal(err)
			}
			if change.Was != "" {
				return
			}
		}
	}
	first, other := read("store", "source"), read("store", "other")
	if len(first.Secret) != secretSize || first.Base != "" || string(first.Secret) == string(other.Secret) {
		t.Fatalf("nothing known: %+v, %+v", first, other)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	a, b, d := ContentID{1}, ContentID{2}, ContentID{3}
	old, young := KnownKey{Size: 1, Written: at}, KnownKey{Size: 2, Written: at.Add(time.Hour)}
	update(KnownChange{Base: "one", Places: map[ContentID]string{a: "x", b: "x"}, Keys: map[string]KnownKey{"x": old}})
	want := Known{Secret: first.Secret, Base: "one", Places: map[ContentID]string{a: "x", b: "x"}, Keys: map[string]KnownKey{"x": old}}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	update(KnownChange{Was: "one", Base: "two", Places: map[ContentID]string{d: "y"}, Gone: []ContentID{b}, Keys: map[string]KnownKey{"y": young}})
	want.Base, want.Places, want.Keys = "two", map[ContentID]string{a: "x", d: "y"}, map[string]KnownKey{"x": old, "y": young}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	update(KnownChange{Was: "two", Base: "three", Gone: []ContentID{d}, GoneKeys: []string{"y"}})
	want.Base, want.Places, want.Keys = "three", map[ContentID]string{a: "x"}, map[string]KnownKey{"x": old}
	if diff := cmp.Diff(want, read("store", "source")); diff != "" {
		t.Error(diff)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Error(problems)
	}
	nothing := Known{Secret: first.Secret, Places: map[ContentID]string{}, Keys: map[string]KnownKey{}}
	update(KnownChange{Was: "two", Base: "late", Places: map[ContentID]string{b: "x"}}) // two runs began at "two"
	if diff := cmp.Diff(nothing, read("store", "source")); diff != "" {
		t.Errorf("after a change of something else:\n%s", diff)
	}
	update(KnownChange{Base: "four", Places: map[ContentID]string{a: "x"}, Keys: map[string]KnownKey{"x": old}})
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
	if _, err := c.Known(t.Context(), "store", "source"); err != nil {
		t.Fatal(err)
	}
	err := c.update(t.Context(), func(tx *bolt.Tx) error {
		return tx.Bucket(bucketKnown).Bucket(knownKey("store", "source")).Bucket(bucketPlaces).Put(make([]byte, 20), []byte("nowhere"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if problems := c.Check(t.Context()); len(problems) != 1 {
		t.Errorf("check: %v", problems)
	}
	if k, err := c.Known(t.Context(), "store", "source"); err != nil || k.Base != "" || len(k.Places) > 0 || len(k.Secret) != secretSize {
		t.Errorf("known: %+v, %v", k, err)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Errorf("check: %v", problems)
	}
}
