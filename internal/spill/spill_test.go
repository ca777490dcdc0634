package spill

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// filled returns a File in a folder of its own, to which goroutines have added texts, and where
// these are.
func filled(t *testing.T, texts int) (*File, []Place) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	f, places := New(), make([]Place, texts)
	var g sync.WaitGroup
	for i := range texts {
		g.Go(func() {
			var added bool
			if places[i], added = f.Add(text(i)); !added {
				t.Errorf("text %d was not taken", i)
			}
		})
	}
	g.Wait()
	return f, places
}

func text(i int) []byte { return fmt.Appendf(nil, "value %d of a Secret", i*7919) }

func check(t *testing.T, f *File, places []Place) {
	t.Helper()
	for i, p := range places {
		if got, err := f.Read(p); err != nil || !bytes.Equal(got, text(i)) {
			t.Errorf("%q came back for %q, %v", got, text(i), err)
		}
	}
}

// whole returns what is in a File.
func whole(t *testing.T, f *File) []byte {
	t.Helper()
	all := make([]byte, f.end)
	if _, err := f.file.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTheFileIsEncryptedAndHasNoName: invariant I6, also after a crash; and nobody can change what
// comes back.
func TestTheFileIsEncryptedAndHasNoName(t *testing.T) {
	f, places := filled(t, 100)
	check(t, f, places)
	all := whole(t, f)
	if bytes.Contains(all, []byte("Secret")) || bytes.Contains(all, []byte("value")) {
		t.Errorf("the file has %q", all)
	}
	if files, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); err != nil ||
		len(files) > 0 {
		t.Errorf("a crash would leave %v, %v", files, err)
	}
	at := places[7].at
	if _, err := f.file.WriteAt([]byte{all[at] ^ 1}, at); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Read(places[7]); err == nil {
		t.Errorf("%q came back after it was changed", got)
	}
}

// TestAFileThatTakesNothing: there is no folder for temporary files, or its disk is full by now.
func TestAFileThatTakesNothing(t *testing.T) {
	f, places := filled(t, 100)
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, whole(t, f), 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = readOnly.Close() }()
	was := f.file
	f.file = readOnly // it refuses writes
	if _, added := f.Add(text(100)); added {
		t.Error("a file that cannot be written has taken something")
	}
	check(t, f, places)
	f.file = was // what was written of it in vain is perhaps there
	if _, added := f.Add(text(101)); added {
		t.Error("a nonce is used twice")
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if _, added := New().Add(text(0)); added {
		t.Error("a file in no folder has taken something")
	}
}
