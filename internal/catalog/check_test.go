package catalog

import (
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestCheckDoesNotWaitForWriters: nor they for it, so that a daemon goes on meanwhile.
func TestCheckDoesNotWaitForWriters(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(t.Context(), filepath.Join(dir, "catalog.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateOperation(t.Context(), Operation{Kind: KindVerify}); err != nil {
		t.Fatal(err)
	}
	writing, err := c.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan []error, 1)
	go func() { done <- c.Check(t.Context()) }()
	select {
	case problems := <-done:
		if len(problems) > 0 {
			t.Error(problems)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the end of a writing transaction")
	}
	if err := writing.Rollback(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCheckFindsNothingWrongWhileOthersWrite: it reads the file as of one transaction.
func TestCheckFindsNothingWrongWhileOthersWrite(t *testing.T) {
	c, err := Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.CreateOperation(t.Context(), Operation{Kind: KindVerify}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20 {
		if problems := c.Check(t.Context()); len(problems) > 0 {
			t.Errorf("%d problems, such as %v", len(problems), problems[0])
			break
		}
	}
	close(stop)
	writers.Wait()
}
