package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

func TestCheckChainKnowsWhatWasRemoved(t *testing.T) {
	s, _ := newTestStore(t, false)
	var chain []Signed
	var last *Signed
	for n := range int64(6) {
		signed := mustWriteSnapshot(t, s, n+1, last)
		last = &signed
		chain = append(chain, signed)
	}
	left := []Signed{chain[1], chain[5]} // 2 and 6
	if found := CheckChain(left, []Range{{From: 1, To: 1}, {From: 3, To: 5}}); len(found) > 0 {
		t.Errorf("all is explained: %v", found)
	}
	found := CheckChain(left, []Range{{From: 1, To: 1}, {From: 3, To: 3}})
	if len(found) != 1 || found[0].Kind != ChainGap || found[0].From != 4 || found[0].To != 5 {
		t.Errorf("4 and 5 are not explained: %v", found)
	}
}

// aged lists the records of a folder as old enough to be replaced.
type aged struct{ *directory.Bucket }

func (s aged) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return s.Bucket.List(ctx, prefix, func(i bucket.Info) error {
		i.Modified = i.Modified.Add(-2 * replaceAfter)
		return fn(i)
	})
}

// trustedNumbers returns envelopes with numbers, as if they were read.
func trustedNumbers(numbers []int64) (list []*Signed) {
	for _, n := range numbers {
		list = append(list, &Signed{Envelope: testEnvelope("", n),
			Signature: Signature{Trust: Trusted}})
	}
	return list
}

