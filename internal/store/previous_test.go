package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// versionedStore makes a store in a versioned bucket, with one snapshot.
func versionedStore(t *testing.T, plain bool) (*Store, *faultbucket.Versioned, Options, Signed) {
	t.Helper()
	b := faultbucket.NewVersioned()
	o := Options{Bucket: b, Plain: plain, Create: true}
	if !plain {
		o.Keys = mustLoad(t, testKeys(t))
	}
	s := mustOpen(t, o)
	return s, b, o, mustWriteSnapshot(t, s, 1, nil)
}

// TestAnOverwrittenEnvelopeIsReadFromAnOlderVersion: whatever somebody wrote over an envelope, the
// version that a trusted key signed for this key counts, and the search for the newest reports it.
func TestAnOverwrittenEnvelopeIsReadFromAnOlderVersion(t *testing.T) {
	s, b, _, first := versionedStore(t, false)
	second := mustWriteSnapshot(t, s, 2, nil)
	other, err := s.signer().Encode(first.Key().String(), &first.Envelope, maxEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	stolen := mustOpen(t, Options{Bucket: faultbucket.NewVersioned(), Create: true,
		Keys: mustLoad(t, testKeys(t))})
	foreign := mustWriteSnapshot(t, stolen, 2, nil)
	untrusted, err := stolen.signer().Encode(second.Key().String(), &foreign.Envelope, maxEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	for name, bytes := range map[string][]byte{
		"junk":                    []byte("junk"),
		"empty":                   nil,
		"too large":               bytes.Repeat([]byte("x"), maxEnvelope+1),
		"another envelope":        other,
		"unsigned, a later one":   []byte(`{"payload":"{\"format\":2}","signature":""}`),
		"of a key nobody trusts":  untrusted,
		"of the format, unsigned": []byte(`{"payload":"{}","signature":""}`),
	} {
		t.Run(name, func(t *testing.T) {
			b.Overwrite(second.Key().String(), bytes)
			e, err := s.GetEnvelope(t.Context(), second.Key())
			if err != nil || e.SHA256 != second.SHA256 || e.Trust != Trusted || e.Overwritten == nil {
				t.Fatalf("%+v, %v", e, err)
			}
			newest, passed, err := s.Newest(t.Context(), testSource, Which{})
			if err != nil || newest == nil || newest.ID != second.ID || len(passed) != 1 {
				t.Errorf("newest %+v, passed over %v, %v", newest, passed, err)
			}
		})
	}
}

// TestNoOlderVersionOfAnEnvelopeIsTakenWithoutAReason: a deleted envelope is gone, and without a
// trusted key nothing tells which version is the right one.
func TestNoOlderVersionOfAnEnvelopeIsTakenWithoutAReason(t *testing.T) {
	s, b, _, first := versionedStore(t, false)
	if e, err := s.GetEnvelope(t.Context(), first.Key()); err != nil || e.Overwritten != nil {
		t.Errorf("not overwritten: %v, %v", e.Overwritten, err)
	}
	b.Hide(first.Key().String())
	if _, err := s.GetEnvelope(t.Context(), first.Key()); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	plain, b, _, first := versionedStore(t, true)
	b.Overwrite(first.Key().String(), []byte("junk"))
	if _, err := plain.GetEnvelope(t.Context(), first.Key()); !IsCorrupt(err) {
		t.Errorf("plain: %v", err)
	}
}

// TestAnOverwrittenMarkerIsReadFromAnOlderVersion: a trusted envelope proves which mgmtd.json is
// that of the store. Readers and writers go on.
func TestAnOverwrittenMarkerIsReadFromAnOlderVersion(t *testing.T) {
	other := []byte(`{"format":1,"storeID":"00000000000000000000000000000001",` +
		`"created":"2026-01-02T03:04:05Z","encryption":"age"}`)
	for name, spoil := range map[string]func(*faultbucket.Versioned){
		"junk":           func(b *faultbucket.Versioned) { b.Overwrite(markerKey, []byte("junk")) },
		"deleted":        func(b *faultbucket.Versioned) { b.Hide(markerKey) },
		"a later format": func(b *faultbucket.Versioned) { b.Overwrite(markerKey, []byte(`{"format":3}`)) },
		"another one":    func(b *faultbucket.Versioned) { b.Overwrite(markerKey, other) },
		"not encrypted": func(b *faultbucket.Versioned) {
			data, err := bucket.ReadAll(t.Context(), b, markerKey, maxMarker)
			if err != nil {
				t.Fatal(err)
			}
			b.Overwrite(markerKey, bytes.Replace(data, []byte(`"age"`), []byte(`"none"`), 1))
		},
		"another one below": func(b *faultbucket.Versioned) {
			b.Overwrite(markerKey, other)
			b.Overwrite(markerKey, []byte(`{"format":1}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b, o, first := versionedStore(t, false)
			spoil(b)
			b.Overwrite("snapshots/"+testSource+"/99991231T235959.999Z-000000000000.json", []byte("x"))
			mustWriteSnapshot(t, s, 2, nil)
			again := mustOpen(t, o)
			if again.ID() != s.ID() || !again.Encrypted() || again.MarkerOverwritten() == nil {
				t.Errorf("opened as %s, want %s; overwritten: %v", again.ID(), s.ID(),
					again.MarkerOverwritten())
			}
			if e, err := again.GetEnvelope(t.Context(), first.Key()); err != nil || e.Trust != Trusted {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
}

// TestNoMarkerIsTakenWithoutAProof: an older mgmtd.json that no trusted envelope names may be that
// of another store.
func TestNoMarkerIsTakenWithoutAProof(t *testing.T) {
	_, b, o, first := versionedStore(t, false)
	o.Create = false
	others := o
	others.Keys = mustLoad(t, testKeys(t)) // which trust another key
	for _, data := range []string{"junk", `{"format":3}`} {
		b.Overwrite(markerKey, []byte(data))
		if _, err := Open(t.Context(), others); err == nil {
			t.Errorf("%s: opened without an envelope of a trusted key", data)
		}
	}
	b.Hide(first.Key().String())
	if _, err := Open(t.Context(), o); err != nil {
		t.Errorf("a hidden envelope proves as much: %v", err)
	}
	b.Forget(first.Key().String())
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("opened without an envelope")
	}
}
