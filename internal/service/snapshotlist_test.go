package service

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// listFixture has snapshots of two sources: 0 to 4 of prod, from an hour ago, a second apart, of
// which 1 and 3 are of the schedule "team"; ed of edge between 2 and 3; and one of prod of now. It
// returns the id of that one, and the time of 0.
func listFixture(t *testing.T) (l *looker, newest string, at time.Time) {
	t.Helper()
	l = newLooker(t)
	taken := l.take(nil)
	put := func(id string, after time.Duration, change func(*store.Envelope)) {
		e := taken.Envelope
		e.ID, e.Time = store.SnapshotID(strings.Repeat("0", 10)+id), at.Add(after)
		change(&e)
		if _, err := l.st.PutEnvelope(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	at = taken.Time.Add(-time.Hour)
	for i := range 5 {
		put(fmt.Sprintf("%02d", i), time.Duration(i)*time.Second, func(e *store.Envelope) {
			if i%2 == 1 {
				e.Partial = true
				scope := store.ScopeOf(e.Source.UID, []string{"team-0"}, "", "team")
				e.Scope = &scope
			}
		})
	}
	edge := snapshottest.New("edge", 8, 1)
	put("ed", 2500*time.Millisecond, func(e *store.Envelope) {
		e.Source.UID, e.Source.Name = edge.UID, edge.Name
	})
	return l, string(taken.ID), at
}

// pages reads all pages of a list, and returns the last two digits of the ids in each.
func (l *looker) pages(req *mgmtv1.ListSnapshotsRequest) (pages [][]string) {
	l.t.Helper()
	for {
		resp, err := l.service.ListSnapshots(l.t.Context(), req)
		if err != nil {
			l.t.Fatal(err)
		}
		page := []string{}
		for _, s := range resp.GetSnapshots() {
			page = append(page, s.GetId()[10:])
		}
		pages = append(pages, page)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return pages
		}
	}
}

// TestListSnapshotsInPages: every snapshot is in one page, newest first, whatever is left out.
func TestListSnapshotsInPages(t *testing.T) {
	l, id, at := listFixture(t)
	now := id[10:]
	uid := snapshottest.New("edge", 8, 1).UID
	for _, tt := range []struct {
		name string
		req  *mgmtv1.ListSnapshotsRequest
		want string
	}{
		{"one page", &mgmtv1.ListSnapshotsRequest{}, "[[now 04 03 ed 02 01 00]]"},
		{"of three", &mgmtv1.ListSnapshotsRequest{PageSize: 3}, "[[now 04 03] [ed 02 01] [00]]"},
		{"full to the end", &mgmtv1.ListSnapshotsRequest{PageSize: 7}, "[[now 04 03 ed 02 01 00]]"},
		{"of one source", &mgmtv1.ListSnapshotsRequest{PageSize: 2, Source: "prod"},
			"[[now 04] [03 02] [01 00]]"},
		{"of a UID", &mgmtv1.ListSnapshotsRequest{Source: uid}, "[[ed]]"},
		{"of a scope", &mgmtv1.ListSnapshotsRequest{PageSize: 1, Scope: "team"}, "[[03] [01] []]"},
		{"since", &mgmtv1.ListSnapshotsRequest{PageSize: 2,
			Since: timestamppb.New(at.Add(2 * time.Second))}, "[[now 04] [03 ed] [02]]"},
		{"since later", &mgmtv1.ListSnapshotsRequest{Source: "prod",
			Since: timestamppb.New(at.Add(2 * time.Hour))}, "[[]]"},
	} {
		want := strings.ReplaceAll(tt.want, "now", now)
		if got := fmt.Sprint(l.pages(tt.req)); got != want {
			t.Errorf("%s: %s, want %s", tt.name, got, want)
		}
	}
	for name, req := range map[string]*mgmtv1.ListSnapshotsRequest{
		"source": {Source: "nobody"}, "source in a scope": {Source: "nobody", Scope: "team"},
		"source of a time": {Source: "nobody", Since: timestamppb.Now()}, "token": {PageToken: "x"},
	} {
		resp, err := l.service.ListSnapshots(t.Context(), req)
		want := ReasonNotFound
		if name == "token" {
			want = ReasonUsage
		}
		if e := FromStatus(err); e == nil || e.Reason != want {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
}

// TestListSnapshotsEndsAPageBeforeItIsTooLarge for a client of gRPC, which takes 4 MiB.
func TestListSnapshotsEndsAPageBeforeItIsTooLarge(t *testing.T) {
	l := newLooker(t)
	taken := l.take(nil)
	for i := range 6 {
		e := taken.Envelope
		e.ID, e.Time = store.SnapshotID(fmt.Sprintf("%012x", i)), e.Time.Add(-time.Duration(i+1)*time.Second)
		for j := range 5000 {
			e.NotInCut = append(e.NotInCut, fmt.Sprintf("Kind%04d.%s", j, strings.Repeat("g", 150)))
		}
		if _, err := l.st.PutEnvelope(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	listed := 0
	for req := (&mgmtv1.ListSnapshotsRequest{}); ; {
		resp, err := l.service.ListSnapshots(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(resp); size > 4<<20 {
			t.Errorf("a page has %d bytes", size)
		}
		listed += len(resp.GetSnapshots())
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if listed != 7 {
		t.Errorf("%d snapshots are listed, want 7", listed)
	}
}

// TestListSnapshotsShowsPins also of an envelope that cannot be read any more.
func TestListSnapshotsShowsPins(t *testing.T) {
	l, _, _ := listFixture(t)
	keys, err := l.st.Snapshots(t.Context(), snapshottest.New("prod", 7, 1).UID)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys[:2] {
		if err := l.st.PutPin(t.Context(), key, "audit", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(l.st.String(), keys[0].String()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := l.service.ListSnapshots(t.Context(), &mgmtv1.ListSnapshotsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]mgmtv1.Trust{}
	for _, s := range resp.GetSnapshots() {
		if s.GetPinned() {
			pinned[s.GetKey()] = s.GetTrust()
		}
	}
	if len(pinned) != 2 || pinned[keys[0].String()] != mgmtv1.Trust_TRUST_DAMAGED ||
		pinned[keys[1].String()] != mgmtv1.Trust_TRUST_TRUSTED {
		t.Errorf("pinned: %v", pinned)
	}
}

// TestListSnapshotsWhileTheyComeAndGo: a page begins after the last snapshot of the page before,
// also when that one is gone.
func TestListSnapshotsWhileTheyComeAndGo(t *testing.T) {
	l, _, at := listFixture(t)
	first, err := l.service.ListSnapshots(t.Context(), &mgmtv1.ListSnapshotsRequest{PageSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	key, err := store.ParseEnvelopeKey(first.GetNextPageToken())
	if err != nil || !key.Time.Equal(at.Add(3*time.Second).Truncate(time.Millisecond)) {
		t.Fatalf("token of %v, %v", key, err)
	}
	l.take(nil)
	if err := l.st.RemoveSnapshot(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	rest := l.pages(&mgmtv1.ListSnapshotsRequest{PageToken: first.GetNextPageToken()})
	if got := slices.Concat(rest...); !slices.Equal(got, []string{"ed", "02", "01", "00"}) {
		t.Errorf("the next page is %q", got)
	}
}
