package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/pack"
)

const testSource = "6f1b2c3d-0000-4000-8000-000000000001"

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

// testKeys makes a set of keys in a folder and returns options to load all of it.
func testKeys(t testing.TB) KeyOptions {
	t.Helper()
	dir := t.TempDir()
	g, err := Keygen(dir, testTime)
	if err != nil {
		t.Fatal(err)
	}
	return KeyOptions{
		Recipients:      []string{g.Recipient},
		IdentityFiles:   []string{filepath.Join(dir, IdentityFile)},
		SigningKeyFile:  filepath.Join(dir, SigningFile),
		TrustedKeyFiles: []string{filepath.Join(dir, SigningPubFile)},
	}
}

func mustLoad(t testing.TB, o KeyOptions) *Keys {
	t.Helper()
	keys, err := LoadKeys(o)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func mustOpen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newTestStore makes a store in a new folder, encrypted and with all keys, or plain and with none.
func newTestStore(t *testing.T, plain bool) (*Store, string) {
	t.Helper()
	root := t.TempDir()
	o := Options{Bucket: directory.New(root), Plain: plain, Create: true}
	if !plain {
		o.Keys = mustLoad(t, testKeys(t))
	}
	return mustOpen(t, o), root
}

// smallLimits are the format's limits in miniature, so that tests can reach them fast.
func smallLimits() limits {
	return limits{pack: pack.Limits{Target: 64 << 10, MaxObject: 64 << 10, MaxEntries: 128},
		maxPlain: 128 << 10, maxStored: 132 << 10}
}

// bothModes runs a test on an encrypted and on a plain store.
func bothModes(t *testing.T, test func(t *testing.T, s *Store, root string)) {
	t.Helper()
	for name, plain := range map[string]bool{"encrypted": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			s, root := newTestStore(t, plain)
			test(t, s, root)
		})
	}
}

func entryName(t testing.TB, e Entry) string {
	t.Helper()
	name, err := EntryName(e)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// writePack writes one pack of the given files.
func writePack(t *testing.T, s *Store, files map[string]string) Key {
	t.Helper()
	w, err := s.NewPackWriter(t.Context(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for name, body := range files {
		if _, err := w.Add(name, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.Packs()[0].Key
}

// testEnvelope is a valid envelope of the given number.
func testEnvelope(tree Key, sequence int64) Envelope {
	return Envelope{
		ID: NewSnapshotID(), Time: testTime.Add(time.Duration(sequence) * time.Minute),
		Source:          Source{UID: testSource, Name: "prod", KubernetesVersion: "v1.36.1"},
		ResourceVersion: "12345", Sequence: sequence, Tree: tree, Counts: Counts{Objects: 1, Units: 1},
		Writer: "mgmtd test",
	}
}

// writeSnapshot writes one pack, one shard, a tree and an envelope.
func writeSnapshot(ctx context.Context, s *Store, sequence int64, parent *Parent) (Signed, error) {
	w, err := s.NewPackWriter(ctx, testTime)
	if err != nil {
		return Signed{}, err
	}
	defer w.Abort()
	name, err := EntryName(Entry{Kind: "Secret", Namespace: "fleet", Name: "alpha-ca"})
	if err != nil {
		return Signed{}, err
	}
	ref, err := w.Add(name, []byte(`{"kind":"Secret"}`))
	if err != nil {
		return Signed{}, err
	}
	if err := w.Close(); err != nil {
		return Signed{}, err
	}
	shard, err := s.PutShard(ctx, []byte(`{"unit":"fleet/alpha"}`))
	if err != nil {
		return Signed{}, err
	}
	tree, err := s.PutTree(ctx, Tree{Shards: []Key{shard.Key}, Packs: []Key{ref.Key()}})
	if err != nil {
		return Signed{}, err
	}
	e := testEnvelope(tree, sequence)
	e.Parent = parent
	return s.PutEnvelope(ctx, e)
}

func mustWriteSnapshot(t *testing.T, s *Store, sequence int64, parent *Signed) Signed {
	t.Helper()
	var p *Parent
	if parent != nil {
		p = &Parent{ID: parent.ID, SHA256: parent.SHA256}
	}
	signed, err := writeSnapshot(t.Context(), s, sequence, p)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// rewrite changes a stored file behind the store's back.
func rewrite(t *testing.T, root, key string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(root, key)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// damages are ways in which stored bytes go bad.
var damages = map[string]func([]byte) []byte{
	"flipped bit at the start":  func(b []byte) []byte { b[0] ^= 1; return b },
	"flipped bit in the middle": func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b },
	"flipped bit at the end":    func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b },
	"truncated":                 func(b []byte) []byte { return b[:len(b)-1] },
	"empty":                     func([]byte) []byte { return nil },
	"appended":                  func(b []byte) []byte { return append(b, 0) },
}

func wantCorrupt(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		t.Errorf("error %v, want *CorruptError", err)
	}
}

var errCrash = errors.New("crash")

// crashing is a bucket of which every Put after the first few fails, as when the process had died
// there.
type crashing struct {
	bucket.Bucket
	puts atomic.Int32 // left before the crash
	hits atomic.Int32
}

func (c *crashing) Put(ctx context.Context, key string, data []byte) error {
	if c.puts.Add(-1) < 0 {
		c.hits.Add(1)
		return errCrash
	}
	return c.Bucket.Put(ctx, key, data)
}
