package snapshot_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// TestObjectsWithTooManyReferencesAreLeftOut: everything else is in the snapshot, which names them
// and the unit that lacks them, and so does the next snapshot, which reads none of them again.
func TestObjectsWithTooManyReferencesAreLeftOut(t *testing.T) {
	c := newCrashed(t)
	source := &leased{Source: c.source}
	st := c.open(directory.New(c.dir + "/store"))
	db, err := catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	take := func(limit int) *snapshot.Result {
		t.Helper()
		o := source.Options(st)
		o.Source, o.State, o.ExactLimit = source, db.SnapshotState(st.ID(), source.UID), limit
		taken, err := snapshot.Create(t.Context(), o)
		if err != nil || taken.NotRemembered != nil {
			t.Fatalf("%v, %v", err, taken)
		}
		return taken
	}
	before := take(0)
	for i := range 12 {
		source.PutMachine("team-0", fmt.Sprint("many-", i), "w-0", 15_000)
	}
	source.PutMachine("team-0", "most", "w-0", capture.MaxReferences)
	for _, limit := range []int{0, -1, 0} {
		taken := take(limit)
		if taken.Counts.Objects != before.Counts.Objects+1 || len(taken.Omitted) != 12 ||
			taken.Omitted[0].Unit != "team-0/w-0" || taken.Omitted[0].Name != "many-0" {
			t.Fatalf("limit %d: %d objects after %d, omitted %v", limit, taken.Counts.Objects,
				before.Counts.Objects, taken.Omitted)
		}
		opened, err := snapshot.Open(t.Context(), st, taken.Envelope, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(opened.Omitted, taken.Omitted) {
			t.Errorf("limit %d: opened %v, omitted %v", limit, opened.Omitted, taken.Omitted)
		}
		if taken.Wrote > 1<<20 {
			t.Errorf("limit %d: %d bytes were written", limit, taken.Wrote)
		}
	}
}
