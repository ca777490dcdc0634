package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeLimits writes a file of trusted keys beside signing.pub.
func writeLimits(t *testing.T, o Options, text string) string {
	t.Helper()
	file := filepath.Join(filepath.Dir(o.SigningKeyFile), "trusted.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAFileOfTrustedKeysHasTheirLimits(t *testing.T) {
	o := testKeys(t)
	file := writeLimits(t, o, "trustedKeys:\n- file: signing.pub\n  purposes: [snapshot]\n"+
		"  sources: [u1]\n")
	signer, reader := mustLoad(t, o), mustLoad(t, Options{TrustedKeyFiles: []string{file}})
	text, err := signer.Sign([]byte("m"), "c")
	if err != nil {
		t.Fatal(err)
	}
	s, err := reader.Verify([]byte("m"), text)
	if err != nil || s.Trust != Limited {
		t.Fatalf("without a claim: %s, %v", s.Trust, err)
	}
	for source, want := range map[string]Trust{"u1": Trusted, "u2": Limited} {
		if got := s.For(Claim{Purpose: ForSnapshot, Sources: []string{source}}); got.Trust != want {
			t.Errorf("%s: %s", source, got.Trust)
		}
	}
}

func TestLoadRefusesLimitsThatContradictThemselves(t *testing.T) {
	hash := strings.Repeat("a", 64)
	for name, tt := range map[string]struct{ text, want string }{
		"no key":          {"trustedKeys: []\n", "names none"},
		"another field":   {"trustedKeys:\n- {file: signing.pub, source: [u]}\n", "unknown field"},
		"no file":         {"trustedKeys:\n- {sources: [u]}\n", "file is missing"},
		"empty sources":   {"trustedKeys:\n- {file: signing.pub, sources: []}\n", "empty list"},
		"another purpose": {"trustedKeys:\n- {file: signing.pub, purposes: [all]}\n", "none of snapshot"},
		"ownership of one source": {"trustedKeys:\n- {file: signing.pub, sources: [u], purposes: " +
			"[ownership]}\n", "never trusted for ownership records"},
		"another source": {"trustedKeys:\n- {file: signing.pub, sources: [u], lastTrusted: [{source: v," +
			" sequence: 1, hash: " + hash + "}]}\n", "not among the sources"},
		"no hash": {"trustedKeys:\n- {file: signing.pub, lastTrusted: [{source: v, sequence: 1}]}\n",
			"hash is not"},
		"lastTrusted without a value": {"trustedKeys:\n- file: signing.pub\n  lastTrusted:\n",
			"lastTrusted has no value"},
		"lastTrusted with comments only": {"trustedKeys:\n- file: signing.pub\n  lastTrusted:\n" +
			"  # - {source: v}\n", "lastTrusted has no value"},
		"sources without a value": {"trustedKeys:\n- {file: signing.pub, sources: ~}\n", "sources has no"},
		"purposes without a value": {"trustedKeys:\n- {file: signing.pub, purposes: null}\n",
			"purposes has no"},
		"named twice": {"trustedKeys:\n- {file: signing.pub, sources: [u]}\n- {file: signing.pub}\n",
			"named more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testKeys(t)
			_, err := Load(Options{TrustedKeyFiles: []string{writeLimits(t, o, tt.text)}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestAnotherEntryLiftsNoLimits: the one without limits may have been forgotten.
func TestAnotherEntryLiftsNoLimits(t *testing.T) {
	o := testKeys(t)
	o.TrustedKeys = []TrustedKey{{File: o.TrustedKeyFiles[0], Limits: Limits{Sources: []string{"u"}}}}
	if _, err := Load(o); err == nil {
		t.Error("a key counts without and with limits")
	}
	o.TrustedKeyFiles = nil
	k := mustLoad(t, o)
	if k.MaySign(Claim{Purpose: ForSnapshot, Sources: []string{"v"}}) == nil {
		t.Error("the signing key has no limits")
	}
	o.TrustedKeys[0].LastTrusted = []LastTrusted{}
	if _, err := Load(o); err == nil {
		t.Error("a stolen key signs on")
	}
}

// TestTrustDigestDiffersWithEveryLimit: what is remembered as trusted is trusted with these keys
// and limits only.
func TestTrustDigestDiffersWithEveryLimit(t *testing.T) {
	o, other := testKeys(t), testKeys(t)
	file, a, b := o.TrustedKeyFiles[0], strings.Repeat("a", 64), strings.Repeat("b", 64)
	limited := func(l Limits) Options { return Options{TrustedKeys: []TrustedKey{{File: file, Limits: l}}} }
	seen := map[string]string{}
	for name, o := range map[string]Options{
		"none": {}, "one": {TrustedKeyFiles: []string{file}},
		"another": {TrustedKeyFiles: other.TrustedKeyFiles},
		"two":     {TrustedKeyFiles: append(other.TrustedKeyFiles, file)},
		"source":  limited(Limits{Sources: []string{"u"}}), "sources": limited(Limits{Sources: []string{"u", "v"}}),
		"purpose":      limited(Limits{Purposes: []Purpose{ForSnapshot}}),
		"nothing left": limited(Limits{LastTrusted: []LastTrusted{}}),
		"last":         limited(Limits{LastTrusted: []LastTrusted{{Source: "u", Sequence: 2_000_000, Hash: a}}}),
		"earlier":      limited(Limits{LastTrusted: []LastTrusted{{Source: "u", Sequence: 2_000_001, Hash: a}}}),
		"another hash": limited(Limits{LastTrusted: []LastTrusted{{Source: "u", Sequence: 2_000_000, Hash: b}}}),
	} {
		digest := mustLoad(t, o).TrustDigest()
		if digest != mustLoad(t, o).TrustDigest() {
			t.Errorf("%s: the digest is another one each time", name)
		}
		if was, ok := seen[digest]; ok {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[digest] = name
	}
	if (*Keys)(nil).TrustDigest() != mustLoad(t, Options{}).TrustDigest() {
		t.Error("no keys have several digests")
	}
}
