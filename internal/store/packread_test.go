package store

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/store/seal"
)

func TestDamagedContentIsCorrupt(t *testing.T) {
	read := map[Kind]func(*Store, Key) error{
		KindPack: func(s *Store, k Key) error {
			return s.ReadPack(context.Background(), k, func(string, []byte) error { return nil })
		},
		KindShard: func(s *Store, k Key) error {
			_, err := s.GetShard(context.Background(), k)
			return err
		},
		KindTree: func(s *Store, k Key) error {
			_, err := s.GetTree(context.Background(), k)
			return err
		},
	}
	bothModes(t, func(t *testing.T, s *Store, root string) {
		signed := mustWriteSnapshot(t, s, 1, nil)
		tree, err := s.GetTree(t.Context(), signed.Tree)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []Key{tree.Packs[0], tree.Shards[0], signed.Tree} {
			for name, damage := range damages {
				t.Run(string(key.Kind())+" "+name, func(t *testing.T) {
					var good []byte
					rewrite(t, root, string(key), func(b []byte) []byte {
						good = bytes.Clone(b)
						return damage(b)
					})
					wantCorrupt(t, read[key.Kind()](s, key))
					rewrite(t, root, string(key), func([]byte) []byte { return good })
					if err := read[key.Kind()](s, key); err != nil {
						t.Errorf("undamaged again: %v", err)
					}
				})
			}
			t.Run(string(key.Kind())+" missing", func(t *testing.T) {
				other := layout.KeyOf(key.Kind(), s.Encrypted() && key.Kind() != KindTree, []byte("other"))
				if err := read[key.Kind()](s, other); !errors.Is(err, ErrNotFound) {
					t.Errorf("error %v, want ErrNotFound", err)
				}
			})
			t.Run(string(key.Kind())+" of another kind or mode", func(t *testing.T) {
				for _, other := range []Key{
					layout.KeyOf(KindPack, true, []byte("x")), layout.KeyOf(KindPack, false, []byte("x")),
					layout.KeyOf(KindShard, true, []byte("x")), layout.KeyOf(KindShard, false, []byte("x")),
					layout.KeyOf(KindTree, false, []byte("x")),
				} {
					if other.Kind() == key.Kind() &&
						(other.Kind() == KindTree || other.Encrypted() == s.Encrypted()) {
						continue
					}
					wantCorrupt(t, read[key.Kind()](s, other))
				}
				wantCorrupt(t, read[key.Kind()](s, "../../etc/passwd"))
			})
		}
	})
}

func TestMissingOrWrongIdentityIsReported(t *testing.T) {
	s, root := newTestStore(t, false)
	signed := mustWriteSnapshot(t, s, 1, nil)
	tree, err := s.GetTree(t.Context(), signed.Tree)
	if err != nil {
		t.Fatal(err)
	}
	other := testKeys(t)
	for name, keys := range map[string]*Keys{"missing": nil,
		"wrong": mustLoad(t, KeyOptions{IdentityFiles: other.IdentityFiles})} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, Options{Bucket: directory.New(root), Keys: keys})
			_, shardErr := s.GetShard(t.Context(), tree.Shards[0])
			packErr := s.ReadPack(t.Context(), tree.Packs[0],
				func(string, []byte) error { t.Error("fn was called"); return nil })
			for _, err := range []error{shardErr, packErr} {
				if k, ok := errors.AsType[*KeyError](err); !ok || !strings.Contains(k.Error(), "identity "+
					name) || k.Hint() == "" {
					t.Errorf("error %v, want *KeyError", err)
				}
			}
		})
	}
}

// TestHashIsCheckedBeforeDecryption: damage is found before anything is decrypted, and is reported
// as damage even without an identity.
func TestHashIsCheckedBeforeDecryption(t *testing.T) {
	s, root := newTestStore(t, false)
	key := writePack(t, s, map[string]string{nameA: "{}"})
	rewrite(t, root, string(key), damages["flipped bit in the middle"])
	keyless := mustOpen(t, Options{Bucket: directory.New(root)})
	wantCorrupt(t, keyless.ReadPack(t.Context(), key, nil))
}

type tarFile struct {
	header tar.Header
	body   string
}

func file(name, body string) tarFile {
	return tarFile{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(body)),
		ModTime: testTime.Truncate(time.Second)}, body}
}

