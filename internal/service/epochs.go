package service

import (
	"context"
	"time"

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

// lastSeen returns the time of the newest snapshot of a source in the index of this host, in
// whichever store it is; zero when the host knows of none or has no catalog. A time ahead of the
// clock of this host does not count: the clock of a writer was wrong.
func (m epochMemory) lastSeen(ctx context.Context, source string) (time.Time, error) {
	c, err := m.catalog(ctx)
	if c == nil {
		return time.Time{}, err
	}
	list, err := c.Snapshots(ctx, catalog.SnapshotFilter{Source: source, NotAfter: time.Now(),
		Limit: 1})
	if err != nil || len(list) == 0 {
		return time.Time{}, err
	}
	return list[0].Time, nil
}
