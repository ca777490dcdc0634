package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// forgetCall is a call of ForgetOperations: the codes of its findings of severity error, and what
// was forgotten.
func forgetCall(t *testing.T, s *Server, force []string, refs ...string) (codes, gone []string) {
	t.Helper()
	resp, err := (&operationService{s: s}).ForgetOperations(t.Context(),
		&mgmtv1.ForgetOperationsRequest{Ids: refs, ForceCodes: force})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range resp.GetFindings() {
		if f.GetSeverity() >= mgmtv1.Severity_SEVERITY_ERROR {
			codes = append(codes, f.GetCode())
		}
	}
	for _, op := range resp.GetForgotten() {
		gone = append(gone, op.GetId())
	}
	slices.Sort(codes)
	return codes, gone
}

// wantForget compares the outcome of a call.
func wantForget(t *testing.T, s *Server, force, wantCodes []string, wantGone bool,
	ids ...catalog.OperationID) {
	t.Helper()
	var refs []string
	for _, id := range ids {
		refs = append(refs, string(id))
	}
	codes, gone := forgetCall(t, s, force, refs...)
	if !slices.Equal(codes, wantCodes) || (len(gone) > 0) != wantGone ||
		wantGone && !slices.Equal(gone, refs) {
		t.Errorf("forget %v with %v: findings %v, forgotten %v", refs, force, codes, gone)
	}
}

