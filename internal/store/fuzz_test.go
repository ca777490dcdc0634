package store

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/pack"
	"github.com/mgmtd/mgmtd/internal/store/record"
	"github.com/mgmtd/mgmtd/internal/store/seal"
	"github.com/mgmtd/mgmtd/internal/store/tree"
)

// The parsers of bytes that anybody may have written. They must not crash, and what they accept
// must be the same when it is written again.

func FuzzEnvelope(f *testing.F) {
	s := &Store{marker: marker{StoreID: strings.Repeat("0", 32)}, limits: formatLimits()}
	e := testEnvelope(key(KindTree, false, "x"), 2)
	e.Format, e.StoreID, e.Parent = Format, s.ID(), &Parent{ID: e.ID, SHA256: layout.SHA256Hex(nil)}
	data, err := s.signer().Encode(e.Key().String(), &e, maxEnvelope)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytes.Replace(data, []byte(`\"format\":1`), []byte(`\"format\":2`), 1))
	f.Add([]byte(`{"payload":"{}","signature":""}`))
	f.Add([]byte(`{"payload":"{\"format\":1}",` +
		`"signature":"untrusted comment: \nRUQ=\ntrusted comment: \n"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, signature, err := s.signer().Verify("x", data)
		if err != nil {
			return
		}
		if trust := signature.Trust; trust == Trusted || trust == UnknownSigner {
			t.Errorf("trust %s without any key", trust)
		}
		var e Envelope
		if document.Decode(payload, &e) != nil || e.Validate() != nil {
			return
		}
		if k, err := ParseEnvelopeKey(e.Key().String()); err != nil || k != e.Key() {
			t.Errorf("key %v: %v", e.Key(), err)
		}
		e.StoreID, e.Format = s.ID(), Format
		again, err := s.signer().Encode(e.Key().String(), &e, maxEnvelope)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.openEnvelope(e.Key(), again); err != nil {
			t.Error(err)
		}
	})
}

func FuzzTree(f *testing.F) {
	text, err := tree.Encode(Tree{Shards: tree.Sorted([]Key{key(KindShard, true, "1"),
		key(KindShard, true, "2")}), Packs: []Key{key(KindPack, true, "1")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{\"shards\":[],\"packs\":[]}\n"))
	f.Add([]byte(`{"shards":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		decoded, err := tree.Decode(text)
		if err != nil {
			return
		}
		again, err := tree.Encode(decoded)
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q became %q, %v", text, again, err)
		}
	})
}

func FuzzPack(f *testing.F) {
	good := makeTar(f, file(nameA, "{}"), file(nameB, strings.Repeat("x", 1000)),
		file("core/Secret/n/"+strings.Repeat("l", 200)+".json", ""))
	f.Add(compress(f, good), false)
	f.Add(good, true)
	f.Add(good[:512], true)
	f.Add(compress(f, make([]byte, 1<<20)), false)
	lim := smallLimits()
	f.Fuzz(func(t *testing.T, data []byte, isTar bool) {
		if !isTar {
			r, err := seal.Decompress(bytes.NewReader(data), lim.maxPlain)
			if err != nil {
				return
			}
			defer r.Close()
			_ = pack.Read(r, lim.pack, checkFile(t, lim))
			return
		}
		_ = pack.Read(bytes.NewReader(data), lim.pack, checkFile(t, lim))
	})
}

func checkFile(t *testing.T, lim limits) func(string, []byte) error {
	return func(name string, body []byte) error {
		if _, err := ParseEntryName(name); err != nil || int64(len(body)) > lim.pack.MaxObject {
			t.Errorf("took %q with %d bytes: %v", name, len(body), err)
		}
		return nil
	}
}

// fuzzStore is a store that trusts one key and writes with it.
func fuzzStore(f *testing.F) *Store {
	f.Helper()
	return &Store{
		marker: marker{StoreID: strings.Repeat("0", 32), Encryption: encryptNo}, limits: formatLimits(),
		keys: mustLoad(f, KeyOptions{SigningKeyFile: testKeys(f).SigningKeyFile}),
	}
}

func FuzzOwner(f *testing.F) {
	s := fuzzStore(f)
	o := Owner{
		Format: Format, StoreID: s.ID(), WorkloadID: testSource, Workload: "team-a/web",
		Owner: Source{UID: testSource, Name: "prod", KubernetesVersion: "v1.36.1"}, Epoch: 3,
		Operation: "1a2b3c4d5e6f", Time: testTime,
	}
	data, err := s.signer().Encode(record.OwnerKey(o.WorkloadID), &o, maxOwner)
	if err != nil {
		f.Fatal(err)
	}
	unsigned, err := (&Store{marker: s.marker}).signer().Encode(record.OwnerKey(o.WorkloadID), &o,
		maxOwner)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(unsigned)
	f.Add(bytes.Replace(unsigned, []byte(`\"epoch\":3`), []byte(`\"epoch\":-3`), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := s.openOwner(record.OwnerKey(o.WorkloadID), data, "")
		if err != nil {
			return
		}
		if got.Trust == Trusted && got.Owner != o {
			t.Errorf("trusted, though it is not what was signed: %+v", got.Owner)
		}
		if got.WorkloadID != testSource || got.Epoch < 1 || got.StoreID != s.ID() {
			t.Errorf("took %+v", got.Owner)
		}
		again, err := s.signer().Encode(record.OwnerKey(o.WorkloadID), &got.Owner, 2*maxOwner)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > maxOwner {
			return // escaped, it takes more than it did
		}
		if second, err := s.openOwner(record.OwnerKey(o.WorkloadID), again, ""); err != nil ||
			second.Owner != got.Owner || second.Trust != Trusted {
			t.Errorf("%+v became %+v, %v", got.Owner, second.Owner, err)
		}
	})
}

