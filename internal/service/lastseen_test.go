package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestI1WhatShowsThatAnOwnerLives: its newest snapshot, in whichever store, its newest ownership
// record that a trusted key signed, and where no snapshot can be read, when the storage received
// it.
func TestI1WhatShowsThatAnOwnerLives(t *testing.T) {
	f := newOwnedFixture(t, true)
	c := object.Side{Name: "c", UID: "uid-c"}
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tt := range map[string]struct {
		known    time.Time // of a snapshot
		records  []ownership.Record
		want     time.Time
		interval time.Duration
	}{
		"nothing": {time.Time{}, []ownership.Record{{By: c}}, time.Time{}, 0},
		"a snapshot in another store": {ago(time.Minute), []ownership.Record{{By: c, Trusted: true,
			Time: ago(time.Hour)}}, ago(time.Minute), time.Hour},
		"the newer one of its records": {ago(time.Hour), []ownership.Record{{By: c, Trusted: true,
			Time: ago(time.Minute)}, {By: c, Trusted: true, Time: ago(time.Hour)}}, ago(time.Minute),
			time.Hour},
		"a record that anybody wrote": {time.Time{}, []ownership.Record{{By: c, Time: ago(time.Minute)}},
			time.Time{}, 0},
	} {
		f.lastSeen = func(context.Context, string) (time.Time, error) { return tt.known, nil }
		got, err := f.seen().overridden(t.Context(), map[string]preflight.Dial{"uid-c": {Refuses: true}},
			tt.records)
		if is := got["uid-c"]; err != nil || len(got) != 1 || is.Owner != c || !is.Dial.Refuses ||
			!is.Seen.Equal(tt.want) || is.Interval != tt.interval {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	f.lastSeen = nil
	key := store.EnvelopeKey{Source: c.UID, ID: store.NewSnapshotID(), Time: ago(time.Hour)}
	if err := f.bucket.Put(t.Context(), key.String(), []byte("of a format that is not known")); err != nil {
		t.Fatal(err)
	}
	is, err := f.seen().owner(t.Context(), c)
	if err != nil || is.Seen.Before(ago(time.Minute)) || is.Interval != time.Hour {
		t.Errorf("a snapshot that cannot be read: got %+v, %v", is, err)
	}
}

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

// TestI1TheSnapshotsOfTheSourceAreReadBeforeEachRelease: a source that nobody can reach from here
// shows by its snapshots that it is back. What could not be read once is read again.
func TestI1TheSnapshotsOfTheSourceAreReadBeforeEachRelease(t *testing.T) {
	f := newOwnedFixture(t, true)
	f.plan.Units = []restore.Unit{ownedUnit}
	guard := &sourceGuard{o: f.restoreInputs, plan: f.plan}
	errAway := errors.New("no answer")
	for _, tt := range []struct {
		name    string
		seen    time.Time
		err     error
		refused bool
	}{
		{"the store does not answer", time.Time{}, errAway, false},
		{"no snapshot", time.Time{}, nil, false},
		{"a new snapshot", time.Now(), nil, true},
		{"none any more", time.Time{}, nil, true},
	} {
		f.lastSeen = func(context.Context, string) (time.Time, error) { return tt.seen, tt.err }
		guard.asked = guard.asked.Add(-2 * dialAgain)
		err := guard.check(t.Context())
		if as[*preflight.SourceError](err) != tt.refused || !errors.Is(err, tt.err) && tt.err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
