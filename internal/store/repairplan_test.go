package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// TestRepairBringsBackTheSnapshotsOfAStolenKey: somebody hid or wrote over snapshots that the chain
// proves, several in a row. What the thief signed after the theft, and hid, is lost.
func TestRepairBringsBackTheSnapshotsOfAStolenKey(t *testing.T) {
	f := newTheft(t, 7, 6)
	forged := mustWriteSnapshot(t, f.open(t, f.old), 3, nil)
	f.b.Hide(forged.Key().String())
	var spoiled []string
	for i, spoil := range []func(*faultbucket.Versioned, string){(*faultbucket.Versioned).Hide,
		(*faultbucket.Versioned).Hide, overwrite, overwriteAndHide} {
		key := f.chain[i].Key().String()
		spoil(f.b, key)
		spoiled = append(spoiled, key)
	}
	s := f.open(t, f.fresh)
	if e, err := s.GetEnvelope(t.Context(), f.chain[2].Key()); err == nil && e.Trust == Trusted {
		t.Errorf("before: %+v", e)
	}
	plan, found := planRepair(t, s)
	if !slices.Equal(found[RepairPossible], spoiled) ||
		!slices.Equal(found[RepairLost], []string{forged.Key().String()}) {
		t.Fatalf("planned %v, want %v", found, spoiled)
	}
	done := runRepair(t, s, plan)
	if !slices.Equal(done[RepairUndeleted], spoiled[:2]) ||
		!slices.Equal(done[RepairCopied], spoiled[2:]) {
		t.Errorf("done %v", done)
	}
	if e, err := s.GetEnvelope(t.Context(), f.chain[0].Key()); err != nil || e.Trust != Trusted {
		t.Errorf("the same store: %s, %v", e.Trust, err)
	}
	if got := trustedOf(t, f.b, f.fresh); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("after: trusted %v", got)
	}
}

// TestRepairBringsBackRecordsOfOperations that are hidden or written over, and none that no trusted
// key signed for that very key.
func TestRepairBringsBackRecordsOfOperations(t *testing.T) {
	s, b, _, _ := versionedStore(t, false)
	const operation = "20260102-030405-abcd"
	var keys []string
	for seq := int64(1); seq <= 4; seq++ {
		if err := putRecord(t, s, operation, seq, []byte("journal")); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, OperationRecordKey{Operation: operation, Seq: seq}.String())
	}
	b.Hide(keys[0])
	overwrite(b, keys[1])
	third, _, err := b.GetTagged(t.Context(), keys[2])
	if err != nil {
		t.Fatal(err)
	}
	b.Overwrite(keys[3], third)
	moved := OperationRecordKey{Operation: operation, Seq: 9}.String()
	b.Overwrite(moved, third)
	b.Hide(moved)
	plan, found := planRepair(t, s)
	if want := []string{keys[0], keys[1], keys[3]}; !slices.Equal(found[RepairPossible], want) ||
		!slices.Equal(found[RepairLost], []string{moved}) {
		t.Fatalf("planned %v, want %v", found, want)
	}
	done := runRepair(t, s, plan)
	if !slices.Equal(done[RepairUndeleted], keys[:1]) ||
		!slices.Equal(done[RepairCopied], []string{keys[1], keys[3]}) {
		t.Errorf("done %v", done)
	}
	for _, k := range recordKeys(t, s, operation) {
		if _, text, _, err := s.GetOperationRecord(t.Context(), k); err != nil ||
			string(text) != "journal" {
			t.Errorf("%s: %q, %v", k, text, err)
		}
	}
}

