package mirror

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
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
	a.bucket.hidden = &bucket.Error{Op: "get", Class: bucket.ErrNotFound}
	if used, err := InUse(t.Context(), a.st); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("a record is listed and not found: %v, %v", used, err)
	}
	a.bucket.hidden = nil
	a.end(j, catalog.Stopped)
}

// TestHiddenRecordsProtectTheirSnapshot: somebody hides the records of an operation, the newest
// ones first, with delete markers or by writing over them. What is shown counts nevertheless, and
// an operation whose newest record says that it ended for good needs nothing.
func TestHiddenRecordsProtectTheirSnapshot(t *testing.T) {
	for how, hide := range map[string]func(b *faultbucket.Versioned, key string){
		"a marker": (*faultbucket.Versioned).Hide,
		"junk":     func(b *faultbucket.Versioned, key string) { b.Overwrite(key, []byte("junk\n")) },
		"junk below a marker": func(b *faultbucket.Versioned, key string) {
			b.Overwrite(key, []byte("junk\n"))
			b.Hide(key)
		},
	} {
		b := faultbucket.NewVersioned()
		a := newFixture(t).hostIn("a", b)
		ids := map[catalog.State]string{}
		for _, state := range []catalog.State{catalog.Stopped, catalog.Succeeded} {
			j := a.begin("")
			must(t, a.c.UpdateOperation(t.Context(), j.Operation(), func(op *catalog.Operation) {
				op.SnapshotID = "snapshot-" + string(state)
			}))
			must(t, a.do(j, "release"))
			a.end(j, state)
			ids[state] = string(j.Operation())
		}
		used := func() map[string]store.SnapshotID {
			shown, err := InUse(t.Context(), a.st)
			must(t, err)
			hidden, err := HiddenInUse(t.Context(), a.st)
			must(t, err)
			maps.Copy(shown, hidden)
			return shown
		}
		stopped := b.Keys("operations/" + ids[catalog.Stopped] + "/")
		ended := b.Keys("operations/" + ids[catalog.Succeeded] + "/")
		if len(stopped) < 2 || len(ended) < 2 {
			t.Fatalf("too few records: %v, %v", stopped, ended)
		}
		want := map[string]store.SnapshotID{ids[catalog.Stopped]: "snapshot-stopped"}
		for i, key := range slices.Concat([]string{""}, reversed(stopped), reversed(ended)) {
			if key != "" {
				hide(b, key)
			}
			got := used()
			delete(got, ids[catalog.Succeeded]) // while an earlier record is shown
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s over %d records, the last one %s (-want +got):\n%s", how, i, key, diff)
			}
		}
		if diff := cmp.Diff(want, used()); diff != "" {
			t.Errorf("%s over all records (-want +got):\n%s", how, diff)
		}
	}
}

// TestAPruneRemovesHiddenRecordsAsWell: otherwise what is left of an operation would say for ever
// that it has not ended. A file of a plain store, which is not this one, stays.
func TestAPruneRemovesHiddenRecordsAsWell(t *testing.T) {
	b := faultbucket.NewVersioned()
	a := newFixture(t).hostIn("a", b)
	j := a.begin("")
	must(t, a.do(j, "release"))
	must(t, a.do(j, "post-flight"))
	a.end(j, catalog.Succeeded)
	b.Hide(b.Keys("operations/")[0])
	other := "operations/" + string(j.Operation()) + "/00000002.json.zst"
	b.Overwrite(other, []byte("junk\n"))
	b.Hide(other)
	_, err := Prune(t.Context(), a.st, time.Now().Add(Retention+time.Hour))
	must(t, err)
	var left []string
	must(t, b.ListVersions(t.Context(), "operations/", func(key string, _ []bucket.Version) error {
		left = append(left, key)
		return nil
	}))
	if !slices.Equal(left, []string{other}) {
		t.Errorf("left are %q", left)
	}
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
