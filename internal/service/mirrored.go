package service

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// runMirror is the mirror of a run; nil for an operation that has none.
type runMirror struct{ mirror *mirror.Mirror }

func (m *runMirror) journal() catalog.JournalOptions {
	if m == nil {
		return catalog.JournalOptions{}
	}
	return m.mirror.Journal()
}

func (m *runMirror) close(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return m.mirror.Close(ctx)
}

// beginMirror begins the mirror of the next run of an operation. When another host takes over, it
// ends that run.
func (s *Server) beginMirror(ctx context.Context, c *catalog.Catalog, id catalog.OperationID,
	st *store.Store) (*runMirror, error) {
	if st == nil {
		return nil, nil
	}
	m, err := mirror.Begin(ctx, id, mirror.Options{
		Catalog: c, Store: st,
		Lost: func(fenced *mirror.FencedError) {
			s.runs.mu.Lock()
			defer s.runs.mu.Unlock()
			if cancel := s.runs.stop[id]; cancel != nil {
				cancel(fenced)
			}
		},
		Unable: func(err error) {
			j := c.Journal(id, catalog.JournalOptions{})
			if err := j.EmitFindings(s.ctx, []object.Finding{mirror.Finding(err)}); err != nil {
				s.cfg.Log.Warn("record that the operation has no mirror", "operation", id, "error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return &runMirror{m}, nil
}
