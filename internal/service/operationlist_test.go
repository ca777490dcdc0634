package service

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// readPages lists operations page by page and returns the ids, and how many pages there were.
func readPages(t *testing.T, s *Server, req *mgmtv1.ListOperationsRequest) (ids []string, pages int) {
	t.Helper()
	for {
		resp, err := (&operationService{s: s}).ListOperations(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range resp.GetOperations() {
			ids = append(ids, op.GetId())
		}
		pages++
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return ids, pages
		}
	}
}

// TestPagesOfOperationsHaveEachOnce: of the catalog, and those that only a mirror has, which are in
// the page of their time.
func TestPagesOfOperationsHaveEachOnce(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	b, other, _ := m.host()
	var want []string
	create := func(c *catalog.Catalog, kind catalog.Kind) {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(op.ID))
	}
	// ids order by sixteenths of a second, and these are of one: those of a mirror come in between
	// because each id follows the last of its catalog.
	for range 3 {
		create(other, catalog.KindSnapshot)
	}
	id := newMirroredRun(t, c, st)
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		return doStep(ctx, j, "pause")
	})
	if err != nil || run.Wait() != nil {
		t.Fatal(err)
	}
	want = append(want, string(id))
	for range 3 {
		create(other, catalog.KindVerify)
	}
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(b, a) })
	for _, size := range []int32{1, 2, 3, 6, 7, 0} {
		got, pages := readPages(t, b, &mgmtv1.ListOperationsRequest{PageSize: size, Mirrored: true})
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", size, got, want)
		}
		if wantPages := map[int32]int{1: 6, 2: 3, 3: 2, 6: 1, 7: 1, 0: 1}[size]; pages != wantPages {
			t.Errorf("%d pages of %d, want %d", pages, size, wantPages)
		}
	}
	got, _ := readPages(t, b, &mgmtv1.ListOperationsRequest{PageSize: 2, Mirrored: true,
		Kinds: []string{"move", "verify"}})
	if len(got) != 4 || !slices.Contains(got, string(id)) {
		t.Errorf("moves and verifies: %v", got)
	}
	for _, req := range []*mgmtv1.ListOperationsRequest{{PageToken: "x"}, {Kinds: []string{"x"}},
		{States: []mgmtv1.OperationState{mgmtv1.OperationState_OPERATION_STATE_UNKNOWN}}} {
		_, err := (&operationService{s: b}).ListOperations(t.Context(), req)
		if classify(err).Reason != ReasonUsage {
			t.Errorf("list %v: %v", req, err)
		}
	}
}

// TestPageOfLargeOperationsEndsEarly: an answer must not grow past what clients accept.
func TestPageOfLargeOperationsEndsEarly(t *testing.T) {
	s := New(Config{CatalogFile: t.TempDir() + "/c.db"})
	t.Cleanup(func() { _ = s.Close() })
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]catalog.UnitState{}
	for i := range 3000 {
		units["team/"+strings.Repeat("x", 1000)+string(rune('a'+i%26))+strings.Repeat("y", i/26)] =
			catalog.UnitPending
	}
	for range 5 {
		if _, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove,
			Units: units}); err != nil {
			t.Fatal(err)
		}
	}
	if ids, pages := readPages(t, s, &mgmtv1.ListOperationsRequest{}); len(ids) != 5 || pages != 2 {
		t.Errorf("%d operations in %d pages", len(ids), pages)
	}
}

// TestLatestIsTheNewestOfSomeKinds: a daemon takes snapshots while a move waits for its operator,
// and other moves were refused, or stopped, in pre-flight since. To accept one of its workload
// clusters, to resume it and to roll it back, latest is the first move.
func TestLatestIsTheNewestOfSomeKinds(t *testing.T) {
	s, c, _ := newMirroredHosts(t).host()
	service := &operationService{s: s}
	ids := map[catalog.Kind]string{}
	for _, kind := range []catalog.Kind{catalog.KindRestore, catalog.KindMove, catalog.KindSnapshot} {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		ids[kind] = string(op.ID)
	}
	for _, states := range [][]catalog.State{{catalog.Failed}, {catalog.Running, catalog.Stopped}} {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove})
		for _, state := range states {
			if err == nil {
				_, err = c.SetState(t.Context(), op.ID, state, catalog.Outcome{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		ids["newest"] = string(op.ID)
	}
	for _, tt := range []struct {
		kinds []string
		want  catalog.Kind
	}{{nil, "newest"}, {[]string{"move", "restore"}, catalog.KindMove},
		{[]string{"restore"}, catalog.KindRestore}} {
		resp, err := service.GetOperation(t.Context(), &mgmtv1.GetOperationRequest{Id: latest,
			Kinds: tt.kinds})
		if err != nil || resp.GetOperation().GetId() != ids[tt.want] {
			t.Errorf("of %v latest is %s, %v, want %s", tt.kinds, resp.GetOperation().GetId(), err,
				ids[tt.want])
		}
	}
	_, err := service.GetOperation(t.Context(), &mgmtv1.GetOperationRequest{Id: latest,
		Kinds: []string{"prune"}})
	if err == nil || !strings.Contains(err.Error(), "the catalog has none of kind prune") {
		t.Errorf("of no such kind latest is %v", err)
	}
	if op, err := s.currentOperation(t.Context(), c, latest, nil); err != nil ||
		string(op.ID) != ids[catalog.KindMove] {
		t.Errorf("a resume goes on with %s %s, %v", op.Kind, op.ID, err)
	}
	_, err = service.AcceptUnit(t.Context(), &mgmtv1.AcceptUnitRequest{Id: latest, Unit: "a/b"})
	if err == nil || !strings.Contains(err.Error(), ids[catalog.KindMove]) {
		t.Errorf("a unit of another operation than the move is accepted: %v", err)
	}
}
