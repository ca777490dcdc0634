package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// theft is a store in which the signing key of a chain of snapshots was stolen and replaced.
type theft struct {
	b     *faultbucket.Versioned
	chain []Signed
	// old signs as the thief, fresh is the new key, which trusts the old one up to the last of chain
	// that was made before the theft.
	old, fresh KeyOptions
	now        time.Time
}

// newTheft makes a chain of n snapshots. The theft was after snapshot number last, and those after
// it are signed by the new key.
func newTheft(t *testing.T, n, last int64) *theft {
	t.Helper()
	f := &theft{b: faultbucket.NewVersioned(), old: testKeys(t), fresh: testKeys(t), now: testTime}
	f.b.Now = func() time.Time { return f.now }
	mustOpen(t, Options{Bucket: f.b, Keys: mustLoad(t, f.old), Create: true})
	signer := f.old
	var parent *Signed
	for i := range n {
		e := mustWriteSnapshot(t, f.open(t, signer), i+1, parent)
		f.chain, parent = append(f.chain, e), &e
		if i+1 == last {
			f.fresh.TrustedKeys = limited(f.old, KeyLimits{LastTrusted: []keys.LastTrusted{{
				Source: testSource, Sequence: e.Sequence, Hash: e.SHA256}}}).TrustedKeys
			signer = f.fresh
		}
	}
	return f
}

func (f *theft) open(t *testing.T, o KeyOptions) *Store {
	t.Helper()
	return mustOpen(t, Options{Bucket: f.b, Keys: mustLoad(t, o)})
}

