package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestADaemonNoticesThatAnotherStoreIsAtAPlace: it opens no other one there until the catalog is
// rebuilt, and no store of its own where a copy belongs.
func TestADaemonNoticesThatAnotherStoreIsAtAPlace(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	main := &b.cfg.Locations[0]
	for range 2 {
		if _, err := b.openLocation(t.Context(), main, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := t.TempDir()
	other, err := store.Open(t.Context(), store.Options{Bucket: directory.New(elsewhere), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(elsewhere, "mgmtd.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(b.root, "mgmtd.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.openLocation(t.Context(), main, nil, false)
	if err == nil || classify(err).Reason != ReasonDamaged || !strings.Contains(err.Error(),
		b.st.ID()) {
		t.Fatalf("another store was opened: %v", err)
	}
	rebuild := &catalogService{s: b.Server}
	if _, err := rebuild.RebuildCatalog(t.Context(), &mgmtv1.RebuildCatalogRequest{}); err != nil {
		t.Fatal(err)
	}
	st, err := b.openLocation(t.Context(), main, nil, false)
	if err != nil || st.ID() != other.ID() {
		t.Fatalf("after a rebuild: %v", err)
	}
	b.cfg.Locations = append(b.cfg.Locations, Location{Name: "first", CopyTo: "main",
		Store: StoreOptions{URL: filepath.Join(t.TempDir(), "first"), Plain: true}})
	_, err = b.openLocation(t.Context(), &b.cfg.Locations[0], nil, false)
	if err == nil || classify(err).Reason != ReasonDamaged {
		t.Errorf("a store of its own was opened as a copy: %v", err)
	}
}

// TestAStoreThatIsGoneIsNotOneThatWasNeverThere: without a store there are no ownership records, by
// which a fence is lifted and a management cluster that comes back is fenced, and there is nothing
// to copy or verify. A folder that is not mounted must not look like that.
func TestAStoreThatIsGoneIsNotOneThatWasNeverThere(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	main, fresh := &b.cfg.Locations[0], Location{Name: "fresh",
		Store: StoreOptions{URL: filepath.Join(t.TempDir(), "none"), Plain: true}}
	if _, err := b.openLocation(t.Context(), main, nil, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.root, b.root+"-away"); err != nil {
		t.Fatal(err)
	}
	_, err := b.openLocation(t.Context(), main, nil, false)
	if err == nil || errors.Is(err, store.ErrStoreMissing) ||
		classify(err).Reason != ReasonStoreMissing || !strings.Contains(err.Error(), b.st.ID()) {
		t.Errorf("a store that is gone: %v", err)
	}
	// A snapshot would make another one in the empty folder, which nobody looks for later.
	if _, err := b.openLocation(t.Context(), main, nil, true); !isGone(err) {
		t.Errorf("a store for a snapshot, in place of one that is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.root, "mgmtd.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another store was made: %v", err)
	}
	// The hint of what says why the store is needed is the one that counts.
	if e := classify(&move.StoreAwayError{Err: err}); e.Reason != ReasonStoreMissing ||
		e.HintKey != object.HintStoreAway {
		t.Errorf("a rollback without it: %s, key %q", e.Reason, e.HintKey)
	}
	if _, err := b.ownersStores(t.Context(), ""); err == nil {
		t.Error("a fence is lifted without the records of a store that is gone")
	}
	if _, _, err := b.openCopy(t.Context(), main, &fresh); err == nil ||
		errors.Is(err, store.ErrStoreMissing) {
		t.Errorf("a copy of a store that is gone: %v", err)
	}
	// The mirrors in other locations are read.
	if list, err := b.mirroredIn(t.Context(), main); err != nil || len(list) > 0 {
		t.Errorf("operations in a store that is gone: %v, %v", list, err)
	}
	if _, err := b.openLocation(t.Context(), &fresh, nil, false); !errors.Is(err, store.ErrStoreMissing) {
		t.Errorf("a store that was never there: %v", err)
	}
	if _, err := b.openLocation(t.Context(), &fresh, nil, true); err != nil {
		t.Errorf("a store for the first snapshot: %v", err)
	}
	if err := os.Rename(b.root+"-away", b.root); err != nil {
		t.Fatal(err)
	}
	if _, err := b.openLocation(t.Context(), main, nil, true); err != nil {
		t.Errorf("it is back: %v", err)
	}
}
