package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStampsAreTheSameInEveryCheckout: two checkouts may share a .lab, and none should build again
// what the other has built from the same sources.
func TestStampsAreTheSameInEveryCheckout(t *testing.T) {
	hash := func(files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		h, err := hashSources(dir)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	sources := map[string]string{"a.go": "package a", "b/b.go": "package b"}
	first := hash(sources)
	if second := hash(sources); second != first {
		t.Errorf("the same sources hash to %s and %s in two folders", first, second)
	}
	for what, other := range map[string]map[string]string{
		"a changed file": {"a.go": "package c", "b/b.go": "package b"},
		"a moved file":   {"a.go": "package a", "c/b.go": "package b"},
		"another file":   {"a.go": "package a", "b/b.go": "package b", "c.go": "package a"},
	} {
		if hash(other) == first {
			t.Errorf("%s does not change the hash", what)
		}
	}
	sources["a_test.go"] = "package a"
	if hash(sources) != first {
		t.Error("a test changes the hash")
	}
}
