package catalog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScheduleStateSurvivesARestart(t *testing.T) {
	path := t.TempDir() + "/catalog.db"
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	paused, run := true, time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	want, err := c.UpdateSchedule(t.Context(), "nightly", func(s *ScheduleState) {
		s.Paused, s.LastRun = &paused, run
	})
	if err != nil || want.Seen.IsZero() {
		t.Fatalf("new schedule: %+v, %v", want, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c, err = Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.ScheduleState(t.Context(), "nightly")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("after reopen: %v\n%s", err, diff)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestReplaceSnapshotsRetainsVerifications(t *testing.T) {
	c, err := Open(t.Context(), t.TempDir()+"/catalog.db", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	record := func(store, id string) SnapshotRecord {
		return SnapshotRecord{StoreID: store, Source: "uid", ID: id, Time: time.Date(2026, 3, 1, 3, 0, 0,
			0, time.UTC)}
	}
	verified := record("a", "1")
	verified.Verified = &Verification{Level: "structure", OK: true}
	for _, s := range []SnapshotRecord{verified, record("a", "2"), record("b", "3")} {
		if err := c.PutSnapshot(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	// the second time everything is as it should be
	for _, want := range [][2]int{{1, 1}, {0, 0}} {
		added, dropped, err := c.ReplaceSnapshots(t.Context(), "a", []SnapshotRecord{record("a", "1"),
			record("a", "4")})
		if err != nil || added != want[0] || dropped != want[1] {
			t.Errorf("added %d, dropped %d, %v; want %v", added, dropped, err, want)
		}
	}
	got, err := c.Snapshots(t.Context(), SnapshotFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range got {
		ids = append(ids, s.StoreID+s.ID)
		if s.ID == "1" && s.Verified == nil {
			t.Error("what verify found is lost")
		}
	}
	if diff := cmp.Diff([]string{"a4", "b3", "a1"}, ids); diff != "" {
		t.Error(diff)
	}
	if problems := c.Check(t.Context()); len(problems) > 0 {
		t.Error(problems)
	}
}
