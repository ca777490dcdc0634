package service

import (
	"context"
	"errors"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

const (
	// forgetAge and forgetBeyond limit the history in the catalog: a schedule of every 30 seconds
	// makes 10,000 operations in less than four days, a daily one 30 in a month. Restores and moves
	// are forgotten by age alone.
	forgetAge    = 30 * 24 * time.Hour
	forgetBeyond = 10_000
	// forgetEvery is short enough that the catalog does not grow much in between.
	forgetEvery = time.Hour
)

// forgetRegularly deletes old operations from the catalog until the context ends.
func (s *Server) forgetRegularly(ctx context.Context, c *catalog.Catalog) {
	ticker := time.NewTicker(forgetEvery)
	defer ticker.Stop()
	for {
		s.forgetOperations(ctx, c)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// forgetOperations deletes operations that ended long ago, and the oldest of too many. The history
// is a convenience: an error is only logged.
func (s *Server) forgetOperations(ctx context.Context, c *catalog.Catalog) {
	n, err := c.ForgetOperations(ctx, time.Now().Add(-forgetAge), forgetBeyond)
	if err != nil && ctx.Err() == nil && !errors.Is(err, catalog.ErrClosed) {
		s.cfg.Log.Warn("forget old operations", "error", err)
	}
	if n > 0 {
		s.cfg.Log.Info("forgot old operations", "operations", n)
	}
}
