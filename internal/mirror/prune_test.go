package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// TestPruneRemovesOnlyOldOperationsThatEndedForGood: an unfinished one, and a restore that is not
// released, stays, however old, and protects its snapshot.
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
	j := a.begin("")
	must(t, a.c.UpdateOperation(t.Context(), j.Operation(), func(op *catalog.Operation) {
		op.SnapshotID, op.Unreleased = "snapshot-unreleased", true
	}))
	must(t, a.do(j, "create"))
	a.end(j, catalog.Succeeded)
	unreleased := j.Operation()
	if n, err := Prune(t.Context(), a.st, time.Now().Add(Retention-time.Hour)); n != 0 || err != nil {
		t.Errorf("removed %d records before their time, %v", n, err)
	}
	used, err := InUse(t.Context(), a.st)
	must(t, err)
	if diff := cmp.Diff(map[string]store.SnapshotID{
		string(ids[catalog.Failed]):  "snapshot-failed",
		string(ids[catalog.Stopped]): "snapshot-stopped",
		string(unreleased):           "snapshot-unreleased"}, used); diff != "" {
		t.Errorf("in use (-want +got):\n%s", diff)
	}
	if n, err := Prune(t.Context(), a.st, time.Now().Add(Retention+time.Hour)); n == 0 || err != nil {
		t.Errorf("removed %d records, %v", n, err)
	}
	left, err := List(t.Context(), a.st)
	must(t, err)
	if len(left) != 3 || left[0].ID != unreleased || left[1].ID != ids[catalog.Stopped] ||
		left[2].ID != ids[catalog.Failed] {
		t.Errorf("left %+v", left)
	}
}

// TestRecordThatCannotBeReadProtectsTheSnapshotNevertheless: the newest record may be damaged, or
// signed by a key that only another host trusts. The one before it has the snapshot as well.
func TestRecordThatCannotBeReadProtectsTheSnapshotNevertheless(t *testing.T) {
	f := newFixture(t)
	a := f.host("a")
	j := a.begin("")
	must(t, a.c.UpdateOperation(t.Context(), j.Operation(), func(op *catalog.Operation) {
		op.SnapshotID = "snapshot"
	}))
	must(t, a.do(j, "release"))
	must(t, a.do(j, "post-flight"))
	a.end(j, catalog.Stopped)
	keys, err := a.st.OperationRecords(t.Context(), string(j.Operation()))
	must(t, err)
	newest := filepath.Join(f.dir, keys[len(keys)-1].String())
	must(t, os.WriteFile(newest, []byte("damaged\n"), 0o600))
	used, err := InUse(t.Context(), a.st)
	must(t, err)
	if used[string(j.Operation())] != "snapshot" {
		t.Errorf("in use: %v", used)
	}
	must(t, a.bucket.Delete(t.Context(), keys[0].String()))
	if used, err = InUse(t.Context(), a.st); err != nil || len(used) != 0 {
		t.Errorf("no record can be read: %v, %v", used, err)
	}
}

// TestInUseFailsWhereTheStorageRefusesARecord: it may say that a snapshot is in use. An operation
// whose record can be read is in use before it names a snapshot.
func TestInUseFailsWhereTheStorageRefusesARecord(t *testing.T) {
	a := newFixture(t).host("a")
	j := a.begin("")
	must(t, a.do(j, "release"))
	used, err := InUse(t.Context(), a.st)
	if _, needs := used[string(j.Operation())]; err != nil || !needs {
		t.Errorf("an operation that names no snapshot yet is not among %v, %v", used, err)
	}
	a.bucket.hidden = &bucket.Error{Op: "get", Class: bucket.ErrDenied, Err: errors.New("403")}
	if used, err := InUse(t.Context(), a.st); !errors.Is(err, store.ErrDenied) {
		t.Errorf("in use: %v, %v", used, err)
	}
	a.bucket.hidden = nil
	a.end(j, catalog.Stopped)
}
