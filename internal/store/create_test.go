package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// overtaken is a bucket without conditions in which another writer makes the store right after us.
type overtaken struct {
	*directory.Bucket
	other func() // nil once it was called
}

func (b *overtaken) Put(ctx context.Context, key string, data []byte) error {
	err := b.Bucket.Put(ctx, key, data)
	if key == markerKey && b.other != nil {
		b.other()
		b.other = nil
	}
	return err
}

// TestTwoThatMakeAStoreAtOnceUseOne: without conditional writes the second mgmtd.json replaces the
// first. Both go by the one that is there. One that arrives after the first snapshot is noticed.
func TestTwoThatMakeAStoreAtOnceUseOne(t *testing.T) {
	root, keys := t.TempDir(), mustLoad(t, testKeys(t))
	var second *Store
	makeAgain := func() {
		if err := os.Remove(filepath.Join(root, markerKey)); err != nil {
			t.Fatal(err)
		}
		second = mustOpen(t, Options{Bucket: directory.New(root), Keys: keys, Create: true})
	}
	first := mustOpen(t, Options{Bucket: &overtaken{Bucket: directory.New(root), other: makeAgain},
		Keys: keys, Create: true})
	if first.ID() != second.ID() {
		t.Fatalf("one uses store %s, the other %s", first.ID(), second.ID())
	}
	mustWriteSnapshot(t, first, 1, nil)
	// Much later a write arrives that was on its way.
	elsewhere := t.TempDir()
	mustOpen(t, Options{Bucket: directory.New(elsewhere), Keys: keys, Create: true})
	late, err := os.ReadFile(filepath.Join(elsewhere, markerKey))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, markerKey), late, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Bucket: directory.New(root), Keys: keys}); !IsCorrupt(err) {
		t.Errorf("opened by an id that no snapshot has: %v", err)
	}
	if _, err := writeSnapshot(t.Context(), first, 2, nil); !IsCorrupt(err) {
		t.Errorf("envelope of the first store: %v, want a *CorruptError", err)
	}
}
