package service

import (
	"context"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

func TestASnapshotThatLacksMostOfTheOneBeforeIsReported(t *testing.T) {
	for _, tt := range []struct {
		before, now int64
		shrunk      bool
	}{{4033, 12, true}, {4033, 0, true}, {4033, 3000, false}, {120, 60, false}, {12, 4033, false},
		{300, 150, true}, {300, 151, false}} {
		f, shrunk := checkShrunk(store.Counts{Objects: tt.now}, &store.Counts{Objects: tt.before})
		if shrunk != tt.shrunk || shrunk && (f.Code != object.CodeShrunk || f.Hint == "") {
			t.Errorf("%d after %d: shrunk %v, %v", tt.now, tt.before, shrunk, f)
		}
	}
	if _, shrunk := checkShrunk(store.Counts{}, nil); shrunk {
		t.Error("the first snapshot is shrunk")
	}
}

// stopsAtEnvelope is a bucket in which a run is stopped right after its envelope is stored.
type stopsAtEnvelope struct {
	bucket.Bucket
	stop func()
}

func (b stopsAtEnvelope) Put(ctx context.Context, key string, data []byte) error {
	err := b.Bucket.Put(ctx, key, data)
	if _, no := store.ParseEnvelopeKey(key); no == nil {
		b.stop()
	}
	return err
}

// TestASnapshotThatIsStoredIsInTheCatalog: a stop comes too late for it, and what the catalog does
// not know is not missed when somebody hides it.
func TestASnapshotThatIsStoredIsInTheCatalog(t *testing.T) {
	f := newPruneFixture(t, Retention{})
	c, err := f.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	st, err := store.Open(ctx, store.Options{Plain: true,
		Bucket: stopsAtEnvelope{directory.New(f.root), stop}})
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindSnapshot})
	if err != nil {
		t.Fatal(err)
	}
	source := snapshottest.New("prod", 1, 1)
	result, err := takeSnapshot(ctx, c, c.Journal(op.ID, catalog.JournalOptions{}), source.Options(st))
	if err != nil {
		t.Fatal(err)
	}
	op, err = c.Operation(t.Context(), op.ID)
	if err != nil || op.SnapshotID != string(result.ID) {
		t.Errorf("the operation has the snapshot %q: %v", op.SnapshotID, err)
	}
	if known, err := c.Snapshots(t.Context(), catalog.SnapshotFilter{}); err != nil || len(known) != 1 {
		t.Errorf("the catalog has %d snapshots: %v", len(known), err)
	}
}
