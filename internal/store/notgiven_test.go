package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// newRefusingStore is a plain store in a bucket that does not give some keys.
func newRefusingStore(t *testing.T) (*Store, *faultbucket.Refusing) {
	t.Helper()
	b := faultbucket.NewRefusing(directory.New(t.TempDir()))
	return mustOpen(t, Options{Bucket: b, Plain: true, Create: true}), b
}

// withRefusals runs a test with each error of a storage that does not give one key, and with each
// of one that gives nothing.
func withRefusals(t *testing.T, test func(t *testing.T, with bucket.Error, ofStore bool)) {
	t.Helper()
	for name, with := range faultbucket.Refusals {
		t.Run(name, func(t *testing.T) { test(t, with, false) })
	}
	for name, with := range faultbucket.Outages {
		t.Run(name, func(t *testing.T) { test(t, with, true) })
	}
}

// wantOutage wants the error of a storage that gives nothing, and none for one that does not give
// one key.
func wantOutage(t *testing.T, err error, with bucket.Error, ofStore bool) {
	t.Helper()
	if ofStore && !errors.Is(err, with.Class) || !ofStore && err != nil {
		t.Errorf("error %v with %v", err, &with)
	}
}

// TestARecordOfAPruneThatTheStorageDoesNotGiveIsUnusable: those that it gives count.
func TestARecordOfAPruneThatTheStorageDoesNotGiveIsUnusable(t *testing.T) {
	withRefusals(t, func(t *testing.T, with bucket.Error, ofStore bool) {
		s, b := newRefusingStore(t)
		for i, n := range []int64{3, 7} {
			if _, err := s.PutPruneRecord(t.Context(), Pruned{}, Removal{
				Numbers: map[string][]int64{testSource: {n}}},
				testTime.Add(time.Duration(i)*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		var keys []string
		if err := b.List(t.Context(), record.PruneFolder, func(i bucket.Info) error {
			keys = append(keys, i.Key)
			return nil
		}); err != nil || len(keys) != 2 {
			t.Fatalf("records %v, %v", keys, err)
		}
		b.Refuse(with, keys[0])
		p, err := s.Pruned(t.Context())
		wantOutage(t, err, with, ofStore)
		want := map[string][]Range{testSource: {{From: 7, To: 7}}}
		if !ofStore && (!slices.Equal(p.Unusable, keys[:1]) || !cmp.Equal(p.Removed, want)) {
			t.Errorf("unusable %v, removed %v", p.Unusable, p.Removed)
		}
	})
}

// TestAVerificationThatTheStorageDoesNotGiveIsDamaged: those that it gives count.
func TestAVerificationThatTheStorageDoesNotGiveIsDamaged(t *testing.T) {
	withRefusals(t, func(t *testing.T, with bucket.Error, ofStore bool) {
		s, b := newRefusingStore(t)
		e := mustWriteSnapshot(t, s, 1, nil)
		first := mustPutVerification(t, s, e, testVerification(LevelStructure, 1))
		second := mustPutVerification(t, s, e, damagedVerification(LevelFull, 2))
		b.Refuse(with, first.Key)
		list, damaged, err := s.Verifications(t.Context(), e.Key())
		wantOutage(t, err, with, ofStore)
		if !ofStore && (len(list) != 1 || list[0].Key != second.Key || len(damaged) != 1) {
			t.Errorf("read %v, damaged %v", list, damaged)
		}
	})
}

// TestTheNewestVerifiedSnapshotIsOneThatTheStorageGives: a prune retains it.
func TestTheNewestVerifiedSnapshotIsOneThatTheStorageGives(t *testing.T) {
	withRefusals(t, func(t *testing.T, with bucket.Error, ofStore bool) {
		s, b := newRefusingStore(t)
		var list []Signed
		for n := range int64(2) {
			list = append(list, mustWriteSnapshot(t, s, n+1, nil))
			mustPutVerification(t, s, list[n], testVerification(LevelStructure, 1))
		}
		b.Refuse(with, list[1].Key().String())
		e, _, err := s.Verified(t.Context(), testSource)
		wantOutage(t, err, with, ofStore)
		if !ofStore && e.ID != list[0].ID {
			t.Errorf("verified is %v", e.ID)
		}
	})
}

// TestARecordOfACopiedSnapshotThatTheStorageDoesNotGiveSaysNothing: the snapshot is copied again.
func TestARecordOfACopiedSnapshotThatTheStorageDoesNotGiveSaysNothing(t *testing.T) {
	withRefusals(t, func(t *testing.T, with bucket.Error, ofStore bool) {
		s, b := newRefusingStore(t)
		e := mustWriteSnapshot(t, s, 1, nil)
		if err := s.PutCopied(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		if was, err := s.WasCopied(t.Context(), &e); err != nil || !was {
			t.Errorf("it was copied: %v, %v", was, err)
		}
		b.Refuse(with, record.CopiedKey(e.Key(), e.Sequence))
		was, err := s.WasCopied(t.Context(), &e)
		wantOutage(t, err, with, ofStore)
		if was {
			t.Error("it counts as copied")
		}
	})
}

// TestTheNewestSnapshotIsFoundBesideOneThatTheStorageDoesNotGive: it is an error only when no
// envelope can be read, since it is not known then whether there is a snapshot.
func TestTheNewestSnapshotIsFoundBesideOneThatTheStorageDoesNotGive(t *testing.T) {
	withRefusals(t, func(t *testing.T, with bucket.Error, ofStore bool) {
		s, b := newRefusingStore(t)
		good := mustWriteSnapshot(t, s, 1, nil)
		bad := mustWriteSnapshot(t, s, 2, &good)
		b.Refuse(with, bad.Key().String())
		newest, passed, err := s.Newest(t.Context(), testSource, Which{})
		wantOutage(t, err, with, ofStore)
		if !ofStore && (newest == nil || newest.ID != good.ID || len(passed) != 1 ||
			passed[0].Key != bad.Key() || passed[0].Err == nil) {
			t.Errorf("newest %v, passed over %v", newest, passed)
		}
		// The first snapshot of another scope is taken.
		newest, _, err = s.Newest(t.Context(), testSource, Which{
			Accept: func(*Signed) bool { return false }})
		wantOutage(t, err, with, ofStore)
		if newest != nil {
			t.Errorf("newest %v, and none is accepted", newest)
		}
		scopes, passed, err := s.NewestOfScopes(t.Context(), testSource)
		wantOutage(t, err, with, ofStore)
		if !ofStore && (len(scopes) != 1 || len(passed) != 1) {
			t.Errorf("of scopes %v, passed over %v", scopes, passed)
		}
		b.Refuse(with, good.Key().String())
		if newest, _, err := s.Newest(t.Context(), testSource, Which{}); err == nil {
			t.Errorf("none can be read: newest %v", newest)
		}
	})
}
