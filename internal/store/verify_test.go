package store

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestVerifyStructureStreams: what it allocates does not grow with the snapshot. Ten packs of 30
// MiB cost less than a tenth of one of them.
func TestVerifyStructureStreams(t *testing.T) {
	s, root := newTestStore(t, true)
	var tree Tree
	for n := range 10 {
		file := filepath.Join(t.TempDir(), "pack")
		size := int64(30<<20 + n)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, size); err != nil { // a hole: nothing is on the disk
			t.Fatal(err)
		}
		sum := fileHash(t, file)
		key := Key("packs/" + sum[:2] + "/" + sum + ".tar.zst")
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(string(key))), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file, filepath.Join(root, string(key))); err != nil {
			t.Fatal(err)
		}
		tree.Packs = append(tree.Packs, key)
	}
	slices.Sort(tree.Packs)
	key, err := s.PutTree(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	e := testEnvelope(key, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report, err := s.VerifyStructure(t.Context(), e, nil)
	runtime.ReadMemStats(&after)
	if err != nil || report.Keys != 10 || report.Bytes < 300<<20 || len(report.Findings) > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 3<<20 {
		t.Errorf("allocated %d bytes to read %d", n, report.Bytes)
	}
}

func fileHash(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
