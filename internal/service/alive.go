package service

import (
	"context"
	"errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// Alive returns nil when the locks of the server can be had and its catalog answers. It does not
// return while one of them hangs.
func (s *Server) Alive(ctx context.Context) error {
	s.runs.mu.Lock()
	running := len(s.runs.stop)
	s.runs.mu.Unlock()
	c, err := s.openCatalog(ctx)
	if err != nil {
		return err
	}
	s.cfg.Log.Debug("alive", "operations", running)
	if _, err := c.VerifyState(ctx, "alive"); !errors.Is(err, catalog.ErrNotFound) {
		return err
	}
	return nil
}
