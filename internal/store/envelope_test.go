package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

func TestEnvelopeIsReadAsItWasWritten(t *testing.T) {
	s, root := newTestStore(t, false)
	first := mustWriteSnapshot(t, s, 1, nil)
	e := testEnvelope(first.Tree, 2)
	e.Parent = &Parent{ID: first.ID, SHA256: first.SHA256}
	e.Source.Name, e.NotInCut, e.Partial, e.Interval, e.Bytes = "prod <&> ü",
		[]string{"Foo.example.org"}, true, 30, 12345
	e.Recipients = []string{"none"}
	e.Time = time.Date(2026, 1, 2, 4, 5, 6, 123_456_789, time.FixedZone("CET", 3600))
	put, err := s.PutEnvelope(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if want := "snapshots/" + testSource + "/20260102T030506.123Z-" + string(e.ID) +
		".json"; put.Key().String() != want {
		t.Errorf("key %s, want %s", put.Key(), want)
	}
	got, err := s.GetEnvelope(t.Context(), put.Key())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(put, got); diff != "" {
		t.Errorf("put and get differ:\n%s", diff)
	}
	e.Format, e.StoreID, e.Time = Format, s.ID(), time.Date(2026, 1, 2, 3, 5, 6, 123e6, time.UTC)
	e.Recipients = s.keys.IdentityFingerprints() // by the writer's keys, whatever the caller says
	if diff := cmp.Diff(e, got.Envelope); diff != "" {
		t.Errorf("envelope (-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(filepath.Join(root, put.Key().String()))
	if err != nil {
		t.Fatal(err)
	}
	if got.SHA256 != layout.SHA256Hex(data) || got.Size != int64(len(data)) {
		t.Error("hash or size is not that of the stored file")
	}
	if got.Trust != Trusted || len(got.KeyID) != 16 || got.RequireTrusted() != nil {
		t.Errorf("trust %s by %s", got.Trust, got.KeyID)
	}
	var doc map[string]string
	if err := json.Unmarshal(data, &doc); err != nil || len(doc) != 2 ||
		!strings.Contains(doc["payload"], "prod <&> ü") {
		t.Errorf("stored document %v, %v", doc, err)
	}
	again, err := s.PutEnvelope(t.Context(), e)
	if err != nil || again.SHA256 != got.SHA256 {
		t.Errorf("put again: %v", err)
	}
	e.Sequence = 3
	if _, err := s.PutEnvelope(t.Context(), e); !errors.Is(err, ErrExists) {
		t.Errorf("another envelope under the same key: %v, want ErrExists", err)
	}
}

func TestPutEnvelopeRefusesWhatBreaksTheFormat(t *testing.T) {
	s, _ := newTestStore(t, false)
	first := mustWriteSnapshot(t, s, 1, nil)
	tests := map[string]func(*Envelope){
		"no id":               func(e *Envelope) { e.ID = "" },
		"id in upper case":    func(e *Envelope) { e.ID = "ABCDEFABCDEF" },
		"no tree":             func(e *Envelope) { e.Tree = "" },
		"tree is a pack":      func(e *Envelope) { e.Tree = key(KindPack, true, "x") },
		"tree not stored":     func(e *Envelope) { e.Tree = key(KindTree, false, "x") },
		"no source":           func(e *Envelope) { e.Source.UID = "" },
		"source is a path":    func(e *Envelope) { e.Source.UID = "../x" },
		"no time":             func(e *Envelope) { e.Time = time.Time{} },
		"sequence 0":          func(e *Envelope) { e.Sequence = 0 },
		"parent without hash": func(e *Envelope) { e.Parent = &Parent{ID: NewSnapshotID()} },
		"negative count":      func(e *Envelope) { e.Counts.Objects = -1 },
		"escape in the name":  func(e *Envelope) { e.Source.Name = "\x1b[2J" },
		"foreign store":       func(e *Envelope) { e.StoreID = newStoreID() },
		"too large": func(e *Envelope) {
			e.NotInCut = slicesRepeat(strings.Repeat("k", 512),
				2100)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			e := testEnvelope(first.Tree, 2)
			change(&e)
			if _, err := s.PutEnvelope(t.Context(), e); err == nil {
				t.Error("it was written")
			}
		})
	}
	e := testEnvelope(key(KindTree, false, "x"), 2)
	if _, err := s.PutEnvelope(t.Context(), e); !errors.Is(err, ErrNotFound) {
		t.Errorf("tree not stored: %v, want ErrNotFound", err)
	}
	if keys, err := s.Snapshots(t.Context(), ""); err != nil || len(keys) != 1 {
		t.Errorf("snapshots %v, %v", keys, err)
	}
}

func slicesRepeat(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestEnvelopeReportsWhoSignedIt(t *testing.T) {
	o, otherTrusted, root := testKeys(t), testKeys(t).TrustedKeyFiles, t.TempDir()
	s := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, o), Create: true})
	signed := mustWriteSnapshot(t, s, 1, nil)
	_, signer, _ := strings.Cut(s.keys.String(), "signing key ")
	unsigning := mustOpen(t, Options{Bucket: directory.New(root),
		Keys: mustLoad(t, KeyOptions{Recipients: o.Recipients})})
	unsigned := mustWriteSnapshot(t, unsigning, 2, nil)
	others := mustLoad(t, KeyOptions{TrustedKeyFiles: otherTrusted})
	both := mustLoad(t, KeyOptions{TrustedKeyFiles: slices.Concat(otherTrusted, o.TrustedKeyFiles)})
	tests := []struct {
		name     string
		envelope Signed
		keys     *Keys
		want     Trust
		keyID    string
	}{
		{"signed, trusted", signed, s.keys, Trusted, signer},
		{"signed, one of two trusted", signed, both, Trusted, signer},
		{"signed by an unknown key", signed, others, UnknownSigner, signer},
		{"signed, nothing to check with", signed, nil, Unchecked, signer},
		{"not signed", unsigned, s.keys, Unsigned, ""},
		{"not signed, nothing to check with", unsigned, nil, Unsigned, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustOpen(t, Options{Bucket: directory.New(root), Keys: tt.keys})
			got, err := s.GetEnvelope(t.Context(), tt.envelope.Key())
			if err != nil || got.Trust != tt.want || got.KeyID != tt.keyID {
				t.Fatalf("trust %s by %q, %v, want %s by %q", got.Trust, got.KeyID, err, tt.want, tt.keyID)
			}
			err = got.RequireTrusted()
			if e, ok := errors.AsType[*TrustError](err); ok == (tt.want == Trusted) || ok &&
				(e.Error() == "" || e.Hint() == "") {
				t.Errorf("RequireTrusted: %v", err)
			}
		})
	}
}