func TestPruneRecordHoldsThatOfEarlierOnes(t *testing.T) {
	o, root := testKeys(t), t.TempDir()
	records := aged{directory.New(root)}
	s := mustOpen(t, Options{Bucket: records, Keys: mustLoad(t, o), Create: true})
	put := func(removed map[string][]int64, there ...int64) Pruned {
		t.Helper()
		before, err := s.Pruned(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at, err := s.PutPruneRecord(t.Context(), before, Removal{Numbers: removed,
			Stay: trustedNumbers(there)}, testTime)
		if err != nil || at.IsZero() {
			t.Fatalf("%v, %v", at, err)
		}
		p, err := s.Pruned(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := put(map[string][]int64{testSource: {1, 2, 5}}); len(p.own) != 1 {
		t.Errorf("records %v", p.own)
	}
	p := put(map[string][]int64{testSource: {3}, "other": {7}}, 5, 6)
	if diff := cmp.Diff(map[string][]Range{testSource: {{From: 1, To: 3}},
		"other": {{From: 7, To: 7}}},
		p.Removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if len(p.own) != 1 {
		t.Errorf("%d records, want one that has what was in the first", len(p.own))
	}

	// What no trusted key signed, or was moved, explains nothing.
	data, err := bucket.ReadAll(t.Context(), records, p.own[0].Key, maxPruneRecord)
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.Replace(p.own[0].Key, "prunes/2026", "prunes/2025", 1)
	if err := records.Put(t.Context(), moved, data); err != nil {
		t.Fatal(err)
	}
	unknown := testKeys(t)
	other := mustOpen(t, Options{Bucket: records, Keys: mustLoad(t, unknown)})
	if _, err := other.PutPruneRecord(t.Context(), Pruned{},
		Removal{Numbers: map[string][]int64{testSource: {4}}}, testTime); err != nil {
		t.Fatal(err)
	}
	again, err := s.Pruned(t.Context())
	if err != nil || len(again.Unusable) != 2 || !cmp.Equal(p.Removed, again.Removed) {
		t.Errorf("unusable %v, removed %v, %v", again.Unusable, again.Removed, err)
	}

	unsigned := mustOpen(t, Options{Bucket: records,
		Keys: mustLoad(t, KeyOptions{Recipients: o.Recipients})})
	if _, usage := errors.AsType[*UsageError](unsigned.MayRemove()); !usage {
		t.Error("an encrypted store may be pruned without a signing key")
	}
	if _, err := unsigned.PutPruneRecord(t.Context(), Pruned{}, Removal{}, testTime); err == nil {
		t.Error("a record was written without a signature")
	}
}

func TestDamagedPinStillPins(t *testing.T) {
	bothModes(t, func(t *testing.T, s *Store, root string) {
		first, second := mustWriteSnapshot(t, s, 1, nil), mustWriteSnapshot(t, s, 2, nil)
		k, other := first.Key(), second.Key()
		for _, reason := range []string{"before the upgrade", "another"} {
			if err := s.PutPin(t.Context(), k, reason, testTime); err != nil {
				t.Fatal(err)
			}
		}
		if pin, err := s.GetPin(t.Context(), k); err != nil || pin.Reason != "before the upgrade" ||
			pin.ID != k.ID || !pin.Time.Equal(testTime) {
			t.Errorf("pin %+v, %v", pin, err)
		}
		if pins, err := s.Pins(t.Context(), testSource); err != nil || len(pins) != 1 || !pins[k] {
			t.Errorf("pins %v, %v", pins, err)
		}
		if _, err := s.GetPin(t.Context(), other); !errors.Is(err, ErrNotFound) {
			t.Errorf("not pinned: %v", err)
		}
		// A pin that is damaged, or another's, pins all the same.
		data, err := bucket.ReadAll(t.Context(), s.bucket, record.PinKey(k), maxPin)
		if err == nil {
			err = s.bucket.Put(t.Context(), record.PinKey(other), data)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.GetPin(t.Context(), other)
		wantCorrupt(t, err)
		if pinned, err := s.Pinned(t.Context(), other); err != nil || !pinned {
			t.Errorf("pinned %v, %v", pinned, err)
		}
		for range 2 {
			if err := s.RemovePin(t.Context(), k); err != nil {
				t.Error(err)
			}
		}
		if pinned, err := s.Pinned(t.Context(), k); err != nil || pinned {
			t.Errorf("after unpin: pinned %v, %v", pinned, err)
		}
		if err := s.PutPin(t.Context(), k, "a\x1bb", testTime); err == nil {
			t.Error("a reason that does not print was taken")
		}
		k.ID = "000000000000"
		if err := s.PutPin(t.Context(), k, "", testTime); !errors.Is(err, ErrNotFound) {
			t.Errorf("pin of no snapshot: %v", err)
		}
	})
}

func TestLeftoversOfRemovedSnapshotsGo(t *testing.T) {
	s, _ := newTestStore(t, true)
	first := mustWriteSnapshot(t, s, 1, nil)
	here, gone := first.Key(), testEnvelopeKey(2)
	keys := map[string]bool{ // whether it stays
		"pins/" + testSource + "/" + here.Name() + ".json":            true,
		"pins/" + testSource + "/" + gone.Name() + ".json":            false,
		"checks/" + testSource + "/" + here.Name() + "/1.json":        true,
		"checks/" + testSource + "/" + gone.Name() + "/1.json":        false,
		"checks/" + testSource + "/" + gone.Name() + "/sub/2.json":    false,
		"checks/" + testSource + "/notes/1.json":                      true,
		"pins/readme.txt":                                             true,
		"owners/" + gone.Name() + ".json":                             true,
		"operations/" + gone.Name() + "/00000001-done.json.zst":       true,
		"conditional.json":                                            true,
		"snapshots/" + testSource + "/" + gone.Name() + ".json.notes": true,
	}
	for key := range keys {
		if err := s.bucket.Put(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(source, name string) bool { return source == testSource && name == here.Name() }
	if n, err := s.RemoveLeftovers(t.Context(), time.Now().Add(-time.Hour), exists); n != 0 ||
		err != nil {
		t.Errorf("%d young ones are gone, %v", n, err)
	}
	if n, err := s.RemoveLeftovers(t.Context(), time.Now().Add(time.Hour), exists); n != 3 ||
		err != nil {
		t.Errorf("%d are gone, %v", n, err)
	}
	for key, stays := range keys {
		if _, err := s.bucket.Stat(t.Context(), key); stays != (err == nil) {
			t.Errorf("%s: %v, want it to stay: %v", key, err, stays)
		}
	}
}

func testEnvelopeKey(sequence int64) EnvelopeKey {
	e := testEnvelope("", sequence)
	return e.Key()
}

// undated is a storage that does not say when keys were written.
type undated struct{ *directory.Bucket }

func (u undated) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return u.Bucket.List(ctx, prefix, func(i bucket.Info) error {
		i.Modified = time.Time{}
		return fn(i)
	})
}

func TestNothingIsRemovedWithoutDates(t *testing.T) {
	_, root := newTestStore(t, true)
	s := mustOpen(t, Options{Bucket: undated{directory.New(root)}, Plain: true})
	mustWriteSnapshot(t, s, 1, nil)
	if list, err := s.StoredSnapshots(t.Context()); err == nil {
		t.Errorf("listed %v", list)
	}
	if err := s.Content(t.Context(), func(StoredContent) error { return nil }); err == nil {
		t.Error("content was listed")
	}
}