// TestAPlanOfARepairCostsNothingPerUntouchedKey: it lists the versions of each folder, asks for the
// hashes of what was written over, and reads nothing else. The result is in the order of the list,
// whatever is judged first, and the progress counts all keys.
func TestAPlanOfARepairCostsNothingPerUntouchedKey(t *testing.T) {
	_, b, o, _ := versionedStore(t, false)
	var spoiled []string
	for i := range 300 {
		data := fmt.Append(nil, i)
		key := string(layout.KeyOf(KindPack, true, data))
		b.Overwrite(key, data)
		if i%5 == 0 {
			overwrite(b, key)
			spoiled = append(spoiled, key)
		}
	}
	slices.Sort(spoiled)
	r := &recording{Versioned: b}
	o.Bucket = r
	s := mustOpen(t, o)
	r.requests, r.reads = nil, nil // of the proof of mgmtd.json
	last := 0
	plan, err := s.PlanRepair(t.Context(), func(examined int) error {
		if examined != last+1 {
			t.Errorf("%d after %d", examined, last)
		}
		last = examined
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found := byState(plan.Repairs); len(found) != 1 ||
		!slices.Equal(found[RepairPossible], spoiled) {
		t.Errorf("planned %v, want %v", found, spoiled)
	}
	if keys := len(b.Keys("")); last != keys || plan.Examined != keys {
		t.Errorf("progress %d, examined %d, want %d", last, plan.Examined, keys)
	}
	asked := map[string]int{}
	for _, request := range r.requests {
		what, key, _ := strings.Cut(request, " ")
		if asked[what]++; what == "hash" && !slices.Contains(spoiled, key) {
			t.Errorf("asked for %s", request)
		}
	}
	if asked["list"] != len(repairFolders) || asked["hash"] != 2*len(spoiled) || len(asked) != 2 ||
		len(r.reads) > 0 {
		t.Errorf("asked for %v, read %v", asked, r.reads)
	}
	b.NoChecksums = true
	_, found := planRepair(t, s)
	if !slices.Equal(found[RepairPossible], spoiled) {
		t.Errorf("without checksums: %v", found)
	}
}

// unreachable is a storage that goes away while versions are judged.
type unreachable struct{ *faultbucket.Versioned }

func (u unreachable) VersionSHA256(_ context.Context, key, _ string) (string, error) {
	return "", &bucket.Error{Op: "stat", Key: key, Class: bucket.ErrUnreachable}
}

func (u unreachable) GetVersion(_ context.Context, key, _ string) (io.ReadCloser, error) {
	return nil, &bucket.Error{Op: "get", Key: key, Class: bucket.ErrUnreachable}
}

// TestAPlanOfARepairEndsWithTheStorage: what could not be judged is not called lost, and an error
// of the progress ends the plan.
func TestAPlanOfARepairEndsWithTheStorage(t *testing.T) {
	for _, spoil := range []func(b *faultbucket.Versioned, e *Signed) string{
		func(_ *faultbucket.Versioned, e *Signed) string { return string(e.Tree) },
		func(_ *faultbucket.Versioned, e *Signed) string { return e.Key().String() },
	} {
		_, b, o, e := versionedStore(t, false)
		overwrite(b, spoil(b, &e))
		s := mustOpen(t, o)
		s.bucket = unreachable{b}
		if plan, err := s.PlanRepair(t.Context(), nil); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%+v, %v", plan, err)
		}
		if _, err := s.PlanRepair(t.Context(), func(int) error { return errCrash }); !errors.Is(err,
			errCrash) {
			t.Errorf("progress: %v", err)
		}
	}
}

// mute is a storage that gives versions, and no envelopes.
type mute struct{ *faultbucket.Versioned }

func (m mute) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasPrefix(key, layout.EnvelopeFolder) {
		return nil, &bucket.Error{Op: "get", Key: key, Class: bucket.ErrUnreachable}
	}
	return m.Versioned.Get(ctx, key)
}

// TestAPlanOfARepairEndsWhereTheChainCannotBeRead: a snapshot of a stolen key is not called lost
// while the storage does not give its successors.
func TestAPlanOfARepairEndsWhereTheChainCannotBeRead(t *testing.T) {
	f := newTheft(t, 3, 2)
	f.b.Hide(f.chain[0].Key().String())
	s := f.open(t, f.fresh)
	s.bucket = mute{f.b}
	if plan, err := s.PlanRepair(t.Context(), nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%+v, %v", plan, err)
	}
}

// BenchmarkPlanRepair plans for a store of 100,000 packs, of which 1,000 were written over.
func BenchmarkPlanRepair(b *testing.B) {
	bucket := faultbucket.NewVersioned()
	s, err := Open(b.Context(), Options{Bucket: bucket, Plain: true, Create: true})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 {
		data := fmt.Append(nil, i)
		key := string(layout.KeyOf(KindPack, false, data))
		bucket.Overwrite(key, data)
		if i%100 == 0 {
			overwrite(bucket, key)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if plan, err := s.PlanRepair(b.Context(), nil); err != nil || len(plan.Repairs) != 1000 {
			b.Fatal(err)
		}
	}
}
