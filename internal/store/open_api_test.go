//go:build api

package store

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// The promise of docs/format.md: a snapshot opens without our programs. Those that it names are
// built by "make lab", what else a shell has is the system's.

// toolPath is a folder with the programs that docs/format.md names, and no others.
func toolPath(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != "/" && !exists(filepath.Join(dir, ".lab", "bin")) {
		dir = filepath.Dir(dir)
	}
	path := t.TempDir()
	for _, name := range []string{"age", "jq", "minisign", "zstd"} {
		program := filepath.Join(dir, ".lab", "bin", name)
		if !exists(program) {
			t.Fatalf(".lab/bin/%s is missing: run make lab", name)
		}
		if err := os.Symlink(program, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bash", "cat", "cp", "head", "ls", "mkdir", "mktemp", "sha256sum",
		"tail", "tar"} {
		program, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(program, filepath.Join(path, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// bash runs a script with these programs alone and gives what it printed.
func bash(t *testing.T, path, dir, script string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(path, "bash"), "-c", "set -euo pipefail\n"+
		script)
	cmd.Dir, cmd.Env = dir, append(env, "PATH="+path, "HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// chapter gives the commands of "Opening a snapshot without mgmtctl", as they stand.
func chapter(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Opening a snapshot without mgmtctl\n")
	section, _, _ := strings.Cut(after, "\n## ")
	script := ""
	for _, b := range shellBlock.FindAllStringSubmatch(section, -1) {
		script += b[1]
	}
	for _, word := range []string{"age ", "zstd ", "jq ", "minisign ", "tar ", "sha256sum "} {
		if !strings.Contains(script, word) {
			t.Fatalf("the chapter does not use %s:\n%s", word, script)
		}
	}
	return script
}

// copyStore copies a store of testdata and gives the objects of its newest signed snapshot, as
// hashes by file; unsigned ones are left out.
func copyStore(t *testing.T, name string) (root string, want map[string]string) {
	t.Helper()
	stores := "../snapshot/testdata/stores/"
	root = filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(root, os.DirFS(stores+name)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(stores + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Snapshots []struct {
			ID      string
			Trust   Trust
			Objects map[string]string
		}
	}
	if err := json.Unmarshal(data, &said); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{}
	for _, s := range slices.Backward(said.Snapshots) {
		if s.Trust == Trusted {
			for ref, sum := range s.Objects {
				want[fileOf(ref)] = sum
			}
			return root, want
		}
		for _, file := range glob(t, root, "snapshots/*/*-"+s.ID+".json") {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("%s has no signed snapshot", name)
	return "", nil
}

// fileOf is the file of a ref, "Kind.group/namespace/name", by the words of docs/format.md.
func fileOf(ref string) string {
	parts := strings.Split(ref, "/")
	kind, group, _ := strings.Cut(parts[0], ".")
	if group == "" {
		group = "core"
	}
	if len(parts) == 2 {
		parts = []string{parts[0], "_", parts[1]}
	}
	return group + "/" + kind + "/" + parts[1] + "/" + parts[2] + ".json"
}

func glob(t *testing.T, root, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files
}

// openEnv sets what the chapter asks its reader to set.
func openEnv(t *testing.T, root string) []string {
	t.Helper()
	keys, err := filepath.Abs("../snapshot/testdata/stores/keys-of-tests-only")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"STORE=" + root, "IDENTITY=" + keys + "/identity.txt", "SIGNING_PUB=" + keys +
		"/signing.pub"}
}

// TestAPISnapshotOpensWithoutMgmtctl types the chapter, on each store that an earlier writer left.
func TestAPISnapshotOpensWithoutMgmtctl(t *testing.T) {
	script, path := chapter(t), toolPath(t)
	for _, file := range glob(t, "../snapshot/testdata/stores", "*.json") {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			root, want := copyStore(t, name)
			out, err := bash(t, path, t.TempDir(), script, openEnv(t, root)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			objects := lines[len(lines)-1]
			got := map[string]string{}
			err = filepath.WalkDir(objects, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				body, err := os.ReadFile(path)
				got[strings.TrimPrefix(path, objects+"/")] = layout.SHA256Hex(body)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
				t.Errorf("objects (-want +got):\n%s\n%s", diff, out)
			}
			if !strings.Contains(out, "mgmtd snapshots/") {
				t.Errorf("no trusted comment that names the envelope:\n%s", out)
			}
		})
	}
}

// TestAPIDamagedSnapshotIsFoundWithoutMgmtctl: the chapter stops at what is not as it should be,
// before anything is unpacked.
func TestAPIDamagedSnapshotIsFoundWithoutMgmtctl(t *testing.T) {
	script, path := chapter(t), toolPath(t)
	for name, c := range map[string]struct {
		file   string
		damage func([]byte) []byte
		says   string
	}{
		"pack":    {"packs/*/*", damages["flipped bit in the middle"], "FAILED"},
		"shard":   {"shards/*/*", damages["truncated"], "FAILED"},
		"no pack": {"packs/*/*", nil, "No such file"},
		"payload": {"snapshots/*/*.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`\"partial\":false`), []byte(`\"partial\":true`), 1)
		}, "signature verification failed"},
		"signature": {"snapshots/*/*.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte("mgmtd snapshots/"), []byte("mgmtd snapshotz/"), 1)
		}, "signature verification failed"},
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := copyStore(t, "1-first-encrypted")
			for _, file := range glob(t, root, c.file) {
				if c.damage == nil {
					if err := os.Remove(file); err != nil {
						t.Fatal(err)
					}
					continue
				}
				before, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				after := c.damage(bytes.Clone(before))
				if bytes.Equal(before, after) {
					t.Fatalf("%s was not damaged", file)
				}
				if err := os.WriteFile(file, after, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := bash(t, path, t.TempDir(), script, openEnv(t, root)...)
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("%v, and it does not say %q:\n%s", err, c.says, out)
			}
		})
	}
	// A key that signed nothing here.
	root, _ := copyStore(t, "1-first-encrypted")
	env := openEnv(t, root)
	env[2] = "SIGNING_PUB=" + testKeys(t).TrustedKeyFiles[0]
	if out, err := bash(t, path, t.TempDir(), script, env...); err == nil ||
		!strings.Contains(out, "do not match") {
		t.Errorf("with another key: %v\n%s", err, out)
	}
}

// TestAPIPackOpensWithTar: names that need a pax header unpack too, and what is encrypted is so to
// age.
func TestAPIPackOpensWithTar(t *testing.T) {
	path, o, root := toolPath(t), testKeys(t), t.TempDir()
	s := mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, o), Create: true})
	long := "core/Secret/fleet/" + strings.Repeat("n", 240) + ".json"
	files := map[string]string{nameA: `{"a":1}`, nameB: `{"b":2}`, long: "{}",
		"core/Secret/fleet/ä:b.json": "{}"}
	pack := writePack(t, s, files)
	dir := t.TempDir()
	if out, err := bash(t, path, dir, `age -d -i "$IDENTITY" "$PACK" | zstd -dc | tar -xf -`,
		"IDENTITY="+o.IdentityFiles[0], "PACK="+filepath.Join(root, string(pack))); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range files {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// TestAPIMinisignAndStoreAcceptEachOthersKeys: our secret key signs in minisign, and one that
// minisign makes signs for us.
func TestAPIMinisignAndStoreAcceptEachOthersKeys(t *testing.T) {
	path, o, dir := toolPath(t), testKeys(t), t.TempDir()
	script := `echo hello > f; minisign -S -W -s "$KEY" -m f; minisign -V -p "$PUB" -m f; minisign -G -W -s k -p p`
	if out, err := bash(t, path, dir, script, "KEY="+o.SigningKeyFile, "PUB="+
		o.TrustedKeyFiles[0]); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	keys := mustLoad(t, KeyOptions{SigningKeyFile: filepath.Join(dir, "k"),
		TrustedKeyFiles: []string{filepath.Join(dir, "p")}})
	signature, err := keys.Sign([]byte("m"), "c")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := keys.Verify([]byte("m"), signature); err != nil || s.Trust != Trusted {
		t.Errorf("trust %s, %v", s.Trust, err)
	}
}
