package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/record"
)

// otherSource is a source that keys with limits are not trusted for.
const otherSource = "6f1b2c3d-0000-4000-8000-000000000002"

// limited returns options that trust the signing key of o within limits only.
func limited(o KeyOptions, l KeyLimits) KeyOptions {
	return KeyOptions{Recipients: o.Recipients, IdentityFiles: o.IdentityFiles,
		TrustedKeys: []TrustedKey{{File: o.TrustedKeyFiles[0], Limits: l}}}
}

// signedDocuments returns a signed document of each purpose about a source, by the purpose.
func signedDocuments(s *Store, source string) map[keys.Purpose]struct {
	key     string
	payload document.Payload
} {
	e := testEnvelope(key(KindTree, false, "x"), 2)
	e.Format, e.StoreID, e.Source.UID = Format, s.ID(), source
	o := testOwner("w1", 1)
	o.Format, o.StoreID, o.Time = Format, s.ID(), testTime
	pin := Pin{Header: s.signer().Header(record.PinKey(e.Key())), Source: source, ID: e.ID,
		Time: testTime}
	k := VerificationKey{Snapshot: e.Key(), Time: testTime, ID: "ba9876543210"}
	check := testVerification(LevelFull, 0)
	check.Header, check.ID = s.signer().Header(k.String()), k.ID
	check.Snapshot = VerifiedSnapshot{Source: source, Time: e.Time, ID: e.ID,
		SHA256: layout.SHA256Hex(nil)}
	const pruneKey = "prunes/20260102T030405.678Z-0123456789ab.json"
	prune := record.Prune{Header: s.signer().Header(pruneKey), Time: testTime,
		Removed: map[string][]Range{source: {{From: 1, To: 3}}}}
	operation := record.Operation{Header: s.signer().Header(OperationRecordKey{
		Operation: "0123456789ab", Seq: 1}.String()), SHA256: layout.SHA256Hex(nil),
		OperationHead: testHead}
	const copyingKey = "copying/20260102T030405.678Z-0123456789ab.json"
	copying := record.Copying{Header: s.signer().Header(copyingKey), Time: testTime, Trees: []Key{e.Tree}}
	documents := map[keys.Purpose]struct {
		key     string
		payload document.Payload
	}{}
	for _, p := range []document.Payload{&e, &o, &pin, &check, &prune, &operation, &copying} {
		_, at := p.Place()
		documents[p.Claim().Purpose] = struct {
			key     string
			payload document.Payload
		}{at, p}
	}
	return documents
}

// TestAKeyCountsForItsPurposesOnly goes over all kinds of signed documents: a key that is limited
// to one purpose is trusted for the documents of that purpose, and for no other.
func TestAKeyCountsForItsPurposesOnly(t *testing.T) {
	o := testKeys(t)
	s := mustOpen(t, Options{Bucket: directory.New(t.TempDir()), Keys: mustLoad(t, o), Create: true})
	documents := signedDocuments(s, testSource)
	for _, purpose := range keys.Purposes() {
		reader := s.signer()
		reader.Keys = mustLoad(t, limited(o, KeyLimits{Purposes: []keys.Purpose{purpose}}))
		if _, ok := documents[purpose]; !ok {
			t.Errorf("no document of purpose %s", purpose)
		}
		for of, d := range documents {
			data, err := s.signer().Encode(d.key, d.payload, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			got, err := reader.Open(d.key, data, d.payload)
			want := Limited
			if of == purpose {
				want = Trusted
			}
			if err != nil || got.Trust != want || (got.Require(d.key) == nil) != (of == purpose) {
				t.Errorf("a key for %s signed %s: %s, %v", purpose, d.key, got.Trust, err)
			}
		}
	}
}

// TestAKeyCountsForItsSourcesOnly: what is about two management clusters is outside of the limits
// of a key with sources, whatever it says.
func TestAKeyCountsForItsSourcesOnly(t *testing.T) {
	o := testKeys(t)
	s := mustOpen(t, Options{Bucket: directory.New(t.TempDir()), Keys: mustLoad(t, o), Create: true})
	reader := s.signer()
	reader.Keys = mustLoad(t, limited(o, KeyLimits{Sources: []string{testSource}}))
	for _, source := range []string{testSource, otherSource} {
		for of, d := range signedDocuments(s, source) {
			data, err := s.signer().Encode(d.key, d.payload, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			got, err := reader.Open(d.key, data, d.payload)
			trusted := source == testSource && of != keys.ForOwnership && of != keys.ForOperation &&
				of != keys.ForStore
			if err != nil || (got.Trust == Trusted) != trusted {
				t.Errorf("%s about %s: %s, %v", of, source, got.Trust, err)
			}
			if err := got.Require(d.key); !trusted && (err == nil ||
				!strings.Contains(err.Error(), "trusted for source "+testSource+" only")) {
				t.Errorf("error %v", err)
			}
		}
	}
}

// TestANewerFormatOfAKeyOfAnotherSourceStopsNoWriter: only a key that may sign for the source says
// that a newer version works there.
func TestANewerFormatOfAKeyOfAnotherSourceStopsNoWriter(t *testing.T) {
	edge, root := testKeys(t), t.TempDir()
	mine := testKeys(t)
	s := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, mine), Create: true})
	first := mustWriteSnapshot(t, s, 1, nil)
	signer := s.signer()
	signer.Keys = mustLoad(t, edge)
	mine.TrustedKeys = limited(edge, KeyLimits{Sources: []string{otherSource}}).TrustedKeys
	s = mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, mine)})
	future := first.Envelope
	future.ID = NewSnapshotID()
	data, err := signer.Encode(future.Key().String(), &struct {
		Envelope
		Format int `json:"format"`
	}{Envelope: future, Format: 2}, maxEnvelope)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, future.Key().String()), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	e, passed, err := s.Newest(t.Context(), testSource, Which{})
	if err != nil || e == nil || e.ID != first.ID || len(passed) != 1 {
		t.Errorf("newest %v, %v, %v", e, passed, err)
	}
}