func TestDamagedEnvelopeIsCorrupt(t *testing.T) {
	s, root := newTestStore(t, false)
	signed := mustWriteSnapshot(t, s, 1, nil)
	other := mustWriteSnapshot(t, s, 2, &signed)
	otherData, err := os.ReadFile(filepath.Join(root, other.Key().String()))
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(f *document.File)) func([]byte) []byte {
		return func(b []byte) []byte {
			var f document.File
			if err := json.Unmarshal(b, &f); err != nil {
				t.Fatal(err)
			}
			change(&f)
			data, err := document.Encode(f)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
	replace := func(old, with string) func([]byte) []byte {
		return edit(func(f *document.File) {
			if !strings.Contains(f.Payload, old) {
				t.Fatalf("payload has no %s", old)
			}
			f.Payload = strings.Replace(f.Payload, old, with, 1)
		})
	}
	unsigned := func(change func([]byte) []byte) func([]byte) []byte {
		return func(b []byte) []byte {
			return edit(func(f *document.File) { f.Signature = "" })(
				change(b))
		}
	}
	tests := map[string]func([]byte) []byte{
		"payload changed":            replace(`"objects":1`, `"objects":2`),
		"white space in the payload": replace(`{`, `{ `),
		"another's signature": edit(func(f *document.File) {
			f.Signature = mustFile(t,
				otherData).Signature
		}),
		"signature is junk":         edit(func(f *document.File) { f.Signature = "trust me" }),
		"replayed under a new name": func([]byte) []byte { return otherData },
		"another file":              func([]byte) []byte { return []byte(`{"kind":"Secret"}`) },
		"unknown outer field": func(b []byte) []byte {
			return bytes.Replace(b,
				[]byte("}\n"), []byte(`,"more":1}`), 1)
		},
		"payload twice": func(b []byte) []byte {
			return append([]byte(`{"payload":"{}",`), b[1:]...)
		},
		"payload twice in another case": func(b []byte) []byte {
			return append([]byte(`{"Payload":"{}",`), b[1:]...)
		},
		"text after": func(b []byte) []byte { return append(b, "{}"...) },
		"cut off":    func(b []byte) []byte { return b[:len(b)-3] },
		"not UTF-8": func(b []byte) []byte {
			return bytes.Replace(b,
				[]byte("prod"), []byte("pr\xffd"), 1)
		},
		"too large": func(b []byte) []byte {
			return append(b,
				bytes.Repeat([]byte(" "), maxEnvelope)...)
		},
		"unsigned, other id":     unsigned(replace(string(signed.ID), "0123456789ab")),
		"unsigned, other source": unsigned(replace(testSource, testSource[:35]+"2")),
		"unsigned, other time": unsigned(replace("2026-01-02T03:05:05",
			"2026-01-02T03:05:06")),
		"unsigned, time with microseconds": unsigned(replace("05.678Z", "05.6781Z")),
		"unsigned, tree is a path":         unsigned(replace(`"tree":"trees/`, `"tree":"../trees/`)),
		"unsigned, sequence 0":             unsigned(replace(`"sequence":1`, `"sequence":0`)),
		"unsigned, sequence too large":     unsigned(replace(`"sequence":1`, `"sequence":1e30`)),
		"unsigned, field twice": unsigned(replace(`"sequence":1`,
			`"sequence":1,"Sequence":2`)),
		"unsigned, escape in the name": unsigned(replace(`"prod"`, `"\u001b[2J"`)),
		"unsigned, no format":          unsigned(replace(`"format":1,`, ``)),
		"unsigned, payload is not JSON": unsigned(
			edit(func(f *document.File) { f.Payload = "hello" })),
		"unsigned, nested without end": unsigned(replace(`"sequence":1`, `"sequence":1,"x":`+
			strings.Repeat("[", 5000)+strings.Repeat("]", 5000))),
		"unsigned, negative count in payload": unsigned(replace(`"units":1`, `"units":-1`)),
	}
	for name, change := range damages {
		tests[name] = change
	}
	// These only change the newline at the end, which JSON does not mind: the hash that a child
	// holds does.
	delete(tests, "flipped bit at the end")
	delete(tests, "truncated")
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			var good []byte
			rewrite(t, root, signed.Key().String(), func(b []byte) []byte {
				good = bytes.Clone(b)
				return change(b)
			})
			_, err := s.GetEnvelope(t.Context(), signed.Key())
			wantCorrupt(t, err)
			rewrite(t, root, signed.Key().String(), func([]byte) []byte { return good })
		})
	}
	t.Run("future format", func(t *testing.T) {
		var good []byte
		rewrite(t, root, signed.Key().String(), func(b []byte) []byte {
			good = bytes.Clone(b)
			return unsigned(replace(`"format":1,`, `"format":2,`))(b)
		})
		_, err := s.GetEnvelope(t.Context(), signed.Key())
		if f, ok := errors.AsType[*FormatError](err); !ok || f.Format != 2 ||
			f.Key != signed.Key().String() {
			t.Errorf("error %v, want *FormatError", err)
		}
		rewrite(t, root, signed.Key().String(), func([]byte) []byte { return good })
	})
	t.Run("a later field of format 1", func(t *testing.T) {
		rewrite(t, root, signed.Key().String(), unsigned(replace(`"sequence":1`,
			`"sequence":1,"later":{"a":[1]}`)))
		if _, err := s.GetEnvelope(t.Context(), signed.Key()); err != nil {
			t.Error(err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		_, err := s.GetEnvelope(t.Context(), EnvelopeKey{Source: testSource, Time: testTime,
			ID: "0123456789ab"})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("error %v, want ErrNotFound", err)
		}
	})
}