// runOn runs a step of an operation and leaves its unit and the operation in these states.
func runOn(t *testing.T, c *catalog.Catalog, op catalog.Operation, unit catalog.UnitState,
	end catalog.State) catalog.OperationID {
	t.Helper()
	op, err := c.CreateOperation(t.Context(), op)
	if err == nil {
		_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	}
	if err == nil {
		err = c.Journal(op.ID, catalog.JournalOptions{}).Do(t.Context(), catalog.Step{Unit: "team-a/web",
			Phase: "pause"}, func(_ context.Context, h *catalog.StepHandle) error { return h.SetUnit(unit) })
	}
	if err == nil && end != catalog.Running {
		_, err = c.SetState(t.Context(), op.ID, end, catalog.Outcome{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return op.ID
}

func TestForgetRefusesWhatIsRunningOrHasWorkLeft(t *testing.T) {
	s := New(Config{CatalogFile: t.TempDir() + "/c.db"})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { catalog.PostTestCheck(t, c) })
	restore := catalog.Operation{Kind: catalog.KindRestore, Store: "s", SnapshotID: "snap"}
	move := catalog.Operation{Kind: catalog.KindMove}
	done := runOn(t, c, restore, catalog.UnitReleased, catalog.Succeeded)
	paused := runOn(t, c, restore, catalog.UnitCopied, catalog.Failed)
	released := runOn(t, c, restore, catalog.UnitReleased, catalog.Failed)
	handed := runOn(t, c, move, catalog.UnitHandedOver, catalog.Stopped)
	running := runOn(t, c, move, catalog.UnitPaused, catalog.Running)

	if used, _ := c.SnapshotsInUse(t.Context(), "s"); len(used) != 2 ||
		used[string(paused)] != "snap" || used[string(released)] != "snap" {
		t.Errorf("in use: %v", used)
	}
	wantForget(t, s, nil, []string{"work-left"}, false, done, paused)
	wantForget(t, s, nil, nil, true, done)
	wantForget(t, s, nil, []string{"work-left"}, false, released)
	wantForget(t, s, []string{"work-left"}, nil, true, released)
	wantForget(t, s, []string{"work-left"}, []string{"not-retired"}, false, handed)
	wantForget(t, s, []string{"work-left", "not-retired"}, nil, true, handed)
	wantForget(t, s, []string{"work-left"}, nil, true, paused)
	if used, err := c.SnapshotsInUse(t.Context(), "s"); len(used) != 0 || err != nil {
		t.Errorf("still in use: %v, %v", used, err)
	}
	for _, force := range [][]string{nil, object.Forceable(object.Forgets)} {
		_, err := (&operationService{s: s}).ForgetOperations(t.Context(),
			&mgmtv1.ForgetOperationsRequest{Ids: []string{string(running)}, ForceCodes: force})
		if classify(err).Reason != ReasonLocked {
			t.Errorf("forget a running operation with %v: %v", force, err)
		}
	}
	left, err := c.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil || len(left) != 1 || left[0].ID != running {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestForgottenOperationEndsItsMirror: the snapshot is not in use any more, other hosts neither
// list nor import it, and a store that takes no records is a finding. It had failed, or was a
// restore that had released nothing.
func TestForgottenOperationEndsItsMirror(t *testing.T) {
	for name, fails := range map[string]error{"failed": errors.New("broken"), "unreleased": nil} {
		t.Run(name, func(t *testing.T) { testForgottenEndsItsMirror(t, fails) })
	}
}

func testForgottenEndsItsMirror(t *testing.T, fails error) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := newMirroredRun(t, c, st)
	if err := c.UpdateOperation(t.Context(), id, func(op *catalog.Operation) {
		op.SnapshotID, op.Unreleased = "1a2b3c4d5e6f", fails == nil
	}); err != nil {
		t.Fatal(err)
	}
	run, err := a.startMirrored(t.Context(), c, id, mirrorTo{store: st}, func(ctx context.Context,
		j *catalog.Journal) error {
		return errors.Join(doStep(ctx, j, "pause"), fails)
	})
	if err != nil || !errors.Is(run.Wait(), fails) {
		t.Fatal("the run did not end as it should", err)
	}
	if used, err := mirror.InUse(t.Context(), st); err != nil || len(used) != 1 {
		t.Errorf("in use before: %v, %v", used, err)
	}
	b, other, _ := m.host()
	marks := marksInputs{s: b, catalog: other, store: st}
	if known, err := marks.mirrored(t.Context()); err != nil || len(known) != 1 {
		t.Errorf("before it is forgotten a rollback from marks knows %v, %v", known, err)
	}
	key := a.cfg.Locations[0].Store.SigningKeyFile
	a.cfg.Locations[0].Store.SigningKeyFile = ""
	wantForget(t, a, []string{"work-left"}, []string{"mirror-open"}, false, id)
	a.cfg.Locations[0].Store.SigningKeyFile = key
	wantForget(t, a, []string{"work-left"}, nil, true, id)
	if known, err := marks.mirrored(t.Context()); err != nil || len(known) != 0 {
		t.Errorf("once it is forgotten a rollback from marks knows %v, %v", known, err)
	}

	if used, err := mirror.InUse(t.Context(), st); err != nil || len(used) != 0 {
		t.Errorf("in use after: %v, %v", used, err)
	}
	resp, err := (&operationService{s: b}).ListOperations(t.Context(),
		&mgmtv1.ListOperationsRequest{Mirrored: true})
	if err != nil || len(resp.GetOperations()) != 0 {
		t.Errorf("another host lists %v, %v", resp.GetOperations(), err)
	}
	_, err = (&catalogService{s: b}).RebuildCatalog(t.Context(),
		&mgmtv1.RebuildCatalogRequest{Identity: m.identity})
	ops, listErr := other.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil || listErr != nil || len(ops) != 0 {
		t.Errorf("another host imports %v, %v, %v", ops, err, listErr)
	}
}

// failedRun is an operation of a host that paused a workload cluster, and failed.
func (m *mirroredHosts) failedRun(s *Server, c *catalog.Catalog) catalog.OperationID {
	m.t.Helper()
	return m.mirrored(s, c, func(ctx context.Context, j *catalog.Journal) error {
		return errors.Join(doStep(ctx, j, "pause"), errors.New("broken"))
	})
}

// TestForgetLeavesTheOperationOfAnotherHost: what another host has taken over is forgotten here
// only, and what has no mirror any more needs no store.
func TestForgetLeavesTheOperationOfAnotherHost(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := m.failedRun(a, c)
	_, other := m.takeOver(id)
	before, err := mirror.Newest(t.Context(), st, id)
	if err != nil {
		t.Fatal(err)
	}
	wantForget(t, a, []string{"work-left"}, nil, true, id)
	after, err := mirror.Newest(t.Context(), st, id)
	if err != nil || after.Seq != before.Seq || after.Head.Final {
		t.Errorf("the mirror of the other host is %+v, was %+v, %v", after, before, err)
	}
	if left, err := other.HasWorkLeft(t.Context(), id); err != nil || !left {
		t.Errorf("the other host has work left: %t, %v", left, err)
	}

	removed := m.failedRun(a, c)
	folder := filepath.Join(st.String(), "operations", string(removed))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	wantForget(t, a, []string{"work-left"}, nil, true, removed)
	if _, err := os.Stat(folder); err == nil {
		t.Error("a mirror was made again")
	}
}

// TestForgetEndsNoMirrorOfARunningOperation: it was resumed after forget had found it stopped.
func TestForgetEndsNoMirrorOfARunningOperation(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	id := m.failedRun(a, c)
	op, err := c.SetState(t.Context(), id, catalog.Running, catalog.Outcome{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := mirror.Newest(t.Context(), st, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.forget(t.Context(), c, forgotten{op: op, workLeft: true, mirror: st}); err == nil {
		t.Error("a running operation was forgotten")
	}
	after, err := mirror.Newest(t.Context(), st, id)
	if err != nil || after.Seq != before.Seq {
		t.Errorf("the mirror was written: %+v, was %+v, %v", after, before, err)
	}
	if op, err := c.Operation(t.Context(), id); err != nil || op.GivenUp {
		t.Errorf("%+v, %v", op, err)
	}
}

// TestForgetContinuesAfterItDied: between any two of its writes; a second call ends what is left.
func TestForgetContinuesAfterItDied(t *testing.T) {
	m := newMirroredHosts(t)
	a, c, st := m.host()
	givenUp, ended := m.failedRun(a, c), m.failedRun(a, c)
	for _, id := range []catalog.OperationID{givenUp, ended} {
		if _, err := c.GiveUp(t.Context(), id, "given up"); err != nil {
			t.Fatal(err)
		}
	}
	op, err := c.Operation(t.Context(), ended)
	if err == nil {
		err = a.writeMirror(t.Context(), c, op, st)
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := mirror.Newest(t.Context(), st, ended)
	if err != nil {
		t.Fatal(err)
	}
	wantForget(t, a, nil, nil, true, givenUp, ended)
	if after, err := mirror.Newest(t.Context(), st, ended); err != nil || after.Seq != before.Seq {
		t.Errorf("an ended mirror was written again: %+v, was %+v, %v", after, before, err)
	}
	for _, id := range []catalog.OperationID{givenUp, ended} {
		if newest, err := mirror.Newest(t.Context(), st, id); err != nil || !newest.Head.Final {
			t.Errorf("the mirror of %s is %+v, %v", id, newest, err)
		}
	}
}
