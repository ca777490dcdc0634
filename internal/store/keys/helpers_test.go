package keys

import (
	"path/filepath"
	"testing"
	"time"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

// testKeys makes a set of keys in a folder and returns options to load all of it.
func testKeys(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	g, err := Generate(dir, testTime, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Recipients:      []string{g.Recipient},
		IdentityFiles:   []string{filepath.Join(dir, IdentityFile)},
		SigningKeyFile:  filepath.Join(dir, SigningFile),
		TrustedKeyFiles: []string{filepath.Join(dir, SigningPubFile)},
	}
}

func mustLoad(t *testing.T, o Options) *Keys {
	t.Helper()
	k, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
