package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The promise of docs/format.md: a snapshot opens without our tools. A test is skipped where the other tools are not installed.

func needTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// shell runs a script as an operator would type it, in dir.
func shell(t *testing.T, dir, script string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPackOpensWithTar(t *testing.T) {
	needTools(t, "tar", "zstd")
	s, root := newTestStore(t, true)
	long := "core/Secret/fleet/" + strings.Repeat("n", 240) + ".json"
	pack := writePack(t, s, map[string]string{nameA: `{"a":1}`, nameB: `{"b":2}`, long: "{}"})
	out := t.TempDir()
	shell(t, out, `zstd -qd < "$1" | tar x`, filepath.Join(root, string(pack)))
	for name, want := range map[string]string{nameA: `{"a":1}`, nameB: `{"b":2}`, long: "{}"} {
		if data, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

func TestPackOpensWithAge(t *testing.T) {
	needTools(t, "age", "tar", "zstd")
	o := testKeys(t)
	root := t.TempDir()
	s := mustOpen(t, Options{Bucket: NewDir(root), Keys: mustLoad(t, o), Create: true})
	pack := writePack(t, s, map[string]string{nameA: `{"a":1}`})
	out := t.TempDir()
	shell(t, out, `age -d -i "$1" "$2" | zstd -qd | tar x`, o.IdentityFiles[0], filepath.Join(root, string(pack)))
	if data, err := os.ReadFile(filepath.Join(out, nameA)); err != nil || string(data) != `{"a":1}` {
		t.Errorf("%q, %v", data, err)
	}
}

func TestEnvelopeOpensWithJQ(t *testing.T) {
	needTools(t, "jq", "zstd", "sha256sum")
	s, root := newTestStore(t, false)
	signed := mustWriteSnapshot(t, s, 1, nil)
	envelope := filepath.Join(root, signed.Key().String())
	if got := shell(t, root, `jq -rj .payload "$1" | jq -r .tree`, envelope); got != string(signed.Tree) {
		t.Errorf("tree %s, want %s", got, signed.Tree)
	}
	packs := shell(t, root, `zstd -qdc "$1" | jq -r '.packs[]'`, string(signed.Tree))
	if sum := shell(t, root, `sha256sum "$1"`, packs); !strings.HasPrefix(sum, Key(packs).SHA256()) {
		t.Errorf("hash of %s is %s", packs, sum)
	}
}

func TestSignatureChecksWithMinisign(t *testing.T) {
	needTools(t, "jq", "minisign")
	o := testKeys(t)
	root := t.TempDir()
	s := mustOpen(t, Options{Bucket: NewDir(root), Keys: mustLoad(t, o), Create: true})
	signed := mustWriteSnapshot(t, s, 1, nil)
	out := shell(t, t.TempDir(), `jq -rj .payload "$1" > payload; jq -rj .signature "$1" > payload.minisig; minisign -V -p "$2" -m payload`,
		filepath.Join(root, signed.Key().String()), o.TrustedKeyFiles[0])
	if !strings.Contains(out, "verified") || !strings.Contains(out, "mgmtd "+signed.Key().String()) {
		t.Errorf("minisign says %s", out)
	}
	// Our secret key signs in minisign, and one that minisign makes signs for us.
	shell(t, t.TempDir(), `echo hello > f; minisign -S -s "$1" -m f; minisign -V -p "$2" -m f`, o.SigningKeyFile, o.TrustedKeyFiles[0])
	dir := t.TempDir()
	shell(t, dir, `minisign -G -W -s k -p p`)
	keys := mustLoad(t, KeyOptions{SigningKeyFile: filepath.Join(dir, "k"), TrustedKeyFiles: []string{filepath.Join(dir, "p")}})
	signature, err := keys.sign([]byte("m"), "c")
	if err != nil {
		t.Fatal(err)
	}
	if trust, _, err := keys.check([]byte("m"), signature); err != nil || trust != Trusted {
		t.Errorf("trust %s, %v", trust, err)
	}
}
