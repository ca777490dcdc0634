package service

import (
	"testing"
)

// TestALiftAsksEachStore: a daemon with two storage locations and no default read no ownership
// records for a lift that named none.
func TestALiftAsksEachStore(t *testing.T) {
	m := newMirroredHosts(t)
	_, _, st := m.host()
	first, second, unused := m.location, m.location, m.location
	first.Name, second.Name, unused.Name = "first", "second", "unused"
	unused.Store.URL = "file://" + t.TempDir()
	s := New(Config{CatalogFile: t.TempDir() + "/c.db", Daemon: true,
		Locations: []Location{first, second, unused}})
	t.Cleanup(func() { _ = s.Close() })
	stores, err := s.ownersStores(t.Context(), "")
	if err != nil || len(stores) != 2 || stores[1].ID() != st.ID() {
		t.Errorf("%d stores, %v", len(stores), err)
	}
	if stores, err = s.ownersStores(t.Context(), "first"); err != nil || len(stores) != 1 {
		t.Errorf("a location that is named: %d stores, %v", len(stores), err)
	}
	if _, err = s.ownersStores(t.Context(), "unused"); err == nil {
		t.Error("a location that is named and has no store is no error")
	}
	standalone := New(Config{CatalogFile: t.TempDir() + "/c.db", Locations: []Location{{}}})
	t.Cleanup(func() { _ = standalone.Close() })
	if stores, err = standalone.ownersStores(t.Context(), ""); err != nil || len(stores) != 0 {
		t.Errorf("without a store: %d stores, %v", len(stores), err)
	}
	unused.Name = "" // as by --store
	named := New(Config{CatalogFile: t.TempDir() + "/c.db", Locations: []Location{unused}})
	t.Cleanup(func() { _ = named.Close() })
	if _, err = named.ownersStores(t.Context(), ""); err == nil {
		t.Error("a store that the command names, and that is not there, is no error")
	}
}
