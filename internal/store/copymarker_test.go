package store

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
)

// newTestCopy makes a store with one snapshot and an empty copy of it.
func newTestCopy(t *testing.T) (origin, copied *Store, to *faultbucket.Versioned, o Options) {
	t.Helper()
	keys := mustLoad(t, testKeys(t))
	origin = mustOpen(t, Options{Bucket: directory.New(t.TempDir()), Keys: keys, Create: true})
	mustWriteSnapshot(t, origin, 1, nil)
	to = faultbucket.NewVersioned()
	o = Options{Bucket: to, Keys: keys}
	copied, err := OpenCopy(t.Context(), o, origin)
	if err != nil {
		t.Fatal(err)
	}
	return origin, copied, to, o
}

// TestEarlierVersionsDoNotOpenACopy: they know format 1 only, whatever else mgmtd.json says.
func TestEarlierVersionsDoNotOpenACopy(t *testing.T) {
	_, _, to, _ := newTestCopy(t)
	data := stored(t, to, markerKey)
	if found, err := document.FormatOf(data); err != nil || found != 2 {
		t.Errorf("format %d, %v", found, err)
	}
	s, root := newTestStore(t, true)
	rewrite(t, root, markerKey, func(data []byte) []byte {
		return []byte(strings.Replace(string(data), `"encryption"`,
			`"origin":"6b1d8f1cf3e2540e9e1d7e5e2e1e3b22","encryption"`, 1))
	})
	if again := mustOpen(t, Options{Bucket: directory.New(root), Plain: true}); again.Origin() != "" ||
		again.ID() != s.ID() {
		t.Errorf("a store of format 1 has the origin %q", again.Origin())
	}
}

