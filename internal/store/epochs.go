package store

import (
	"context"
	"fmt"
)

// EpochMemory remembers the highest epoch of each ownership record that a trusted key signed. A
// bucket cannot do that by itself: somebody with write access can put an old record back, which is
// as well signed as the newest one. A *catalog.Catalog is such a memory.
type EpochMemory interface {
	// Epoch returns the highest epoch seen of a workload cluster, 0 when none was.
	Epoch(ctx context.Context, storeID, workloadID string) (int64, error)
	// Epochs returns the highest epochs seen, by id of the workload cluster.
	Epochs(ctx context.Context, storeID string) (map[string]int64, error)
	// RaiseEpochs records epochs that are higher than those seen before, and ignores the others.
	// It reports whether there was one.
	RaiseEpochs(ctx context.Context, storeID string, epochs map[string]int64) (raised bool, err error)
}

func (s *Store) seenEpoch(ctx context.Context, workloadID string) (int64, error) {
	if s.epochs == nil {
		return 0, nil
	}
	return s.epochs.Epoch(ctx, s.ID(), workloadID)
}

func (s *Store) seenEpochs(ctx context.Context) (map[string]int64, error) {
	if s.epochs == nil {
		return nil, nil
	}
	return s.epochs.Epochs(ctx, s.ID())
}

// remember records the epochs of records that a trusted key signed. What a plain store accepts
// without a signature is not remembered: anybody could have written any epoch.
func (s *Store) remember(ctx context.Context, owners ...SignedOwner) error {
	epochs := map[string]int64{}
	for _, o := range owners {
		if o.Trust == Trusted && s.Vouches(o) {
			epochs[o.WorkloadID] = o.Epoch
		}
	}
	if s.epochs == nil || len(epochs) == 0 {
		return nil
	}
	if _, err := s.epochs.RaiseEpochs(ctx, s.ID(), epochs); err != nil {
		return fmt.Errorf("remember epochs: %w", err)
	}
	return nil
}
