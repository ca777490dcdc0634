package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

var bucketEpochs = []byte("epochs")

// epochState is the highest epoch of the ownership record of a workload cluster that was seen in a
// store.
type epochState struct {
	Epoch int64 `json:"epoch"`
}

func (s epochState) check() error {
	if s.Epoch < 1 {
		return fmt.Errorf("epoch %d: must be above 0", s.Epoch)
	}
	return nil
}

// Epoch returns the highest epoch seen of the ownership record of a workload cluster in a store, 0
// when none was seen. It implements store.EpochMemory, with Epochs and RaiseEpochs.
func (c *Catalog) Epoch(ctx context.Context, storeID, workloadID string) (int64, error) {
	var state epochState
	err := c.view(ctx, func(tx *bolt.Tx) (err error) {
		state, err = getState[epochState](tx, bucketEpochs, epochKey(storeID, workloadID))
		return err
	})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return 0, fmt.Errorf("get epoch of workload cluster %s: %w", workloadID, err)
	}
	return state.Epoch, nil
}

// Epochs returns the highest epochs seen in a store, by id of the workload cluster.
func (c *Catalog) Epochs(ctx context.Context, storeID string) (map[string]int64, error) {
	epochs := map[string]int64{}
	prefix := []byte(epochKey(storeID, ""))
	err := c.view(ctx, func(tx *bolt.Tx) error {
		at := tx.Bucket(bucketEpochs).Cursor()
		for k, v := at.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = at.Next() {
			state, err := decode[epochState]("epochs", v)
			if err != nil {
				return err
			}
			epochs[string(k[len(prefix):])] = state.Epoch
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("get epochs of store %s: %w", storeID, err)
	}
	return epochs, nil
}

// RaiseEpochs records the epochs, by id of the workload cluster, that are higher than those seen
// before, and reports whether there was one. It writes nothing when there was none.
func (c *Catalog) RaiseEpochs(ctx context.Context, storeID string, epochs map[string]int64) (
	bool, error) {
	seen, err := c.Epochs(ctx, storeID)
	if err != nil {
		return false, err
	}
	raised := map[string]int64{}
	for id, epoch := range epochs {
		if err := checkKeyPart("workload cluster", id); err != nil {
			return false, err
		}
		if epoch > seen[id] {
			raised[id] = epoch
		}
	}
	if len(raised) == 0 {
		return false, nil
	}
	err = c.update(ctx, func(tx *bolt.Tx) error {
		for id, epoch := range raised {
			key := epochKey(storeID, id)
			state, err := getState[epochState](tx, bucketEpochs, key)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			if epoch > state.Epoch {
				if err := putState(tx, bucketEpochs, key, epochState{Epoch: epoch}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("raise epochs of store %s: %w", storeID, err)
	}
	return true, nil
}

func makeEpochs(tx *bolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(bucketEpochs)
	return err
}

func checkEpochs(tx *bolt.Tx, report func(error)) {
	report(tx.Bucket(bucketEpochs).ForEach(func(k, v []byte) error {
		_, err := decode[epochState]("epochs", v)
		if err == nil && bytes.Count(k, []byte("/")) != 1 {
			err = fmt.Errorf("epoch key %q: want store/workload cluster", k)
		}
		report(err)
		return nil
	}))
}
