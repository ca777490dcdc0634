package move

import (
	"path/filepath"
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
)

// newJournal returns the journal of a move that runs, and its catalog.
func newJournal(t *testing.T, o catalog.Options) (*catalog.Catalog, *catalog.Journal) {
	t.Helper()
	c, err := catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindMove})
	if err == nil {
		_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, c.Journal(op.ID, catalog.JournalOptions{})
}

// findingsOf returns the findings in the history of a move.
func findingsOf(t *testing.T, c *catalog.Catalog, j *catalog.Journal) (found []object.Finding) {
	t.Helper()
	for e, err := range c.Events(t.Context(), j.Operation(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Finding != nil {
			found = append(found, *e.Finding)
		}
	}
	return found
}
