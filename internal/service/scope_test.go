package service

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/snapshot"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestLatestOfAScopeIsComparedDrawnAndPinned, and not the newest whole snapshot, which is newer
// here.
func TestLatestOfAScopeIsComparedDrawnAndPinned(t *testing.T) {
	l := newLooker(t)
	team := l.take(func(o *snapshot.Options) { o.Scope.Namespaces = []string{"team-1"} })
	l.take(nil)
	scope, ctx := team.ScopeID(), t.Context()

	drawn := &sink[mgmtv1.GraphSnapshotResponse]{ctx: ctx}
	err := l.service.GraphSnapshot(&mgmtv1.GraphSnapshotRequest{Id: latest, Scope: scope,
		Identity: l.identity}, drawn)
	if err != nil || len(drawn.sent) == 0 {
		t.Errorf("drew %d objects, %v", len(drawn.sent), err)
	}
	for _, o := range drawn.sent {
		if ns := o.GetRef().GetNamespace(); ns != "" && ns != "team-1" {
			t.Errorf("drew %v", o.GetRef())
			break
		}
	}

	compared := &sink[mgmtv1.DiffSnapshotsResponse]{ctx: ctx}
	err = l.service.DiffSnapshots(&mgmtv1.DiffSnapshotsRequest{From: string(team.ID), To: latest,
		Scope: scope, Identity: l.identity}, compared)
	if err != nil || len(compared.sent) > 0 {
		t.Errorf("differs from itself: %d objects, %v", len(compared.sent), err)
	}
	err = l.service.DiffSnapshots(&mgmtv1.DiffSnapshotsRequest{From: latest, To: string(team.ID),
		Scope: scope, Identity: l.identity}, compared)
	if err != nil || len(compared.sent) > 0 {
		t.Errorf("it differs from itself: %d objects, %v", len(compared.sent), err)
	}

	pinned, err := l.service.PinSnapshot(ctx, &mgmtv1.PinSnapshotRequest{Id: latest, Scope: scope})
	if err != nil || !strings.Contains(pinned.GetKey(), string(team.ID)) {
		t.Errorf("pinned %v, %v", pinned, err)
	}
	unpinned, err := l.service.UnpinSnapshot(ctx, &mgmtv1.UnpinSnapshotRequest{Id: latest,
		Scope: scope})
	if err != nil || unpinned.GetKey() != pinned.GetKey() {
		t.Errorf("unpinned %v, %v", unpinned, err)
	}
}
