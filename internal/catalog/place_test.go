package catalog

import (
	"errors"
	"testing"
)

// TestPlace: what was recorded last is at a place.
func TestPlace(t *testing.T) {
	c := openTest(t)
	if _, err := c.Place(t.Context(), "s3://bucket/folder"); !errors.Is(err, ErrNotFound) {
		t.Errorf("before anything was recorded: %v", err)
	}
	for _, want := range []Place{{StoreID: "a"}, {StoreID: "b", Origin: "a"}, {StoreID: "c"}} {
		if err := c.PutPlace(t.Context(), "s3://bucket/folder", want); err != nil {
			t.Fatal(err)
		}
		got, err := c.Place(t.Context(), "s3://bucket/folder")
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if err := c.PutPlace(t.Context(), "elsewhere", Place{}); err == nil {
		t.Error("a place without a store is recorded")
	}
}
