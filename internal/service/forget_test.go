package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// oldSnapshot leaves a catalog with an operation that ended 31 days ago.
func oldSnapshot(t *testing.T, path string) catalog.OperationID {
	t.Helper()
	c, err := catalog.Open(t.Context(), path, catalog.Options{
		Now: func() time.Time { return time.Now().AddDate(0, 0, -31) }})
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindSnapshot})
	for _, state := range []catalog.State{catalog.Running, catalog.Succeeded} {
		if err == nil {
			_, err = c.SetState(t.Context(), op.ID, state, catalog.Outcome{})
		}
	}
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	return op.ID
}

// waitForgotten waits until the catalog has no such operation.
func waitForgotten(t *testing.T, s *Server, id catalog.OperationID) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := s.catalog.Operation(t.Context(), id); errors.Is(err, catalog.ErrNotFound) {
			return
		}
	}
	t.Errorf("operation %s is still there", id)
}

func TestDaemonForgetsOldOperationsWhenItStarts(t *testing.T) {
	cfg := Config{CatalogFile: t.TempDir() + "/c.db", Daemon: true,
		Log: slog.New(slog.DiscardHandler)}
	id := oldSnapshot(t, cfg.CatalogFile)
	s := New(cfg)
	if err := errors.Join(s.Open(t.Context()), s.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	waitForgotten(t, s, id)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestStandaloneForgetsOldOperationsWhenOneEnds(t *testing.T) {
	cfg := Config{CatalogFile: t.TempDir() + "/c.db"}
	id := oldSnapshot(t, cfg.CatalogFile)
	s := New(cfg)
	begin(t, s, catalog.KindSnapshot)
	s.Stop()
	s.Drain()
	waitForgotten(t, s, id)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDaemonForgetsOperationsAfter30Days(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := catalog.Open(t.Context(), t.TempDir()+"/c.db", catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindPrune})
		for _, state := range []catalog.State{catalog.Running, catalog.Failed} {
			if err == nil {
				_, err = c.SetState(t.Context(), op.ID, state, catalog.Outcome{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		s := New(Config{Daemon: true})
		go func() { defer close(done); s.forgetRegularly(ctx, c) }()
		time.Sleep(30 * 24 * time.Hour) // of the bubble's clock
		synctest.Wait()
		if _, err := c.Operation(t.Context(), op.ID); err != nil {
			t.Errorf("before 30 days have passed: %v", err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if _, err := c.Operation(t.Context(), op.ID); !errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("after 30 days: %v", err)
		}
		cancel()
		<-done
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
