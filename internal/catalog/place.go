package catalog

import (
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

var bucketPlaces = []byte("places")

// Place is which store was found at a place, such as a folder of a bucket.
type Place struct {
	StoreID string `json:"storeID"`
	// Origin is the id of the store that it is a copy of; empty when it is no copy.
	Origin string `json:"origin,omitempty"`
}

func (p Place) check() error {
	if p.StoreID == "" {
		return errors.New("store id: must not be empty")
	}
	return nil
}

// Place returns which store was found at a place. ErrNotFound when none was.
func (c *Catalog) Place(ctx context.Context, place string) (p Place, err error) {
	err = c.view(ctx, func(tx *bolt.Tx) (err error) {
		p, err = getState[Place](tx, bucketPlaces, place)
		return err
	})
	if err != nil {
		return Place{}, fmt.Errorf("get the store at %s: %w", place, err)
	}
	return p, nil
}

// PutPlace records which store is at a place, instead of what was recorded before. It may run
// twice.
func (c *Catalog) PutPlace(ctx context.Context, place string, p Place) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("put the store at %s: %w", place, err)
	}
	err := c.update(ctx, func(tx *bolt.Tx) error { return putState(tx, bucketPlaces, place, p) })
	if err != nil {
		return fmt.Errorf("put the store at %s: %w", place, err)
	}
	return nil
}

func makePlaces(tx *bolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(bucketPlaces)
	return err
}

func checkPlaces(tx *bolt.Tx, report func(error)) {
	report(tx.Bucket(bucketPlaces).ForEach(func(_, v []byte) error {
		_, err := decode[Place]("place", v)
		report(err)
		return nil
	}))
}
