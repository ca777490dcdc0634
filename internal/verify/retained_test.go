package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// TestVerifyReportsUntilWhenTheStorageRetainsASnapshot: the result has the earliest time of all
// keys, and a key that is retained for less than was asked for is a warning.
func TestVerifyReportsUntilWhenTheStorageRetainsASnapshot(t *testing.T) {
	f := newFixture(t)
	b := faultbucket.NewVersioned()
	b.RetainFor = 24 * time.Hour
	var err error
	if f.store, err = store.Open(t.Context(), store.Options{Bucket: b, Plain: true,
		Create: true}); err != nil {
		t.Fatal(err)
	}
	e := f.take()
	r := f.run(f.options(e, store.LevelStructure))
	if time.Until(r.Retained.Until) < 23*time.Hour || r.Retained.Short != 0 || r.Err() != nil {
		t.Errorf("retained %+v, %v", r.Retained, r.Err())
	}
	b.Unlock(b.Keys("packs/")[0])
	r = f.run(f.options(e, store.LevelStructure))
	var found []object.Finding
	for _, finding := range r.Findings {
		if finding.Code == object.CodeRetainedShort {
			found = append(found, finding)
		}
	}
	if !r.Retained.Until.IsZero() || len(found) != 1 || found[0].Severity != object.Warning ||
		!strings.Contains(found[0].Message, "packs/") || r.Err() != nil {
		t.Errorf("retained %+v, findings %v, %v", r.Retained, found, r.Err())
	}
}
