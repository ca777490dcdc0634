package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// TestPrivateKeysThatOthersCanWriteAreRefused, each with a hint. One that everybody can read is
// not: in a Secret volume of Kubernetes that is the mode of files.
func TestPrivateKeysThatOthersCanWriteAreRefused(t *testing.T) {
	dir := t.TempDir() + "/keys"
	if _, err := Generate(dir, time.Unix(0, 0), nil); err != nil {
		t.Fatal(err)
	}
	identity, signing := filepath.Join(dir, IdentityFile), filepath.Join(dir, SigningFile)
	readers := map[string]func() error{
		"signing key": func() error { _, err := Load(Options{SigningKeyFile: signing}); return err },
		"identity": func() error {
			_, err := Load(Options{IdentityFiles: []string{identity}})
			return err
		},
		"identity of a command": func() error {
			_, err := ReadIdentities([]string{identity}, nil, nil)
			return err
		},
	}
	for mode, want := range map[fs.FileMode]string{0o600: "", 0o400: "", 0o440: "", 0o640: "",
		0o644: "", 0o604: "", 0o444: "", 0o602: "everybody on this host can write",
		0o646: "everybody on this host can write", 0o660: "its group can write",
		0o664: "its group can write", 0o777: "everybody on this host can write"} {
		if err := errors.Join(os.Chmod(identity, mode), os.Chmod(signing, mode)); err != nil {
			t.Fatal(err)
		}
		for name, read := range readers {
			err := read()
			if want == "" {
				if err != nil {
					t.Errorf("%s, mode %v: %v", name, mode, err)
				}
				continue
			}
			var hinted interface{ Hint() string }
			if err == nil || !strings.Contains(err.Error(), want+" it (mode") ||
				!strings.Contains(err.Error(), dir) || !errors.As(err, &hinted) ||
				!strings.Contains(hinted.Hint(), "chmod go-w") {
				t.Errorf("%s, mode %v: %v, want %q with a hint", name, mode, err, want)
			}
		}
	}
}

// TestProtectedIdentityMayBeReadByAll: it lies on a stick or a share whose files have one mode.
func TestProtectedIdentityMayBeReadByAll(t *testing.T) {
	dir := t.TempDir() + "/keys"
	if _, err := Generate(dir, time.Unix(0, 0), Secret("p")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, IdentityFile)
	if err := os.Chmod(file, 0o777); err != nil {
		t.Fatal(err)
	}
	ask := func(string) (Secret, error) { return Secret("p"), nil }
	exposed := func(file, who string) { t.Errorf("warned of %s: %s", file, who) }
	if _, err := ReadIdentities([]string{file}, ask, exposed); err != nil {
		t.Error(err)
	}
}

// TestKeysThatEverybodyCanReadAreSaid: for the one who makes their warnings.
func TestKeysThatEverybodyCanReadAreSaid(t *testing.T) {
	dir := t.TempDir() + "/keys"
	if _, err := Generate(dir, time.Unix(0, 0), nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, IdentityFile)
	for mode, want := range map[fs.FileMode]string{0o600: "", 0o440: "",
		0o644: "everybody on this host can read it (mode 0644)",
		0o444: "everybody on this host can read it (mode 0444)"} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		got := ""
		_, err := ReadIdentities([]string{file}, nil, func(of, who string) {
			if got = who; of != file {
				t.Errorf("it is about %s", of)
			}
		})
		if err != nil || got != want {
			t.Errorf("mode %v: %q, %v, want %q", mode, got, err, want)
		}
	}
}

// TestPipeIsNotExposed: "--identity <(pass show identity)" gives a pipe.
func TestPipeIsNotExposed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := r.Chmod(0o666); err != nil {
		t.Fatal(err)
	}
	if info, err := r.Stat(); err != nil || Exposed(info) != "" {
		t.Errorf("%v: %q, %v", info.Mode(), Exposed(info), err)
	}
}

// TestKeysAreNotWrittenWhereOthersCanReplaceThem: who replaces signing.pub is trusted.
func TestKeysAreNotWrittenWhereOthersCanReplaceThem(t *testing.T) {
	for mode, refused := range map[fs.FileMode]bool{0o700: false, 0o755: false, 0o775: true, 0o757: true,
		0o777: true, 0o777 | fs.ModeSticky: false} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			_, err := Generate(dir, time.Unix(0, 0), nil)
			usage, ok := errors.AsType[*bucket.UsageError](err)
			if ok != refused || !refused && err != nil {
				t.Fatalf("error %v, want refused: %t", err, refused)
			}
			files, err := os.ReadDir(dir)
			if refused && (err != nil || len(files) > 0 || !strings.Contains(usage.Hint(), "chmod go-w")) {
				t.Errorf("%d files, %v, hint %q", len(files), err, usage.Hint())
			}
		})
	}
}