// TestOnlyATrustedKeySaysWhatIsACopy: the mgmtd.json of a copy names the store whose envelopes are
// read there. One that no trusted key signed does not count, and an older version of it does.
func TestOnlyATrustedKeySaysWhatIsACopy(t *testing.T) {
	_, copied, to, o := newTestCopy(t)
	good := stored(t, to, markerKey)
	var file map[string]any
	if err := json.Unmarshal(good, &file); err != nil {
		t.Fatal(err)
	}
	file["signature"] = ""
	unsigned, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	m := copied.marker
	m.Origin = "6b1d8f1cf3e2540e9e1d7e5e2e1e3b22"
	foreign, err := m.encode(mustLoad(t, testKeys(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"unsigned": unsigned, "of another key": foreign,
		"changed": []byte(strings.Replace(string(good), copied.Origin(), m.Origin, 1))} {
		t.Run(name, func(t *testing.T) {
			unversioned := directory.New(t.TempDir())
			if err := unversioned.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := unversioned.Put(t.Context(), markerKey, data); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Options{Bucket: unversioned, Keys: o.Keys})
			if _, untrusted := errors.AsType[*TrustError](err); !untrusted && !IsCorrupt(err) {
				t.Errorf("it is opened: %v", err)
			}
			to.Overwrite(markerKey, data)
			if s, err := Open(t.Context(), o); err != nil || s.Origin() != copied.Origin() {
				t.Errorf("with an older version: %v", err)
			}
		})
	}
}

// TestI1OwnershipOfTheOriginDoesNotCountInACopy: somebody puts a signed record of the origin into
// the copy. Only a record that was written for the copy counts there.
func TestI1OwnershipOfTheOriginDoesNotCountInACopy(t *testing.T) {
	origin, copied, to, o := newTestCopy(t)
	owner := Owner{WorkloadID: "w-1", Workload: "ns/w", Owner: Source{UID: testSource, Name: "a"},
		Epoch: 3, Operation: "000000000001", Time: testTime}
	if _, err := origin.PutOwner(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	to.Overwrite("owners/w-1.json", stored(t, origin.bucket, "owners/w-1.json"))
	if _, err := copied.GetOwner(t.Context(), "w-1"); !errors.Is(err, ErrForeign) {
		t.Errorf("the record of the origin: %v", err)
	}
	if _, err := copied.PutOwner(t.Context(), owner, nil); err == nil {
		t.Error("ownership is recorded in a copy without being asked for")
	}
	o.Bucket = directory.New(t.TempDir())
	second, err := OpenCopy(t.Context(), o, origin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.AsOwnershipHome().PutOwner(t.Context(), owner, nil); err != nil {
		t.Errorf("as asked for: %v", err)
	}
	if got, err := second.GetOwner(t.Context(), "w-1"); err != nil || !second.Vouches(got) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := second.AsOwnershipHome().mayWrite(); err == nil {
		t.Error("snapshots may be written into a copy that holds ownership")
	}
}

// TestAReadOnlyLocationIsOnlyRead: every kind of write is refused, before and in the bucket.
func TestAReadOnlyLocationIsOnlyRead(t *testing.T) {
	keys := mustLoad(t, testKeys(t))
	b := faultbucket.NewVersioned()
	b.RetainFor = time.Hour
	if _, err := Open(t.Context(), Options{Bucket: b, Keys: keys, ReadOnly: true,
		Create: true}); !errors.Is(err, ErrStoreMissing) {
		t.Errorf("making a store: %v", err)
	}
	e := mustWriteSnapshot(t, mustOpen(t, Options{Bucket: b, Keys: keys, Create: true}), 1, nil)
	before := b.Keys("")
	s := mustOpen(t, Options{Bucket: b, Keys: keys, ReadOnly: true})
	_, shard := s.PutShard(t.Context(), []byte("{}"))
	_, envelope := s.PutEnvelope(t.Context(), e.Envelope)
	_, owner := s.PutOwner(t.Context(), Owner{}, nil)
	_, result := s.PutVerification(t.Context(), e, Verification{Level: LevelFull, Outcome: OutcomeOK,
		Time: testTime})
	_, prune := s.PutPruneRecord(t.Context(), Pruned{}, Removal{}, testTime)
	for what, err := range map[string]error{"shard": shard, "envelope": envelope, "owner": owner,
		"pin": s.PutPin(t.Context(), e.Key(), "", testTime), "unpin": s.RemovePin(t.Context(), e.Key()),
		"verification": result, "prune record": prune, "may remove": s.MayRemove(),
		"snapshots": s.AcceptsSnapshots(), "repair": s.RunRepair(t.Context(), &RepairPlan{}, nil),
		"remove": s.RemoveSnapshot(t.Context(), e.Key()), "operation": s.CanRecord(t.Context()),
		"bucket": s.bucket.Put(t.Context(), "x", nil)} {
		if err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := b.Keys(""); len(after) != len(before) {
		t.Errorf("keys %v, before %v", after, before)
	}
	if _, err := s.GetEnvelope(t.Context(), e.Key()); err != nil {
		t.Error(err)
	}
	b.Overwrite(e.Key().String(), []byte("junk"))
	if got, err := s.GetEnvelope(t.Context(), e.Key()); err != nil || got.Overwritten == nil {
		t.Errorf("older versions are not read: %v", err)
	}
	if plan, err := s.PlanRepair(t.Context(), nil); err != nil || len(plan.Repairs) != 1 {
		t.Errorf("what a repair would do: %+v, %v", plan, err)
	}
	if r, err := s.RetainedUntil(t.Context(), e); err != nil || r.Until.IsZero() {
		t.Errorf("until when it is retained: %+v, %v", r, err)
	}
}

func stored(t *testing.T, b bucket.Bucket, key string) []byte {
	t.Helper()
	data, err := bucket.ReadAll(t.Context(), b, key, maxMarker)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestOnlyTheOriginIsCopiedIntoACopy: what is of another store, or what nobody trusted signed, does
// not come in by any of the calls.
func TestOnlyTheOriginIsCopiedIntoACopy(t *testing.T) {
	origin, copied, to, o := newTestCopy(t)
	list, err := origin.Snapshots(t.Context(), "")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	e, err := origin.GetEnvelope(t.Context(), list[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copied.CopyContent(t.Context(), origin, e.Tree); err != nil {
		t.Fatal(err)
	}
	unsigned := e
	unsigned.Trust = Unsigned
	if err := copied.CopyEnvelope(t.Context(), origin, &unsigned); err == nil {
		t.Error("an envelope is copied that nobody signed")
	}
	other := mustOpen(t, Options{Bucket: directory.New(t.TempDir()), Keys: o.Keys, Create: true})
	theirs := mustWriteSnapshot(t, other, 1, nil)
	if _, err := copied.CopyContent(t.Context(), other, theirs.Tree); err != nil {
		t.Fatal(err)
	}
	if err := copied.CopyEnvelope(t.Context(), other, &theirs); !errors.Is(err, ErrForeign) {
		t.Errorf("the envelope of another store: %v", err)
	}
	if err := copied.MayCopy(other); !isUsageError(err) {
		t.Errorf("a run from another store: %v", err)
	}
	plain := *copied
	plain.marker.Encryption = encryptNo
	plain.plain = true
	if err := plain.MayCopy(origin); !isUsageError(err) {
		t.Errorf("a run into a copy that is plain: %v", err)
	}
	blind := *origin
	blind.keys = nil
	if err := copied.MayCopy(&blind); !isUsageError(err) {
		t.Errorf("a run without keys to check signatures: %v", err)
	}
	for _, purpose := range []keys.Purpose{keys.ForStore, keys.ForPrune} {
		half := *copied
		half.keys = mustLoad(t, testKeysFor(t, purpose))
		if err := half.MayCopy(origin); !isUsageError(err) {
			t.Errorf("a run with a key for purpose %s alone: %v", purpose, err)
		}
	}
	// Another copy takes the place of this one meanwhile.
	m := copied.marker
	m.StoreID = newStoreID()
	data, err := m.encode(o.Keys)
	if err != nil {
		t.Fatal(err)
	}
	to.Forget(markerKey)
	to.Overwrite(markerKey, data)
	if err := copied.CopyEnvelope(t.Context(), origin, &e); !errors.Is(err, ErrForeign) {
		t.Errorf("into another copy: %v", err)
	}
	if _, err := copied.PutCopying(t.Context(), []Key{e.Tree}, testTime); !errors.Is(err, ErrForeign) {
		t.Errorf("a record in another copy: %v", err)
	}
	if found := to.Keys("snapshots/"); len(found) > 0 {
		t.Errorf("the copy has %v", found)
	}
}

// testKeysFor returns a signing key that is trusted for one purpose.
func testKeysFor(t *testing.T, purpose keys.Purpose) KeyOptions {
	t.Helper()
	o := testKeys(t)
	l := limited(o, KeyLimits{Purposes: []keys.Purpose{purpose}})
	l.SigningKeyFile = o.SigningKeyFile
	return l
}

func isUsageError(err error) bool {
	_, ok := errors.AsType[*UsageError](err)
	return ok
}
