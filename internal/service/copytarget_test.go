package service

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNoStoreIsMadeWhereACopyBelongs: a store of its own there could never become the copy.
func TestNoStoreIsMadeWhereACopyBelongs(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	root := filepath.Join(t.TempDir(), "copy")
	b.cfg.Locations = append(b.cfg.Locations, Location{Name: "copy",
		Store: StoreOptions{URL: root, Plain: true}})
	b.cfg.Locations[0].CopyTo = "copy"
	target := &b.cfg.Locations[len(b.cfg.Locations)-1]
	_, err := b.openLocation(t.Context(), target, nil, true)
	if err == nil || classify(err).Reason != ReasonUsage {
		t.Errorf("it was made: %v", err)
	}
	if entries, err := os.ReadDir(root); len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
