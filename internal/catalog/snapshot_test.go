package catalog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store"
)

func testSnapshot(n int) SnapshotRecord {
	return SnapshotRecord{
		StoreID:         "store1",
		Source:          "3f1c",
		SourceName:      "prod",
		ID:              fmt.Sprintf("%02xaa00000000", n),
		Key:             fmt.Sprintf("snapshots/3f1c/%d.json", n),
		Time:            time.Date(2026, 3, 1, 0, n, 0, 123, time.UTC),
		ResourceVersion: "812",
		Sequence:        int64(n),
		Objects:         100 * n,
		Units:           n,
		Bytes:           1 << 20,
		Tree:            "trees/ab/abcd.json.zst",
	}
}

func ids(list []SnapshotRecord) (out []string) {
	for _, s := range list {
		out = append(out, s.ID[:2])
	}
	return out
}

func TestSnapshotsAreListedNewestFirst(t *testing.T) {
	c := openTest(t)
	for _, n := range []int{3, 1, 2} {
		if err := c.PutSnapshot(t.Context(), testSnapshot(n)); err != nil {
			t.Fatal(err)
		}
	}
	other := testSnapshot(4)
	other.Source, other.SourceName = "77aa", "lab"
	if err := c.PutSnapshot(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		filter SnapshotFilter
		want   []string
	}{
		"all":         {SnapshotFilter{}, []string{"04", "03", "02", "01"}},
		"source":      {SnapshotFilter{Source: "3f1c"}, []string{"03", "02", "01"}},
		"source name": {SnapshotFilter{SourceName: "lab"}, []string{"04"}},
		"store":       {SnapshotFilter{StoreID: "store2"}, nil},
		"limit":       {SnapshotFilter{SourceName: "prod", Limit: 2}, []string{"03", "02"}},
		"not after":   {SnapshotFilter{NotAfter: testSnapshot(2).Time}, []string{"02", "01"}},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := c.Snapshots(t.Context(), test.filter)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, ids(list)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPutSnapshotReplacesTheRecord(t *testing.T) {
	c := openTest(t)
	s := testSnapshot(1)
	for range 2 {
		if err := c.PutSnapshot(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	s.Verified = &Verification{Time: s.Time.Add(time.Hour), Level: "structure", OK: true}
	s.Time = s.Time.Add(time.Second) // moves the key
	if err := c.PutSnapshot(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	list, err := c.Snapshots(t.Context(), SnapshotFilter{})
	if diff := cmp.Diff([]SnapshotRecord{s}, list); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestGetSnapshotByPrefix(t *testing.T) {
	c := openTest(t)
	copied := testSnapshot(0x12)
	copied.StoreID = "store2"
	for _, s := range []SnapshotRecord{testSnapshot(0x11), testSnapshot(0x12), copied,
		testSnapshot(0x20)} {
		if err := c.PutSnapshot(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.GetSnapshot(t.Context(), "11", SnapshotFilter{})
	if diff := cmp.Diff(testSnapshot(0x11), got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	var ambiguous *AmbiguousError
	for _, prefix := range []string{"1", "12"} {
		if _, err := c.GetSnapshot(t.Context(), prefix, SnapshotFilter{}); !errors.As(err, &ambiguous) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	if got, err := c.GetSnapshot(t.Context(), "12", SnapshotFilter{StoreID: "store2"}); err != nil ||
		got.StoreID != "store2" {
		t.Error(got, err)
	}
	for _, prefix := range []string{"", "3", "/"} {
		if _, err := c.GetSnapshot(t.Context(), prefix, SnapshotFilter{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestPutSnapshotRefusesAmbiguousKeys(t *testing.T) {
	c := openTest(t)
	for name, change := range map[string]func(*SnapshotRecord){
		"no id":          func(s *SnapshotRecord) { s.ID = "" },
		"slash in store": func(s *SnapshotRecord) { s.StoreID = "a/b" },
		"no time":        func(s *SnapshotRecord) { s.Time = time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			s := testSnapshot(1)
			change(&s)
			if err := c.PutSnapshot(t.Context(), s); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// TestPutVerificationRetainsDamageUntilSuperseded: damage stays until a verify that is as deep
// finds none; the rest of the record is left alone.
func TestPutVerificationRetainsDamageUntilSuperseded(t *testing.T) {
	c := openTest(t)
	at := func(hours int, level store.VerifyLevel, ok bool) Verification {
		return Verification{Time: time.Date(2026, 3, 2, hours, 0, 0, 0, time.UTC), Level: level, OK: ok}
	}
	known := testSnapshot(1)
	if err := c.PutSnapshot(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ put, want Verification }{
		{at(1, store.LevelStructure, true), at(1, store.LevelStructure, true)},
		{at(3, store.LevelFull, false), at(3, store.LevelFull, false)},
		{at(2, store.LevelFull, true), at(3, store.LevelFull, false)}, // older
		{at(4, store.LevelStructure, true), at(3, store.LevelFull, false)},
		{at(5, store.LevelFull, true), at(5, store.LevelFull, true)},
		{at(5, store.LevelFull, true), at(5, store.LevelFull, true)},
		{at(6, store.LevelStructure, true), at(6, store.LevelStructure, true)},
		{at(7, store.LevelStructure, false), at(7, store.LevelStructure, false)},
		{at(8, store.LevelSample, true), at(7, store.LevelStructure, false)},
		{at(9, store.LevelStructure, true), at(9, store.LevelStructure, true)},
	} {
		short := SnapshotRecord{StoreID: known.StoreID, Source: known.Source, ID: known.ID,
			Time: known.Time}
		if err := c.PutVerification(t.Context(), short, step.put); err != nil {
			t.Fatal(err)
		}
		want := known
		want.Verified = &step.want
		got, err := c.Snapshots(t.Context(), SnapshotFilter{})
		if diff := cmp.Diff([]SnapshotRecord{want}, got); err != nil || diff != "" {
			t.Errorf("after %+v: %v %s", step.put, err, diff)
		}
	}
	// One that is not in the index is put.
	if err := c.PutVerification(t.Context(), testSnapshot(2),
		at(1, store.LevelFull, true)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.GetSnapshot(t.Context(), testSnapshot(2).ID, SnapshotFilter{}); err != nil ||
		got.Verified == nil || got.Sequence != 2 {
		t.Errorf("put: %+v, %v", got, err)
	}
	// A rebuild knows what the bucket knows, and forgets nothing that is later.
	list := []SnapshotRecord{testSnapshot(1), testSnapshot(2), testSnapshot(3)}
	earlier, later := at(8, store.LevelStructure, false), at(10, store.LevelFull, false)
	list[0].Verified, list[1].Verified, list[2].Verified = &earlier, &later, &later
	if _, _, err := c.ReplaceSnapshots(t.Context(), "store1", list); err != nil {
		t.Fatal(err)
	}
	var got []Verification
	records, err := c.Snapshots(t.Context(), SnapshotFilter{})
	for _, r := range records {
		got = append(got, *r.Verified)
	}
	if diff := cmp.Diff([]Verification{later, later, at(9, store.LevelStructure, true)},
		got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestForgetSnapshotsDropsThemFromTheIndex(t *testing.T) {
	c := openTest(t)
	a, b := testSnapshot(1), testSnapshot(2)
	elsewhere := a
	elsewhere.StoreID = "elsewhere"
	for _, s := range []SnapshotRecord{a, b, elsewhere} {
		if err := c.PutSnapshot(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // may run twice
		if err := c.ForgetSnapshots(t.Context(), a.StoreID,
			[]string{a.Key, "snapshots/x/none.json"}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := c.Snapshots(t.Context(), SnapshotFilter{})
	if err != nil || len(left) != 2 {
		t.Fatalf("%d are left, %v", len(left), err)
	}
	if _, err := c.GetSnapshot(t.Context(), a.ID, SnapshotFilter{StoreID: a.StoreID}); !errors.Is(err,
		ErrNotFound) {
		t.Errorf("it is still found: %v", err)
	}
	if _, err := c.GetSnapshot(t.Context(), a.ID, SnapshotFilter{StoreID: "elsewhere"}); err != nil {
		t.Errorf("its copy in another store: %v", err)
	}
}
