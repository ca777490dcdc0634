package service

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// epochMemory remembers epochs of ownership records in the catalog. It opens the catalog when a
// record is read, not with the store: most requests read none. While another process holds the
// catalog, it remembers nothing; only such calls do without that change nothing.
type epochMemory struct{ s *Server }

var _ store.EpochMemory = epochMemory{}

func (m epochMemory) catalog(ctx context.Context) (*catalog.Catalog, error) {
	c, err := m.s.openCatalog(ctx)
	if as[*catalog.LockedError](err) {
		return nil, nil
	}
	return c, err
}

// Epoch implements store.EpochMemory.
func (m epochMemory) Epoch(ctx context.Context, storeID, workloadID string) (int64, error) {
	c, err := m.catalog(ctx)
	if c == nil {
		return 0, err
	}
	return c.Epoch(ctx, storeID, workloadID)
}

// Epochs implements store.EpochMemory.
func (m epochMemory) Epochs(ctx context.Context, storeID string) (map[string]int64, error) {
	c, err := m.catalog(ctx)
	if c == nil {
		return nil, err
	}
	return c.Epochs(ctx, storeID)
}

// RaiseEpochs implements store.EpochMemory.
func (m epochMemory) RaiseEpochs(ctx context.Context, storeID string,
	epochs map[string]int64) (bool, error) {
	c, err := m.catalog(ctx)
	if c == nil {
		return false, err
	}
	raised, err := c.RaiseEpochs(ctx, storeID, epochs)
	if raised {
		m.s.fences.outdate()
	}
	return raised, err
}
