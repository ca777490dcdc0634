package catalog

import (
	"maps"
	"path/filepath"
	"testing"
)

// TestEpochsAreNeverLowered: the next process knows the highest epoch of each store.
func TestEpochsAreNeverLowered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "catalog.db")
	for _, raise := range []map[string]int64{{"w1": 2, "w2": 1}, {"w1": 1, "w3": 9}, {}, nil} {
		c, err := Open(t.Context(), file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if raised, err := c.RaiseEpochs(t.Context(), "s1", raise); err != nil ||
			raised != (len(raise) > 0) {
			t.Fatal(raised, err)
		}
		if found := c.Check(t.Context()); len(found) > 0 {
			t.Error(found)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Open(t.Context(), file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got, err := c.Epochs(t.Context(), "s1")
	if want := map[string]int64{"w1": 2, "w2": 1, "w3": 9}; err != nil || !maps.Equal(got, want) {
		t.Errorf("epochs %v, %v, want %v", got, err, want)
	}
	for _, tt := range []struct {
		store, id string
		epoch     int64
	}{{"s1", "w1", 2}, {"s1", "w4", 0}, {"s", "w1", 0}, {"s2", "w1", 0}} {
		if got, err := c.Epoch(t.Context(), tt.store, tt.id); err != nil || got != tt.epoch {
			t.Errorf("%s/%s: epoch %d, %v, want %d", tt.store, tt.id, got, err, tt.epoch)
		}
	}
	for name, epochs := range map[string]map[string]int64{"a slash": {"w/1": 1}} {
		if _, err := c.RaiseEpochs(t.Context(), "s1", epochs); err == nil {
			t.Errorf("%s: was recorded", name)
		}
	}
}
