// Package preflight has the runner of all checks that are made before something changes, and the
// checks that several flows share. A restore, a move and the check of one management cluster each
// have one table of rows; adding a check is adding a row.
//
// Checks read, and report findings. They never change anything (invariant I7).
package preflight

import (
	"context"
	"fmt"
)

// Check is a row of a table of checks. Run reports findings through on; its error means that the
// check could not be carried out.
type Check[T any] struct {
	Name string
	Run  func(ctx context.Context, on T) error
}

// Run carries out the checks of a table in order. A finding never prevents the next check from
// running, so that all findings come at once; an error does.
func Run[T any](ctx context.Context, table []Check[T], on T) error {
	for _, c := range table {
		if err := c.Run(ctx, on); err != nil {
			return fmt.Errorf("check %s: %w", c.Name, err)
		}
	}
	return nil
}
