package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

func markerOf(id string) []byte {
	return fmt.Appendf(nil, `{"format":1,"storeID":%q,"created":"2026-01-02T03:04:05Z",`+
		`"encryption":"age"}`, id)
}

// TestAMarkerThatNamesAnotherStoreIsNoticedWithoutVersions: in a bucket without versions nothing
// shows what mgmtd.json was, but the snapshots that were there before it name their store.
func TestAMarkerThatNamesAnotherStoreIsNoticedWithoutVersions(t *testing.T) {
	root, keys := t.TempDir(), mustLoad(t, testKeys(t))
	o := Options{Bucket: directory.New(root), Keys: keys, Create: true}
	s := mustOpen(t, o)
	mustWriteSnapshot(t, s, 1, nil)
	path := filepath.Join(root, markerKey)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(markerOf("00000000000000000000000000000001"), time.Now().Add(time.Minute))
	if _, err := Open(t.Context(), o); !IsCorrupt(err) {
		t.Errorf("opened as another store: %v", err)
	}
	write(good, time.Now().Add(time.Minute))
	if again := mustOpen(t, o); again.ID() != s.ID() || again.MarkerOverwritten() != nil {
		t.Errorf("opened as %s, overwritten: %v", again.ID(), again.MarkerOverwritten())
	}
	// Snapshots of another store that somebody puts beside a new one do not stop it.
	fresh := markerOf("00000000000000000000000000000002")
	write(fresh, time.Now().Add(-time.Hour))
	if again := mustOpen(t, o); again.ID() != "00000000000000000000000000000002" {
		t.Errorf("opened as %s", again.ID())
	}
}

