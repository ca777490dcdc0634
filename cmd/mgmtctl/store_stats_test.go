package main

import (
	"testing"
	"time"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// testStats are the statistics of a store; with unreadable, one of its snapshots cannot be read.
func testStats(unreadable bool) []*mgmtv1.GetStatsResponse {
	amount := func(keys, bytes int64) *mgmtv1.StoreAmount {
		return &mgmtv1.StoreAmount{Keys: keys, Bytes: bytes}
	}
	kind := func(kind mgmtv1.StoreKind, keys, bytes int64) *mgmtv1.StoreKindAmount {
		return &mgmtv1.StoreKindAmount{Kind: kind, Stored: amount(keys, bytes)}
	}
	source := &mgmtv1.SourceStats{Uid: "7d1f", Name: "prod", Snapshots: 3,
		Scopes: []*mgmtv1.StoreScope{
			{Scope: "whole", Schedule: "hourly", Snapshots: 1, Newest: ago(5 * time.Minute)},
			{Scope: "0123456789abcdef", Snapshots: 1, Newest: ago(time.Minute)},
			{Scope: "f123456789abcdef", Schedule: "team-a", Snapshots: 1, Newest: ago(26 * time.Hour)}},
		Stored: []*mgmtv1.StoreKindAmount{kind(mgmtv1.StoreKind_STORE_KIND_PACK, 7, 40<<20)},
		Shared: amount(4, 30<<20)}
	pieces := []*mgmtv1.GetStatsResponse{
		{Item: &mgmtv1.GetStatsResponse_Store{Store: &mgmtv1.StoreStats{StoreId: "aa11",
			CreateTime: ago(48 * time.Hour), Encrypted: true, Snapshots: 3,
			Stored: []*mgmtv1.StoreKindAmount{kind(mgmtv1.StoreKind_STORE_KIND_PACK, 9, 41<<20),
				kind(mgmtv1.StoreKind_STORE_KIND_ENVELOPE, 3, 3000),
				kind(mgmtv1.StoreKind_STORE_KIND_OTHER, 1, 200)},
			Unnamed: amount(2, 1<<20), SeveralSources: amount(0, 0)}}},
		{Item: &mgmtv1.GetStatsResponse_Source{Source: source}}}
	for _, s := range append(testSnapshots()[:1], testSnapshots()[2]) {
		pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Snapshot{
			Snapshot: &mgmtv1.SnapshotStats{Snapshot: s, Alone: amount(3, 5000)}}})
	}
	pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Day{
		Day: &mgmtv1.DayStats{Day: "2026-03-01", Written: amount(3, 9<<20)}}})
	if unreadable {
		source.Unreadable = 1
		pieces = append(pieces, &mgmtv1.GetStatsResponse{Item: &mgmtv1.GetStatsResponse_Finding{
			Finding: &mgmtv1.Finding{Code: "envelope-unreadable",
				Severity: mgmtv1.Severity_SEVERITY_ERROR,
				Message:  "snapshots/7d1f/x.json: what it names is not known: it is cut short"}}})
	}
	return pieces
}

func TestStoreStatsAsksForDaysAndSnapshots(t *testing.T) {
	for line, want := range map[string]*mgmtv1.GetStatsRequest{
		"":                      {Days: 14},
		" --snapshots --days 3": {Days: 3, Snapshots: true},
	} {
		f := newFake()
		f.stats = testStats(false)
		runner{fake: f}.run(t, "store stats"+storeFlags+line).want(t, 0)
		req := requestOf[*mgmtv1.GetStatsRequest](t, f)
		if req.GetDays() != want.GetDays() || req.GetSnapshots() != want.GetSnapshots() {
			t.Errorf("%q: request %v", line, req)
		}
	}
	runner{fake: newFake()}.run(t, "store stats --days -1"+storeFlags).want(t, 2)
}