// record puts snapshots on record as a prune does, two hours after the last one, and returns what
// the record has.
func (f *theft) record(t *testing.T, o KeyOptions, numbers ...int64) record.Prune {
	t.Helper()
	f.now = f.now.Add(2 * time.Hour)
	s := f.open(t, o)
	before, err := s.Pruned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var r Removal
	if r.Listed, err = s.Snapshots(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for _, key := range r.Listed {
		e, err := s.GetEnvelope(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(numbers, e.Sequence) {
			r.Gone = append(r.Gone, &e)
		} else {
			r.Stay = append(r.Stay, &e)
		}
	}
	if _, err := s.PutPruneRecord(t.Context(), before, r, f.now); err != nil {
		t.Fatal(err)
	}
	var last record.Prune
	records := f.b.Keys(record.PruneFolder)
	if _, err := s.getSigned(t.Context(), records[len(records)-1], &last, maxPruneRecord); err != nil {
		t.Fatal(err)
	}
	return last
}

// prune puts snapshots on record and removes them.
func (f *theft) prune(t *testing.T, o KeyOptions, numbers ...int64) record.Prune {
	t.Helper()
	r := f.record(t, o, numbers...)
	for _, n := range numbers {
		if err := f.open(t, o).RemoveSnapshot(t.Context(), f.chain[n-1].Key()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestAPruneAfterATheftKeepsOlderSnapshotsTrusted: prune after prune, in the middle, at the end and
// of the head itself, the snapshots of the stolen key that are left are trusted, and the record has
// no more links than the chain has gaps.
func TestAPruneAfterATheftKeepsOlderSnapshotsTrusted(t *testing.T) {
	f := newTheft(t, 12, 9)
	for _, tt := range []struct {
		gone, want []int64
		links      int
	}{
		{[]int64{4, 5}, []int64{1, 2, 3, 6, 7, 8, 9, 10, 11, 12}, 2},
		{[]int64{7}, []int64{1, 2, 3, 6, 8, 9, 10, 11, 12}, 2},
		{[]int64{6, 8}, []int64{1, 2, 3, 9, 10, 11, 12}, 4},
		{[]int64{9}, []int64{1, 2, 3, 10, 11, 12}, 2},
		{[]int64{2, 10}, []int64{1, 3, 11, 12}, 3},
		{[]int64{11}, []int64{1, 3, 12}, 4},
		{nil, []int64{1, 3, 12}, 3}, // of the head, too, which the reader starts at
	} {
		r := f.prune(t, f.fresh, tt.gone...)
		if got := trustedOf(t, f.b, f.fresh); !slices.Equal(got, tt.want) {
			t.Fatalf("after a prune of %v: trusted %v, want %v", tt.gone, got, tt.want)
		}
		if n := len(r.Links[testSource]); n != tt.links {
			t.Errorf("after a prune of %v: %d links, want %d: %v", tt.gone, n, tt.links, r.Links)
		}
		if records := f.b.Keys(record.PruneFolder); len(records) != 1 {
			t.Errorf("records %v", records)
		}
	}
	// Without the record the chain ends at the first gap.
	f.b.Forget(f.b.Keys(record.PruneFolder)[0])
	if got := trustedOf(t, f.b, f.fresh); !slices.Equal(got, []int64{12}) {
		t.Errorf("without a record: trusted %v", got)
	}
}

// TestWhatStaysAfterARecordIsNotSkipped: a snapshot is on record and stays, since the storage
// retains it or somebody just pinned it. Its neighbors are removed. It is trusted all the same.
func TestWhatStaysAfterARecordIsNotSkipped(t *testing.T) {
	f := newTheft(t, 7, 6)
	f.record(t, f.fresh, 2, 3, 4, 5)
	for _, n := range []int64{2, 3, 5} {
		f.b.Forget(f.chain[n-1].Key().String())
	}
	want := []int64{1, 4, 6, 7}
	if got := trustedOf(t, f.b, f.fresh); !slices.Equal(got, want) {
		t.Errorf("trusted %v, want %v", got, want)
	}
	for range 2 {
		if r := f.record(t, f.fresh); len(r.Links[testSource]) != 2 { // one for each gap
			t.Errorf("links %v", r.Links)
		}
		if got := trustedOf(t, f.b, f.fresh); !slices.Equal(got, want) {
			t.Errorf("after one more record: trusted %v, want %v", got, want)
		}
	}
}

// TestOnlyATrustedPruneRecordLeadsOverAGap: the thief removes a snapshot, signs another one with a
// lower number, and writes a link to it in a prune record of his own.
func TestOnlyATrustedPruneRecordLeadsOverAGap(t *testing.T) {
	elsewhere := testKeys(t)
	for name, tt := range map[string]struct {
		signer func(f *theft) KeyOptions
		read   func(f *theft) KeyOptions
		// early: a host with the new key pruned while it still trusted the old key without limits.
		early bool
		want  []int64
	}{
		"the stolen key": {signer: func(f *theft) KeyOptions { return f.old },
			want: []int64{3, 4}},
		"the stolen key, earlier": {signer: func(f *theft) KeyOptions { return f.old },
			early: true, want: []int64{3, 4}},
		"an unknown key": {signer: func(*theft) KeyOptions { return testKeys(t) },
			want: []int64{3, 4}},
		"a key of another source": {signer: func(*theft) KeyOptions { return elsewhere },
			read: func(f *theft) KeyOptions {
				f.fresh.TrustedKeys = append(f.fresh.TrustedKeys, limited(elsewhere,
					KeyLimits{Sources: []string{otherSource}}).TrustedKeys...)
				return f.fresh
			}, want: []int64{3, 4}},
		"the new key": {signer: func(f *theft) KeyOptions { return f.fresh }, want: []int64{1, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTheft(t, 4, 3)
			read := f.fresh
			if tt.read != nil {
				read = tt.read(f)
			}
			for _, n := range []int{1, 2} {
				f.b.Forget(f.chain[n-1].Key().String())
			}
			thief := f.open(t, f.old)
			forged := mustWriteSnapshot(t, thief, 1, nil)
			f.now = f.now.Add(time.Minute)
			key := "prunes/20260102T030405.678Z-0123456789ab.json"
			r := record.Prune{Header: thief.signer().Header(key), Time: testTime,
				Removed: map[string][]Range{testSource: {{From: 1, To: 2}}},
				Links: map[string][]record.Link{testSource: {{SHA256: f.chain[1].SHA256,
					Parent: Parent{ID: forged.ID, SHA256: forged.SHA256}}}}}
			signer := thief.signer()
			signer.Keys = mustLoad(t, tt.signer(f))
			data, err := signer.Encode(key, &r, maxPruneRecord)
			if err != nil {
				t.Fatal(err)
			}
			f.b.Overwrite(key, data)
			if tt.early {
				believing := f.fresh
				believing.TrustedKeys, believing.TrustedKeyFiles = nil,
					append(f.old.TrustedKeyFiles, f.fresh.TrustedKeyFiles...)
				if taken := f.record(t, believing, 4); len(taken.Removed[testSource]) != 2 {
					t.Errorf("it did not take over the numbers: %v", taken.Removed)
				}
			}
			if got := trustedOf(t, f.b, read); !slices.Equal(got, tt.want) {
				t.Errorf("trusted %v, want %v", got, tt.want)
			}
		})
	}
}

// TestEarlierReadersReadARecordWithLinks, and this one reads a record of theirs.
func TestEarlierReadersReadARecordWithLinks(t *testing.T) {
	f := newTheft(t, 3, 3)
	r := f.prune(t, f.fresh, 2)
	s := f.open(t, f.fresh)
	data, err := bucket.ReadAll(t.Context(), f.b, r.Key, maxPruneRecord)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := s.signer().Verify(r.Key, data)
	if err != nil {
		t.Fatal(err)
	}
	var earlier struct {
		document.Header
		Time    time.Time                 `json:"time"`
		Removed map[string][]record.Range `json:"removed"`
	}
	if err := document.Decode(text, &earlier); err != nil || len(earlier.Removed[testSource]) != 1 {
		t.Errorf("an earlier reader: %v, %v", earlier.Removed, err)
	}
	if !strings.Contains(string(text), `"links":{"`+testSource) {
		t.Errorf("the record has no links: %s", text)
	}
	withoutLinks := record.Prune{Header: r.Header, Time: r.Time, Removed: r.Removed}
	if data, err = s.signer().Encode(r.Key, &withoutLinks, maxPruneRecord); err != nil {
		t.Fatal(err)
	}
	if text, _, err = s.signer().Verify(r.Key, data); err != nil || strings.Contains(string(text),
		"links") {
		t.Errorf("without links: %s, %v", text, err)
	}
	f.b.Overwrite(r.Key, data)
	if p, err := s.Pruned(t.Context()); err != nil || !p.Explains(testSource, 2) ||
		len(p.Unusable) > 0 {
		t.Errorf("a record of an earlier version: %+v, %v", p, err)
	}
}

// TestLinksNeverStopAPrune: a record that would be larger than the format allows leaves out links,
// those of what was removed first, and keeps the numbers.
func TestLinksNeverStopAPrune(t *testing.T) {
	for n, most := range map[int]int{4: 4 << 10, 100: 4 << 10, 1000: 40 << 10} {
		r := record.Prune{Removed: map[string][]Range{testSource: {{From: 1, To: int64(n)}}},
			Links: map[string][]record.Link{}}
		for i := range n {
			sum := layout.SHA256Hex(fmt.Append(nil, i))
			r.Links[testSource] = append(r.Links[testSource], record.Link{SHA256: sum,
				Parent: Parent{ID: "0123456789ab", SHA256: sum}})
		}
		all := r.Links[testSource]
		if err := fitLinks(&r, most); err != nil {
			t.Fatal(err)
		}
		text, err := document.Encode(&r)
		if err == nil {
			text, err = document.Encode(document.File{Payload: string(text)})
		}
		left := r.Links[testSource]
		if err != nil || len(text) > most-maxSignature || len(left) == 0 ||
			!slices.Equal(left, all[:len(left)]) || (n == 4) != (len(left) == n) {
			t.Errorf("%d of %d links in %d bytes, %v", len(left), n, len(text), err)
		}
	}
	r := record.Prune{Links: map[string][]record.Link{testSource: {{}}}}
	if err := fitLinks(&r, 10); err != nil || len(r.Links) > 0 {
		t.Errorf("no space at all: %v, %v", r.Links, err)
	}
}

// TestCompressEndsWithManyRecords: several records have the same links, and one of them leads in a
// circle, which no writer makes.
func TestCompressEndsWithManyRecords(t *testing.T) {
	var links []record.Link
	sum := func(i int) string { return layout.SHA256Hex(fmt.Append(nil, i)) }
	const n = 200
	for i := range n {
		l := record.Link{SHA256: sum(i), Parent: Parent{ID: NewSnapshotID(), SHA256: sum(i + 1)}}
		links = append(links, l, l)
		l.Parent.SHA256 = sum(i + 2)
		links = append(links, l)
	}
	links = append(links, record.Link{SHA256: sum(n - 1), Parent: Parent{ID: NewSnapshotID(),
		SHA256: sum(n - 2)}})
	p := newPresent([]LastTrusted{{Hash: sum(0)}}, Removal{})
	got := p.compress(testSource, links)
	for _, l := range got {
		if l.SHA256 != sum(0) || l.Parent.SHA256 != sum(n) && l.Parent.SHA256 != sum(n+1) {
			t.Errorf("link %v", l)
		}
	}
	if len(got) == 0 || len(got) > 3 {
		t.Errorf("%d links", len(got))
	}
}
