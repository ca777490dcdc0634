package mirror

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
)

// TestPruneRemovesOnlyOldOperationsThatEndedForGood: an unfinished one stays, however old, and
// protects its snapshot.
func TestPruneRemovesOnlyOldOperationsThatEndedForGood(t *testing.T) {
	a := newFixture(t).host("a")
	ids := map[catalog.State]catalog.OperationID{}
	for _, state := range []catalog.State{catalog.Succeeded, catalog.RolledBack, catalog.Failed,
		catalog.Stopped} {
		j := a.begin("")
		must(t, a.c.UpdateOperation(t.Context(), j.Operation(), func(op *catalog.Operation) {
			op.SnapshotID = "snapshot-" + string(state)
		}))
		must(t, a.do(j, "release"))
		a.end(j, state)
		ids[state] = j.Operation()
	}
	if n, err := Prune(t.Context(), a.st, time.Now().Add(Retention-time.Hour)); n != 0 || err != nil {
		t.Errorf("removed %d records before their time, %v", n, err)
	}
	used, err := InUse(t.Context(), a.st)
	must(t, err)
	if diff := cmp.Diff(map[store.SnapshotID]string{"snapshot-failed": string(ids[catalog.Failed]),
		"snapshot-stopped": string(ids[catalog.Stopped])}, used); diff != "" {
		t.Errorf("in use (-want +got):\n%s", diff)
	}
	if n, err := Prune(t.Context(), a.st, time.Now().Add(Retention+time.Hour)); n == 0 || err != nil {
		t.Errorf("removed %d records, %v", n, err)
	}
	left, err := List(t.Context(), a.st)
	must(t, err)
	if len(left) != 2 || left[0].ID != ids[catalog.Stopped] || left[1].ID != ids[catalog.Failed] {
		t.Errorf("left %+v", left)
	}
}
