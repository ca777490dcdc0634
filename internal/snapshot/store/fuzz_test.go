package store

import (
	"bytes"
	"strings"
	"testing"
)

// The parsers of bytes that a stranger may have written. Beside not crashing, what they take must come out the same when written again.

func FuzzEnvelope(f *testing.F) {
	s := &Store{marker: marker{StoreID: strings.Repeat("0", 32)}, limits: formatLimits()}
	e := testEnvelope(key(KindTree, false, "x"), 2)
	e.Format, e.StoreID, e.Parent = Format, s.ID(), &Parent{ID: e.ID, SHA256: sha256Hex(nil)}
	data, err := s.encodeEnvelope(&e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytes.Replace(data, []byte(`\"format\":1`), []byte(`\"format\":2`), 1))
	f.Add([]byte(`{"payload":"{}","signature":""}`))
	f.Add([]byte(`{"payload":"{\"format\":1}","signature":"untrusted comment: \nRUQ=\ntrusted comment: \n"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, signature, err := decodeEnvelopeFile(data)
		if err != nil {
			return
		}
		if trust, _, err := s.keys.check(payload, signature); err == nil && (trust == Trusted || trust == Stranger) {
			t.Errorf("trust %s without any key", trust)
		}
		e, err := decodePayload(payload)
		if err != nil {
			return
		}
		if k, err := ParseEnvelopeKey(e.Key().String()); err != nil || k != e.Key() {
			t.Errorf("key %v: %v", e.Key(), err)
		}
		again, err := s.encodeEnvelope(&e)
		if err != nil {
			t.Fatal(err)
		}
		payload, _, err = decodeEnvelopeFile(again)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodePayload(payload); err != nil {
			t.Error(err)
		}
	})
}

func FuzzTree(f *testing.F) {
	text, err := encodeTree(Tree{Shards: sortedKeys([]Key{key(KindShard, true, "1"), key(KindShard, true, "2")}), Packs: []Key{key(KindPack, true, "1")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{\"shards\":[],\"packs\":[]}\n"))
	f.Add([]byte(`{"shards":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tree, err := decodeTree(text)
		if err != nil {
			return
		}
		again, err := encodeTree(tree)
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q became %q, %v", text, again, err)
		}
	})
}

func FuzzPack(f *testing.F) {
	good := makeTar(f, file(nameA, "{}"), file(nameB, strings.Repeat("x", 1000)), file("core/Secret/n/"+strings.Repeat("l", 200)+".json", ""))
	f.Add(compress(f, good), false)
	f.Add(good, true)
	f.Add(good[:512], true)
	f.Add(compress(f, make([]byte, 1<<20)), false)
	lim := smallLimits()
	f.Fuzz(func(t *testing.T, data []byte, isTar bool) {
		if !isTar {
			r, err := decompress(bytes.NewReader(data), lim.maxPlain)
			if err != nil {
				return
			}
			defer r.Close()
			_ = readTar(r, lim, checkFile(t, lim))
			return
		}
		_ = readTar(bytes.NewReader(data), lim, checkFile(t, lim))
	})
}

func checkFile(t *testing.T, lim limits) func(string, []byte) error {
	return func(name string, body []byte) error {
		if _, err := ParseEntryName(name); err != nil || int64(len(body)) > lim.maxObject {
			t.Errorf("took %q with %d bytes: %v", name, len(body), err)
		}
		return nil
	}
}

func FuzzEntryName(f *testing.F) {
	for _, name := range []string{nameA, nameB, "core/Namespace/_/fleet.json", "../x/y/z.json", "core/Secret/ns/..json", "a/b/c/d.json"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		e, err := ParseEntryName(name)
		if err != nil {
			return
		}
		if again, err := EntryName(e); err != nil || again != name {
			t.Errorf("%q became %q, %v", name, again, err)
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add(string(key(KindPack, true, "x")))
	f.Add(EnvelopeKey{Source: testSource, Time: testTime, ID: "0123456789ab"}.String())
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseKey(s)
		e, envelopeErr := ParseEnvelopeKey(s)
		if err == nil && (ValidateKey(s) != nil || keyOf(k.Kind(), strings.HasSuffix(s, ".age"), nil).Kind() != k.Kind()) {
			t.Errorf("%q is a key but none of a bucket", s)
		}
		if envelopeErr == nil && (ValidateKey(s) != nil || e.String() != s) {
			t.Errorf("%q became %q", s, e)
		}
	})
}
