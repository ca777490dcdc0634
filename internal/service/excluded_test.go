package service

import (
	"context"
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// TestNoRestoreOrMoveBesideARollback: one could release what the other removes. Two restores side
// by side are allowed; a rollback waits for both.
func TestNoRestoreOrMoveBesideARollback(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		name          string
		kind          catalog.Kind
		back, running bool
		target        string
		begin, undo   bool // whether they are refused
	}{
		{"restore", catalog.KindRestore, false, true, "next", false, true},
		{"rollback of a restore", catalog.KindRestore, true, true, "next", true, true},
		{"rollback of a move", catalog.KindMove, true, true, "next", true, true},
		{"move", catalog.KindMove, false, true, "next", false, true},
		{"rollback elsewhere", catalog.KindRestore, true, true, "third", false, false},
		{"rollback that ended", catalog.KindRestore, true, false, "next", false, false},
		{"snapshot", catalog.KindSnapshot, false, true, "next", false, false},
	} {
		c, err := catalog.Open(ctx, t.TempDir()+"/c.db", catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		op, err := c.CreateOperation(ctx, catalog.Operation{Kind: tt.kind,
			Source: catalog.Side{UID: "prod"}, Target: catalog.Side{UID: tt.target}})
		if err == nil {
			_, err = c.SetState(ctx, op.ID, catalog.Running, catalog.Outcome{})
		}
		err = errors.Join(err, c.UpdateOperation(ctx, op.ID, func(op *catalog.Operation) {
			op.Back = tt.back
		}))
		if !tt.running {
			_, stopErr := c.SetState(ctx, op.ID, catalog.Stopped, catalog.Outcome{})
			err = errors.Join(err, stopErr)
		}
		if err != nil {
			t.Fatal(err)
		}
		for back, want := range map[bool]bool{true: tt.begin, false: tt.undo} {
			self := catalog.Operation{Kind: catalog.KindRestore}
			err := excluded{self: self, on: []string{"next"}, forward: back}.check(ctx, c)
			if refused := ExitCode(err) == ExitHeld; refused != want || !refused && err != nil {
				t.Errorf("%s: refused %v (only rollbacks count: %v): %v", tt.name, refused, back, err)
			}
		}
		if err := (excluded{self: op, on: []string{"next"}}).check(ctx, c); err != nil {
			t.Errorf("%s: refused by itself: %v", tt.name, err)
		}
		move := catalog.Operation{Kind: catalog.KindMove}
		err = excluded{self: move, on: []string{"next"}, forward: true}.check(ctx, c)
		if (err != nil) != (tt.begin && tt.kind == catalog.KindRestore) {
			t.Errorf("%s: a move beside it: %v", tt.name, err)
		}
	}
}

// TestRunThatIsExcludedDoesNotBegin: both were prepared while none ran.
func TestRunThatIsExcludedDoesNotBegin(t *testing.T) {
	m := newMirroredHosts(t)
	s, c, st := m.host()
	others := excluded{self: catalog.Operation{Kind: catalog.KindRestore}, on: []string{"next"}}
	begin := func(run func(context.Context, *catalog.Journal) error) (*operationRun, error) {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore,
			Target: catalog.Side{UID: "next"}})
		if err != nil {
			t.Fatal(err)
		}
		return s.startMirrored(t.Context(), c, op.ID, mirrorTo{store: st, others: others}, run)
	}
	end := make(chan struct{})
	first, err := begin(func(context.Context, *catalog.Journal) error {
		<-end
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = begin(func(context.Context, *catalog.Journal) error {
		t.Error("it runs beside the first one")
		return nil
	})
	if ExitCode(err) != ExitHeld {
		t.Errorf("beside the first one: %v", err)
	}
	failed, err := c.Operations(t.Context(), catalog.OperationFilter{Limit: 1})
	if err != nil || failed[0].State != catalog.Failed || failed[0].Code != string(ReasonLocked) {
		t.Errorf("it is %+v, %v", failed, err)
	}
	close(end)
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	again, err := begin(func(context.Context, *catalog.Journal) error { return nil })
	if err != nil || again.Wait() != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestADaemonResumesOnlyWhatIsAsItWas: while it waits for a side, an operator may begin a rollback
// that fails, or import what another host has done.
func TestADaemonResumesOnlyWhatIsAsItWas(t *testing.T) {
	m := newMirroredHosts(t)
	s, c, st := m.host()
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		changes func(id catalog.OperationID) error
		refused bool
	}{
		"as it was": {func(catalog.OperationID) error { return nil }, false},
		"turned back": {func(id catalog.OperationID) error {
			return c.UpdateOperation(t.Context(), id, func(op *catalog.Operation) { op.Back = true })
		}, true},
		"imported": {func(id catalog.OperationID) error {
			_, err := c.SetState(t.Context(), id, catalog.Stopped,
				catalog.Outcome{Cause: catalog.StopElsewhere})
			return err
		}, true},
	} {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove})
		try(err)
		_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
		try(err)
		self, err := c.SetState(t.Context(), op.ID, catalog.Stopped,
			catalog.Outcome{Cause: catalog.StopDaemonEnded})
		try(err)
		try(tt.changes(op.ID))
		run, err := s.startMirrored(t.Context(), c, op.ID, mirrorTo{store: st,
			others: excluded{self: self, byItself: true}},
			func(context.Context, *catalog.Journal) error { return nil })
		if refused := err != nil && classify(err).Reason == ReasonIncomplete; refused != tt.refused {
			t.Errorf("%s: refused %t: %v", name, refused, err)
		}
		if err == nil {
			try(run.Wait())
		}
	}
}
