package service

import (
	"errors"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestI1ASnapshotInAnotherStoreShowsThatTheSourceWasSeen: the copy of a store is behind, and the
// index of this host has a newer snapshot of the source, taken into the origin.
func TestI1ASnapshotInAnotherStoreShowsThatTheSourceWasSeen(t *testing.T) {
	s := New(Config{CatalogFile: t.TempDir() + "/c.db", Daemon: true})
	t.Cleanup(func() { _ = s.Close() })
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := newOwnedFixture(t, true)
	f.plan.Units = []restore.Unit{ownedUnit}
	now := time.Now()
	for _, tt := range []struct {
		source string
		age    time.Duration
		seen   bool
	}{{"uid-a", 24 * time.Hour, false}, {"uid-other", time.Minute, false},
		{"uid-a", -10 * 365 * 24 * time.Hour, false}, {"uid-a", time.Minute, true}} {
		err := c.PutSnapshot(t.Context(), catalog.SnapshotRecord{StoreID: "origin", Source: tt.source,
			ID: string(store.NewSnapshotID()), Key: "k" + tt.age.String(), Time: now.Add(-tt.age)})
		if err != nil {
			t.Fatal(err)
		}
		f.lastSeen = epochMemory{s}.lastSeen
		err = (&sourceGuard{o: f.restoreInputs, plan: f.plan}).check(t.Context())
		if _, refused := errors.AsType[*preflight.SourceError](err); refused != tt.seen ||
			!refused && err != nil {
			t.Errorf("a snapshot of %s, %s ago: %v", tt.source, tt.age, err)
		}
		evidence, _, err := f.sourceEvidence(t.Context(), restore.Spec{}, nil)
		if err != nil || tt.seen && now.Sub(evidence.Seen) > 2*tt.age {
			t.Errorf("the plan has %s, %v", evidence.Seen, err)
		}
	}
}