// stolen is a chain of 5 snapshots that one key signed, in a versioned bucket.
func stolen(t *testing.T) (o KeyOptions, b *faultbucket.Versioned, chain []Signed) {
	t.Helper()
	o, b = testKeys(t), faultbucket.NewVersioned()
	s := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, o), Create: true})
	var last *Signed
	for n := range int64(5) {
		e := mustWriteSnapshot(t, s, n+1, last)
		chain, last = append(chain, e), &e
	}
	return o, b, chain
}

// trustedOf returns the numbers of the snapshots of a bucket that are trusted with keys.
func trustedOf(t *testing.T, b *faultbucket.Versioned, o KeyOptions) (trusted []int64) {
	t.Helper()
	s := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, o)})
	list, err := s.Snapshots(t.Context(), testSource)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range list {
		e, err := s.GetEnvelope(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if e.Trust == Trusted {
			trusted = append(trusted, e.Sequence)
		} else if e.Trust != Limited || e.RequireTrusted() == nil {
			t.Errorf("number %d is %s", e.Sequence, e.Trust)
		}
	}
	return trusted
}

// TestAStolenKeyIsTrustedForTheChainBeforeTheTheft: the thief signs more, with lower numbers, too,
// writes over what is there, and removes some of it.
func TestAStolenKeyIsTrustedForTheChainBeforeTheTheft(t *testing.T) {
	last := func(e Signed) []keys.LastTrusted {
		return []keys.LastTrusted{{Source: testSource, Sequence: e.Sequence, Hash: e.SHA256}}
	}
	forge := func(t *testing.T, o KeyOptions, b *faultbucket.Versioned, sequence int64) {
		t.Helper()
		mustWriteSnapshot(t, mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, o)}), sequence, nil)
	}
	for name, tt := range map[string]struct {
		thief func(t *testing.T, o KeyOptions, b *faultbucket.Versioned, chain []Signed)
		heads func(chain []Signed) []keys.LastTrusted
		want  []int64
	}{
		"nothing happened": {nil, func(c []Signed) []keys.LastTrusted { return last(c[4]) },
			[]int64{1, 2, 3, 4, 5}},
		"later ones": {nil, func(c []Signed) []keys.LastTrusted { return last(c[2]) },
			[]int64{1, 2, 3}},
		"forged below": {func(t *testing.T, o KeyOptions, b *faultbucket.Versioned, _ []Signed) {
			forge(t, o, b, 2)
		}, func(c []Signed) []keys.LastTrusted { return last(c[2]) }, []int64{1, 2, 3}},
		"written over": {func(t *testing.T, _ KeyOptions, b *faultbucket.Versioned, c []Signed) {
			b.Overwrite(c[1].Key().String(), []byte("junk"))
		}, func(c []Signed) []keys.LastTrusted { return last(c[2]) }, []int64{1, 2, 3}},
		"one is gone": {func(t *testing.T, _ KeyOptions, b *faultbucket.Versioned, c []Signed) {
			b.Hide(c[1].Key().String())
		}, func(c []Signed) []keys.LastTrusted { return last(c[2]) }, []int64{3}},
		"one is gone, and both sides are named": {func(t *testing.T, _ KeyOptions,
			b *faultbucket.Versioned, c []Signed) {
			b.Hide(c[1].Key().String())
		}, func(c []Signed) []keys.LastTrusted { return append(last(c[2]), last(c[0])...) },
			[]int64{1, 3}},
		"another hash": {nil, func(c []Signed) []keys.LastTrusted {
			c[4].SHA256 = c[3].SHA256
			return last(c[4])
		}, []int64{1, 2, 3, 4}},
		"of no source": {nil, func(c []Signed) []keys.LastTrusted { return []keys.LastTrusted{} },
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			o, b, chain := stolen(t)
			if tt.thief != nil {
				tt.thief(t, o, b, chain)
			}
			got := trustedOf(t, b, limited(o, KeyLimits{LastTrusted: tt.heads(chain)}))
			if !slices.Equal(got, tt.want) {
				t.Errorf("trusted %v, want %v", got, tt.want)
			}
		})
	}
}

