//go:build api

package move_test

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// crashes makes the matrix from the steps of three operations: a move, the move back, and the
// rollback of a move that was killed before its hand-over.
func crashes(t *testing.T, fx *fixture) []crash {
	t.Helper()
	there := fx.follow(t, doMove, nil, catalog.Succeeded)
	backAgain := fx.follow(t, doMove, nil, catalog.Succeeded)
	undone := fx.follow(t, doRollback, &notHandedOver, catalog.RolledBack)
	returned := fx.followReturned(t)
	return matrixOf(there, backAgain, undone, returned)
}