// FuzzOperationRecord: a resume does what a record says, so nothing but what was signed may be
// returned.
func FuzzOperationRecord(f *testing.F) {
	s := fuzzStore(f)
	text := []byte("{\"changes\":[]}\n")
	writer := *s
	writer.plain = true
	signed, err := writer.SealOperationRecord(testSource, 1, testHead, text)
	if err != nil {
		f.Fatal(err)
	}
	unsigned, err := (&Store{marker: s.marker, plain: true, limits: s.limits}).SealOperationRecord(
		testSource, 1, testHead, text)
	if err != nil {
		f.Fatal(err)
	}
	head, _, _ := bytes.Cut(signed.stored, []byte("\n"))
	f.Add(signed.stored)
	f.Add(unsigned.stored)
	f.Add(append(bytes.Clone(head), "\n{}"...))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, stored []byte) {
		if head, got, err := s.openOperationRecord(signed.Key.String(), stored); err == nil &&
			(!bytes.Equal(got, text) || head != testHead) {
			t.Errorf("took %+v %q, which nobody signed", head, got)
		}
		if parsed, ok := record.ParseOperationKey(string(stored)); ok &&
			parsed.String() != string(stored) {
			t.Errorf("key %q became %q", stored, parsed)
		}
	})
}

// oneKey is a bucket whose every key has the same bytes.
type oneKey struct {
	bucket.Bucket
	data []byte
}

func (b oneKey) Get(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

func FuzzMarker(f *testing.F) {
	f.Add([]byte(`{"format":1,"storeID":"5a0c7f0be2f1439d8f0c6f4f1f0b2a11",` +
		`"created":"2026-01-02T03:04:05Z","encryption":"age"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"storeID":"5A0C","encryption":"none"}`))
	f.Add([]byte(`{"format":2,"payload":"{\"format\":2,\"storeID\":` +
		`\"5a0c7f0be2f1439d8f0c6f4f1f0b2a11\",\"created\":\"2026-01-02T03:04:05Z\",` +
		`\"encryption\":\"age\",\"origin\":\"6b1d8f1cf3e2540e9e1d7e5e2e1e3b22\"}","signature":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMarker(t.Context(), Options{Bucket: oneKey{data: data}})
		if err != nil {
			return
		}
		text, err := document.Encode(m)
		if m.Origin != "" {
			text, err = m.encode(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if again, err := readMarker(t.Context(), Options{Bucket: oneKey{data: text}}); err != nil ||
			again.StoreID != m.StoreID || again.Origin != m.Origin || again.Encryption != m.Encryption ||
			!again.Created.Equal(m.Created) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzPruneRecord(f *testing.F) {
	s := &Store{marker: marker{StoreID: strings.Repeat("0", 32)}, limits: formatLimits()}
	const key = "prunes/20260102T030405.678Z-0123456789ab.json"
	good, err := s.signer().Encode(key, &record.Prune{Header: s.signer().Header(key), Time: testTime,
		Removed: map[string][]Range{testSource: {{From: 1, To: 3}, {From: 5, To: 9}}},
		Links: map[string][]record.Link{testSource: {{SHA256: layout.SHA256Hex(nil),
			Parent: Parent{ID: "0123456789ab", SHA256: layout.SHA256Hex(nil)}}}}}, maxPruneRecord)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, int64(4), int64(7))
	f.Add(bytes.Replace(good, []byte(`\"to\":9`), []byte(`\"to\":9223372036854775807`), 1), int64(1),
		int64(9))
	f.Fuzz(func(t *testing.T, data []byte, from, to int64) {
		var r record.Prune
		if signature, err := s.signer().Open(key, data, &r); err != nil {
			return
		} else if trust := signature.Trust; trust == Trusted || trust == UnknownSigner {
			t.Errorf("trust %s without any key", trust)
		}
		for _, l := range bySHA256(r.Links[testSource])[layout.SHA256Hex(nil)] {
			if !l.Valid() {
				t.Errorf("it leads to %v", l)
			}
		}
		for _, ranges := range r.Removed {
			merged := record.MergeRanges(ranges)
			for i, one := range merged {
				if one.From > one.To || i > 0 && one.From <= merged[i-1].To {
					t.Errorf("%v became %v", ranges, merged)
				}
			}
			for _, gap := range record.Unexplained(from, to, merged) {
				if gap.From < from || gap.To > to || gap.From > gap.To {
					t.Errorf("of %d to %d, %v leaves %v", from, to, merged, gap)
				}
			}
		}
	})
}

func FuzzPin(f *testing.F) {
	s := &Store{marker: marker{StoreID: strings.Repeat("0", 32)}, limits: formatLimits()}
	k := EnvelopeKey{Source: testSource, Time: testTime, ID: "0123456789ab"}
	good, err := s.signer().Encode(record.PinKey(k), &Pin{Header: s.signer().Header(record.PinKey(k)),
		Source: k.Source, ID: k.ID, Time: testTime, Reason: "why"}, maxPin)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte("why"), []byte(`\\u001b[2J`), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := s.openPin(k, data); err == nil && (!document.Printable(p.Reason) || p.ID != k.ID ||
			p.Source != k.Source || p.Key != record.PinKey(k)) {
			t.Errorf("took %+v", p)
		}
	})
}