// TestTheOldestProvenMarkerCounts: a host that was fooled once has signed snapshots of the store
// that somebody named. The store that was there first is the right one.
func TestTheOldestProvenMarkerCounts(t *testing.T) {
	s, b, o, first := versionedStore(t, false)
	fooled := *s
	fooled.marker.StoreID = "00000000000000000000000000000001"
	b.Overwrite(markerKey, markerOf(fooled.ID()))
	e := first.Envelope
	e.StoreID, e.ID = fooled.ID(), "0000000000aa"
	data, err := fooled.signer().Encode(e.Key().String(), &e, maxEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	b.Overwrite(e.Key().String(), data)
	if again := mustOpen(t, o); again.ID() != s.ID() {
		t.Errorf("opened as %s, want %s", again.ID(), s.ID())
	}
	// Where somebody hid all snapshots of the first store, what can be read counts.
	b.Hide(first.Key().String())
	if again := mustOpen(t, o); again.ID() != fooled.ID() {
		t.Errorf("opened as %s, want %s", again.ID(), fooled.ID())
	}
	b.Hide(e.Key().String())
	if again := mustOpen(t, o); again.ID() != s.ID() {
		t.Errorf("all hidden: opened as %s, want %s", again.ID(), s.ID())
	}
}

// TestJunkAroundTheSnapshotsHidesNoProof: whoever floods the folders of snapshots with junk writes
// after the first snapshot, or before the last. Where the first ones were signed by a key that is
// trusted no more, they are no better than junk.
func TestJunkAroundTheSnapshotsHidesNoProof(t *testing.T) {
	for _, first := range []bool{true, false} {
		b := faultbucket.NewVersioned()
		o := Options{Bucket: b, Keys: mustLoad(t, testKeys(t)), Create: true}
		s := mustOpen(t, o)
		if first {
			mustWriteSnapshot(t, s, 1, nil)
		}
		for i := range 3 * mostProofs {
			b.Overwrite(fmt.Sprintf("snapshots/00000000-0000-4000-8000-%012d/"+
				"20260102T030405.678Z-0000000000aa.json", i), []byte("junk"))
		}
		if !first {
			mustWriteSnapshot(t, s, 2, nil)
		}
		b.Overwrite(markerKey, markerOf("00000000000000000000000000000001"))
		if again := mustOpen(t, o); again.ID() != s.ID() {
			t.Errorf("first %v: opened as %s, want %s", first, again.ID(), s.ID())
		}
	}
}

// TestACopyDoesNotPassForItsOrigin: the mgmtd.json of the origin, which is not signed, does not
// replace that of a copy, which is; nor does the signed one of a copy replace that of the origin.
func TestACopyDoesNotPassForItsOrigin(t *testing.T) {
	origin, b, o, _ := versionedStore(t, false)
	ofOrigin, err := bucket.ReadAll(t.Context(), b, markerKey, maxMarker)
	if err != nil {
		t.Fatal(err)
	}
	to := faultbucket.NewVersioned()
	copied, err := OpenCopy(t.Context(), Options{Bucket: to, Keys: o.Keys}, origin)
	if err != nil {
		t.Fatal(err)
	}
	ofCopy, err := bucket.ReadAll(t.Context(), to, markerKey, maxMarker)
	if err != nil {
		t.Fatal(err)
	}
	to.Overwrite(markerKey, ofOrigin)
	again, err := Open(t.Context(), Options{Bucket: to, Keys: o.Keys})
	if err != nil || again.ID() != copied.ID() || again.Origin() != origin.ID() ||
		again.MarkerOverwritten() == nil {
		t.Errorf("the copy: %+v, %v", again, err)
	}
	b.Overwrite(markerKey, ofCopy)
	if again := mustOpen(t, o); again.ID() != origin.ID() || again.Origin() != "" {
		t.Errorf("the origin: opened as %s, copy of %q", again.ID(), again.Origin())
	}
}

// TestRepairPutsBackTheMarkerOfTheStore that was opened, and not another one.
func TestRepairPutsBackTheMarkerOfTheStore(t *testing.T) {
	s, b, o, _ := versionedStore(t, false)
	good, err := bucket.ReadAll(t.Context(), b, markerKey, maxMarker)
	if err != nil {
		t.Fatal(err)
	}
	b.Overwrite(markerKey, markerOf("00000000000000000000000000000001"))
	again := mustOpen(t, o)
	plan, err := again.PlanRepair(t.Context(), nil)
	if err != nil || len(plan.Repairs) != 1 || plan.Repairs[0].State != RepairPossible {
		t.Fatalf("%+v, %v", plan, err)
	}
	err = again.RunRepair(t.Context(), plan, func(r Repair) error {
		if r.State != RepairCopied {
			return errors.New(r.Reason)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	now, err := bucket.ReadAll(t.Context(), b, markerKey, maxMarker)
	if err != nil || !bytes.Equal(now, good) {
		t.Errorf("%s, %v", now, err)
	}
	if again := mustOpen(t, o); again.ID() != s.ID() || again.MarkerOverwritten() != nil {
		t.Errorf("opened as %s, overwritten: %v", again.ID(), again.MarkerOverwritten())
	}
}

// TestI1RecordsOfACopyAreFoundInWhatSaysItIsNone: without versions nothing shows that the unsigned
// mgmtd.json of the origin was put into a copy. The records of the copy are still there.
func TestI1RecordsOfACopyAreFoundInWhatSaysItIsNone(t *testing.T) {
	origin, copied, to, o := newTestCopy(t)
	e := mustWriteSnapshot(t, origin, 1, nil)
	if _, err := copied.CopyContent(t.Context(), origin, e.Tree); err != nil {
		t.Fatal(err)
	}
	if err := copied.PutCopied(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	if err := copied.CopyEnvelope(t.Context(), origin, &e); err != nil {
		t.Fatal(err)
	}
	if id, err := copied.CopyTraces(t.Context()); err != nil || id != "" {
		t.Errorf("in the copy: %q, %v", id, err)
	}
	if id, err := origin.CopyTraces(t.Context()); err != nil || id != "" {
		t.Errorf("in the origin: %q, %v", id, err)
	}
	to.Forget(markerKey)
	to.Overwrite(markerKey, stored(t, origin.bucket, markerKey))
	o.Bucket = to
	fooled := mustOpen(t, o)
	if fooled.Origin() != "" {
		t.Fatalf("a copy of %s", fooled.Origin())
	}
	to.Overwrite("copied/"+testSource+"/junk.json", []byte("junk"))
	if id, err := fooled.CopyTraces(t.Context()); err != nil || id != copied.ID() {
		t.Errorf("in what says it is none: %q, %v, want %s", id, err, copied.ID())
	}
}
