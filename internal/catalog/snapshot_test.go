package catalog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestSnapshotsNewestFirst(t *testing.T) {
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

func TestPutSnapshotReplaces(t *testing.T) {
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
	for _, s := range []SnapshotRecord{testSnapshot(0x11), testSnapshot(0x12), copied, testSnapshot(0x20)} {
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
	if got, err := c.GetSnapshot(t.Context(), "12", SnapshotFilter{StoreID: "store2"}); err != nil || got.StoreID != "store2" {
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