// TestAStolenKeySignsNothingElse: its ownership records, pins, results and prune records count no
// more, whenever they were written, since they have no number.
func TestAStolenKeySignsNothingElse(t *testing.T) {
	o, b, chain := stolen(t)
	s := mustOpen(t, Options{Bucket: b, Keys: mustLoad(t, o)})
	reader := s.signer()
	reader.Keys = mustLoad(t, limited(o, KeyLimits{LastTrusted: []keys.LastTrusted{{
		Source: testSource, Sequence: 5, Hash: chain[4].SHA256}}}))
	for of, d := range signedDocuments(s, testSource) {
		data, err := s.signer().Encode(d.key, d.payload, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := reader.Open(d.key, data, d.payload); err != nil || got.Trust != Limited {
			t.Errorf("%s: %s, %v", of, got.Trust, err)
		}
	}
}

// TestAPruneRecordCountsForTheSourcesOfItsKey: it explains what was removed of these sources, and
// what the keys of others say of theirs stays.
func TestAPruneRecordCountsForTheSourcesOfItsKey(t *testing.T) {
	edge, prod, root := testKeys(t), testKeys(t), t.TempDir()
	records := aged{directory.New(root)}
	put := func(s *Store, removed map[string][]int64) error {
		before, err := s.Pruned(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.PutPruneRecord(t.Context(), before, Removal{Numbers: removed}, testTime)
		return err
	}
	prod.TrustedKeys = limited(edge, KeyLimits{Sources: []string{otherSource}}).TrustedKeys
	p := mustOpen(t, Options{Bucket: records, Keys: mustLoad(t, prod), Create: true})
	if err := put(p, map[string][]int64{testSource: {1}, otherSource: {2}}); err != nil {
		t.Fatal(err)
	}
	edge.TrustedKeyFiles = append(edge.TrustedKeyFiles, prod.TrustedKeyFiles...)
	e := mustOpen(t, Options{Bucket: records, Keys: mustLoad(t, edge)})
	if err := put(e, map[string][]int64{testSource: {3}, otherSource: {4}}); err != nil {
		t.Fatal(err)
	}
	got, err := p.Pruned(t.Context())
	if err != nil || len(got.Unusable) != 1 || !got.Explains(testSource, 1) ||
		got.Explains(testSource, 3) || !got.Explains(otherSource, 2) || !got.Explains(otherSource, 4) {
		t.Errorf("%+v, %v", got, err)
	}

	// The signing key knows its own limits: it records nothing that nobody would believe.
	edge.TrustedKeyFiles = prod.TrustedKeyFiles
	edge.TrustedKeys = prod.TrustedKeys
	e = mustOpen(t, Options{Bucket: records, Keys: mustLoad(t, edge)})
	if err := put(e, map[string][]int64{testSource: {5}}); err == nil {
		t.Error("it recorded the removal of a snapshot of another source")
	}
	if err := put(e, map[string][]int64{otherSource: {6}}); err != nil {
		t.Error(err)
	}
	if got, err := p.Pruned(t.Context()); err != nil || !got.Explains(testSource, 1) ||
		!got.Explains(otherSource, 6) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestASigningKeyRefusesWhatItsLimitsDoNotAllow before anything is stored.
func TestASigningKeyRefusesWhatItsLimitsDoNotAllow(t *testing.T) {
	o := testKeys(t)
	o.TrustedKeys = limited(o, KeyLimits{Purposes: []keys.Purpose{keys.ForPrune}}).TrustedKeys
	o.TrustedKeyFiles = nil
	s := mustOpen(t, Options{Bucket: directory.New(t.TempDir()), Keys: mustLoad(t, o), Create: true})
	_, err := writeSnapshot(t.Context(), s, 1, nil)
	if usage, ok := errors.AsType[*UsageError](err); !ok || !strings.Contains(usage.Error(),
		"is trusted for prune records only, not for snapshots") {
		t.Errorf("write a snapshot: %v", err)
	}
	if fence, ok := errors.AsType[*FenceError](s.CanFence(t.Context())); !ok {
		t.Errorf("fence: %v", fence)
	}
	if s.CanRecordVerifications() {
		t.Error("it would record results of verifies")
	}
}
