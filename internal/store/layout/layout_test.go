package layout

import (
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"strings"
	"testing"
	"time"
)

func FuzzKey(f *testing.F) {
	f.Add(string(KeyOf(KindPack, true, []byte("x"))))
	f.Add(EnvelopeKey{Source: testSource,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), ID: "0123456789ab"}.String())
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseKey(s)
		e, envelopeErr := ParseEnvelopeKey(s)
		if err == nil && (bucket.ValidateKey(s) != nil || KeyOf(k.Kind(), strings.HasSuffix(s, ".age"),
			nil).Kind() != k.Kind()) {
			t.Errorf("%q is a key but none of a bucket", s)
		}
		if envelopeErr == nil && (bucket.ValidateKey(s) != nil || e.String() != s) {
			t.Errorf("%q became %q", s, e)
		}
	})
}

func TestParseKeyAcceptsTheExactFormOnly(t *testing.T) {
	for _, f := range forms {
		k := KeyOf(f.kind, f.encrypted, []byte("x"))
		if got, err := ParseKey(string(k)); err != nil || got != k || k.Kind() != f.kind ||
			k.SHA256() != SHA256Hex([]byte("x")) {
			t.Errorf("%s: %v, %v", k, got, err)
		}
		if err := bucket.ValidateKey(string(k)); err != nil {
			t.Errorf("%s is no key of a bucket: %v", k, err)
		}
		for _, bad := range []string{"", "x", "/" + string(k), string(k) + "/", string(k) + ".gz",
			strings.ToUpper(string(k)), strings.Replace(string(k), "/", "//", 1), string(k[1:]),
			string(k)[:20]} {
			if got, err := ParseKey(bad); err == nil {
				t.Errorf("%q parses as %s", bad, got)
			}
		}
	}
}

const testSource = "6f1b2c3d-0000-4000-8000-000000000001"

func TestParseEnvelopeKeyAcceptsTheExactFormOnly(t *testing.T) {
	good := EnvelopeKey{Source: testSource,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), ID: "0123456789ab"}
	if got, err := ParseEnvelopeKey(good.String()); err != nil || got != good {
		t.Fatalf("%v, %v", got, err)
	}
	if err := bucket.ValidateKey(good.String()); err != nil {
		t.Error(err)
	}
	s := good.String()
	for _, bad := range []string{
		"", "snapshots/", "snapshots/x.json", s + "x", s[1:], strings.Replace(s, ".678Z", ",678Z", 1),
		strings.Replace(s, "T", " ", 1), strings.Replace(s, "0123", "012G", 1),
		strings.Replace(s, "-0123456789ab", "-0123456789AB", 1), strings.Replace(s, testSource, "..", 1),
		strings.Replace(s, testSource, "a/b", 1), strings.Replace(s, "20260102", "20261302", 1),
	} {
		if k, err := ParseEnvelopeKey(bad); err == nil {
			t.Errorf("%q parses as %v", bad, k)
		}
	}
}
