package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// manySnapshots are snapshots of a fake, which serves them in pages of at most 120.
func manySnapshots(n int) (list []*mgmtv1.Snapshot) {
	for i := range n {
		list = append(list, &mgmtv1.Snapshot{Id: fmt.Sprintf("%012x", i), Source: "prod",
			Key: fmt.Sprint("key-", i)})
	}
	return list
}

// TestSnapshotListReadsPages until it has what was asked for, and says when there is more.
func TestSnapshotListReadsPages(t *testing.T) {
	const more = "--all lists the older ones, too"
	for _, tt := range []struct {
		flags    string
		listed   int
		requests string
		more     bool
	}{
		{"", 100, "[100]", true},
		{" --limit 130", 130, "[130 10]", true},
		{" --limit 250", 250, "[250 130 10]", false},
		{" --limit 300", 250, "[300 180 60]", false},
		{" --all", 250, "[0 0 0]", false},
		{" --since 36h", 250, "[0 0 0]", false},
		{" --since 36h --limit 20", 20, "[20]", true},
	} {
		f := newFake()
		f.snapshots, f.pageSize = manySnapshots(250), 120
		r := runner{fake: f}.run(t, "snapshot list"+storeFlags+tt.flags).want(t, 0)
		var sizes []int32
		for _, req := range f.requests {
			sizes = append(sizes, req.(*mgmtv1.ListSnapshotsRequest).GetPageSize())
		}
		if n := strings.Count(r.stdout, "\n") - 1; n != tt.listed || fmt.Sprint(sizes) != tt.requests ||
			strings.Contains(r.stderr, more) != tt.more {
			t.Errorf("%q: %d listed by requests of %v: %s", tt.flags, n, sizes, r.stderr)
		}
	}
	older := newFake() // a server that knows no pages
	older.snapshots = manySnapshots(130)
	runner{fake: older}.run(t, "snapshot list --limit 120"+storeFlags).want(t, 0).stderrHas(t, more)
}

func TestSnapshotListSince(t *testing.T) {
	for flag, want := range map[string]time.Time{"36h": now.Add(-36 * time.Hour),
		"2026-02-01T00:00:00+01:00": time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)} {
		f := newFake()
		runner{fake: f}.run(t, "snapshot list"+storeFlags+" --since "+flag).want(t, 0)
		if got := requestOf[*mgmtv1.ListSnapshotsRequest](t, f).GetSince().AsTime(); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", flag, got, want)
		}
	}
	for _, flags := range []string{"--since yesterday", "--since -1h", "--since 0s", "--limit 0",
		"--all --limit 5", "--since 2026-02-01"} {
		runner{fake: newFake()}.run(t, "snapshot list "+flags+storeFlags).want(t, 2)
	}
}
