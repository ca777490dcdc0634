package service

import (
	"testing"
)

// TestALiftAsksEachStore: a daemon with two storage locations and no default read no ownership
// records for a lift that named none, and only those of the one that it named: a record in the
// other one may say that the workload cluster belongs elsewhere.
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
	if stores, err = s.ownersStores(t.Context(), "first"); err != nil || len(stores) != 2 {
		t.Errorf("a location that is named: %d stores, %v", len(stores), err)
	}
	for _, name := range []string{"unused", "unknown"} {
		if _, err = s.ownersStores(t.Context(), name); err == nil {
			t.Errorf("location %s is named, has no store, and is no error", name)
		}
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