func mustFile(t *testing.T, data []byte) document.File {
	t.Helper()
	var f document.File
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEnvelopeOfAnotherStoreIsForeign(t *testing.T) {
	s, root := newTestStore(t, false)
	signed := mustWriteSnapshot(t, s, 1, nil)
	otherRoot := t.TempDir()
	mustOpen(t, Options{Bucket: directory.New(otherRoot), Keys: s.keys, Create: true})
	data, err := os.ReadFile(filepath.Join(root, signed.Key().String()))
	if err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, Options{Bucket: directory.New(otherRoot), Keys: s.keys})
	if err := other.bucket.Put(t.Context(), signed.Key().String(), data); err != nil {
		t.Fatal(err)
	}
	if _, err := other.GetEnvelope(t.Context(), signed.Key()); !errors.Is(err, ErrForeign) {
		t.Errorf("error %v, want ErrForeign", err)
	}
}

// TestFieldsOfALaterWriterAreIgnored: format 1 may gain fields (docs/format.md), as it gained
// scope and recipients. A version from before them reads the envelopes of today.
func TestFieldsOfALaterWriterAreIgnored(t *testing.T) {
	s, _ := newTestStore(t, false)
	first := mustWriteSnapshot(t, s, 1, nil)
	later := struct {
		Envelope
		Later map[string][]string `json:"later"`
	}{first.Envelope, map[string][]string{"more": {"of it"}}}
	later.ID = NewSnapshotID()
	key := later.Key()
	data, err := s.signer().Encode(key.String(), &later, maxEnvelope)
	if err == nil {
		err = s.bucket.Put(t.Context(), key.String(), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.GetEnvelope(t.Context(), key)
	if err != nil || got.Trust != Trusted || got.Tree != first.Tree {
		t.Errorf("%+v, %v", got, err)
	}
}
