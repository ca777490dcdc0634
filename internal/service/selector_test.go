package service

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestASnapshotOfASelectorIsAScopeOfItsOwn: it is found by the name of its schedule, counts for a
// schedule with its selector and for no other, and says what it was asked to hold.
func TestASnapshotOfASelectorIsAScopeOfItsOwn(t *testing.T) {
	l, ctx := newLooker(t), t.Context()
	scope, err := scopeOf(nil, "team in (team-1)")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.take(func(o *snapshot.Options) { o.Scope, o.Schedule = scope, "gold" })
	l.take(nil)
	shown, err := l.service.GetSnapshot(ctx, &mgmtv1.GetSnapshotRequest{Id: latest, Scope: "gold",
		Identity: l.identity})
	if err != nil || shown.GetSnapshot().GetId() != string(taken.ID) ||
		!shown.GetSnapshot().GetPartial() || shown.GetSelection().GetSelector() != "team=team-1" {
		t.Fatalf("shown: %v, %v", shown, err)
	}
	for _, u := range shown.GetUnits() {
		if !strings.HasPrefix(u.GetName()+u.GetSharedNamespace()+"team-1", "team-1") {
			t.Errorf("it has %v", u)
		}
	}
	listed, err := l.service.ListSnapshots(ctx, &mgmtv1.ListSnapshotsRequest{Scope: "gold"})
	if err != nil || len(listed.GetSnapshots()) != 1 || listed.GetSnapshots()[0].GetUnits() != 2 {
		t.Errorf("listed: %v, %v", listed, err)
	}
	runs := &scheduledRuns{s: l.service.s}
	for selector, want := range map[string]store.EnvelopeKey{"team=team-1": taken.Key(),
		"team=team-0": {}} {
		got, err := runs.NewestStored(ctx, schedule.Schedule{Name: "gold", Selector: selector},
			l.source.UID)
		if err != nil || got.Key != want {
			t.Errorf("newest of a schedule of %q: %v, %v", selector, got, err)
		}
	}
	version, err := openVersion(ctx, l.st, snapshotRef{ref: latest, scope: "gold"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	live, err := liveScope(&mgmtv1.DiffSnapshotsRequest{Live: true}, version.Snapshot)
	if err != nil || live.Selector.String() != "team=team-1" {
		t.Errorf("compared live with %+v, %v", live, err)
	}
}

func TestCoverageSaysWhatASelectorLeavesOut(t *testing.T) {
	l := newLooker(t)
	scope, err := scopeOf(nil, "team=team-1")
	if err != nil {
		t.Fatal(err)
	}
	cut, err := capture.Exact(t.Context(), l.source, scope, nil,
		func(*graph.Node, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	byNamespace := map[string]map[mgmtv1.Coverage]int{"": {}, "team-0": {}, "team-1": {}}
	for _, o := range coverageToProto(cut) {
		byNamespace[o.GetRef().GetNamespace()][o.GetCoverage()]++
		if out := o.GetCoverage() == mgmtv1.Coverage_COVERAGE_LEFT_OUT; out !=
			strings.Contains(o.GetReason(), "selector") {
			t.Errorf("%v: %s, %s", o.GetRef(), o.GetCoverage(), o.GetReason())
		}
	}
	in, out := mgmtv1.Coverage_COVERAGE_INCLUDED, mgmtv1.Coverage_COVERAGE_LEFT_OUT
	if byNamespace["team-1"][in] == 0 || byNamespace["team-1"][out] > 0 ||
		byNamespace["team-0"][in] > 0 || byNamespace["team-0"][out] != byNamespace["team-1"][in] ||
		byNamespace[""][in] != 1 || byNamespace[""][out] != 1 {
		t.Errorf("coverage: %v", byNamespace)
	}
}

func TestASelectorThatSelectsNothingIsReported(t *testing.T) {
	for _, tt := range []struct {
		selector string
		units    int64
		reported bool
	}{{"", 0, false}, {"tier=gold", 1, false}, {"tier=gold", 0, true}} {
		scope, err := scopeOf([]string{"team-9"}, tt.selector)
		if err != nil {
			t.Fatal(err)
		}
		f, reported := checkSelected(scope, store.Counts{Units: tt.units})
		if reported != tt.reported || reported && (f.Code != object.CodeNothingSelected ||
			!strings.Contains(f.Message, "team-9") || f.Severity != object.Warning) {
			t.Errorf("%+v: %v, %+v", tt, reported, f)
		}
	}
	_, err := newLooker(t).service.CreateSnapshot(t.Context(),
		&mgmtv1.CreateSnapshotRequest{Selector: "tier in"})
	if err == nil || classify(err).Reason != ReasonUsage || !strings.Contains(err.Error(), "tier in") {
		t.Errorf("a selector that is none: %v", err)
	}
}