func makeTar(t testing.TB, files ...tarFile) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		if err := w.WriteHeader(&f.header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func compress(t testing.TB, data []byte) []byte {
	t.Helper()
	enc, err := seal.NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	return enc.EncodeAll(data, nil)
}

// TestHostilePackIsCorrupt: a pack with the right hash may still be made by somebody who means
// harm, or by a bug.
func TestHostilePackIsCorrupt(t *testing.T) {
	with := func(f tarFile, change func(*tar.Header)) tarFile {
		change(&f.header)
		return f
	}
	lim := smallLimits()
	zeros := strings.Repeat("\x00", int(lim.pack.MaxObject))
	tests := []struct {
		name   string
		tar    []byte
		reason string
	}{
		{"path out of the folder", makeTar(t, file("../../../etc/cron.d/x", "x")), "parse entry name"},
		{"dot-dot inside", makeTar(t, file("core/Secret/../x.json", "x")), "parse entry name"},
		{"absolute path", makeTar(t, file("/core/Secret/a/b.json", "x")), "parse entry name"},
		{"other name", makeTar(t, file("readme.txt", "x")), "parse entry name"},
		{"same name twice", makeTar(t, file(nameA, "1"), file(nameB, "2"), file(nameA, "3")),
			"two files"},
		{"symbolic link", makeTar(t, with(file(nameA, ""), func(h *tar.Header) {
			h.Typeflag,
				h.Linkname = tar.TypeSymlink, "/etc/shadow"
		})), "not a regular file"},
		{"hard link", makeTar(t, with(file(nameA, ""), func(h *tar.Header) {
			h.Typeflag,
				h.Linkname = tar.TypeLink, nameB
		})), "not a regular file"},
		{"folder", makeTar(t, with(file("core/", ""), func(h *tar.Header) { h.Typeflag = tar.TypeDir })),
			"not a regular file"},
		{"device", makeTar(t, with(file(nameA, ""), func(h *tar.Header) { h.Typeflag = tar.TypeChar })),
			"not a regular file"},
		{"extended attribute", makeTar(t, with(file(nameA, ""),
			func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "y"} })),
			"tar record"},
		{"other mode", makeTar(t, with(file(nameA, ""), func(h *tar.Header) { h.Mode = 0o4755 })),
			"not packed by mgmtd"},
		{"GNU format", makeTar(t, with(file(nameA, ""),
			func(h *tar.Header) { h.Format = tar.FormatGNU })), "not packed by mgmtd"},
		{"object too large", makeTar(t, file(nameA, zeros+"x")), "more than"},
		{"bytes after the end", append(makeTar(t, file(nameA, "x")), "hidden"...), "after the end"},
		{"truncated", makeTar(t, file(nameA, strings.Repeat("x", 2000)))[:1024], "read tar"},
		{"not a tar", bytes.Repeat([]byte("junk"), 1000), "read tar"},
		{"bomb of large files", makeTar(t, file("core/Secret/n/1.json", zeros),
			file("core/Secret/n/2.json", zeros)), "when decompressed"},
		{"bytes after an empty tar", make([]byte, 4096), "after the end"},
		{"too many files", manyFiles(t, lim.pack.MaxEntries+1), "more than 128 files"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := newTestStore(t, true)
			s.limits = lim
			stored := compress(t, tt.tar)
			key := layout.KeyOf(KindPack, false, stored)
			if err := s.putContent(t.Context(), key, stored); err != nil {
				t.Fatal(err)
			}
			err := s.ReadPack(t.Context(), key, func(string, []byte) error { return nil })
			wantCorrupt(t, err)
			if err != nil && !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("error %v, want %q in it", err, tt.reason)
			}
		})
	}
}

func manyFiles(t testing.TB, n int) []byte {
	files := make([]tarFile, n)
	for i := range files {
		files[i] = file(fmt.Sprintf("core/Secret/n/s%d.json", i), "")
	}
	return makeTar(t, files...)
}

func TestDecompressionBombIsCorrupt(t *testing.T) {
	s, _ := newTestStore(t, true)
	s.limits = smallLimits()
	stored := compress(t, make([]byte, s.limits.maxPlain+1))
	if len(stored) > 1<<10 {
		t.Fatalf("the bomb has %d bytes", len(stored))
	}
	shard := layout.KeyOf(KindShard, false, stored)
	if err := s.putContent(t.Context(), shard, stored); err != nil {
		t.Fatal(err)
	}
	_, err := s.GetShard(t.Context(), shard)
	wantCorrupt(t, err)
}

func TestTooLargeContentIsCorrupt(t *testing.T) {
	s, root := newTestStore(t, true)
	s.limits = smallLimits()
	key := layout.KeyOf(KindPack, false, nil)
	if err := s.bucket.Put(t.Context(), string(key), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(root, string(key)), s.limits.maxStored+1); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, s.ReadPack(t.Context(), key, nil))
}

// TestBrokenAgeFileIsCorrupt: a pack that is encrypted to us, but is no age file any more after the
// header.
func TestBrokenAgeFileIsCorrupt(t *testing.T) {
	s, _ := newTestStore(t, false)
	var buf bytes.Buffer
	w, err := s.keys.Encrypt(&buf)
	if err == nil {
		_, err = w.Write([]byte("not zstd"))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, stored := range map[string][]byte{"not zstd inside": buf.Bytes(),
		"cut off": buf.Bytes()[:buf.Len()-1], "not age": []byte("hello"), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			key := layout.KeyOf(KindPack, true, stored)
			if err := s.putContent(t.Context(), key, stored); err != nil {
				t.Fatal(err)
			}
			wantCorrupt(t, s.ReadPack(t.Context(), key, func(string, []byte) error { return nil }))
		})
	}
}

func TestReadPackEndsWithTheErrorOfItsCaller(t *testing.T) {
	s, _ := newTestStore(t, false)
	key := writePack(t, s, map[string]string{nameA: "1", nameB: "2"})
	stop, calls := errors.New("stop"), 0
	err := s.ReadPack(t.Context(), key, func(string, []byte) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("%v after %d calls, want the error of fn after 1", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = s.ReadPack(ctx, key, func(string, []byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestPutContentTwiceIsSuccess(t *testing.T) {
	s, root := newTestStore(t, true)
	key, stored, err := s.seal(KindShard, []byte(`{"same":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.putContent(t.Context(), key, stored); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(t, root, string(key), damages["truncated"])
	wantCorrupt(t, s.putContent(t.Context(), key, stored))
}
