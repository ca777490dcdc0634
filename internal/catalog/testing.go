package catalog

import (
	"context"
	"testing"
)

// PostTestCheck fails the test for everything that Check finds. Call it at the end of every test
// that opened a catalog, before Close.
func PostTestCheck(t testing.TB, c *Catalog) {
	t.Helper()
	// The context of a test has ended when its cleanups run.
	for _, err := range c.Check(context.WithoutCancel(t.Context())) {
		t.Errorf("check catalog: %v", err)
	}
}
