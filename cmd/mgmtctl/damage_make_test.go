package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// goodStore is a store with three snapshots of one source, and what is needed to read it and to
// write into it.
type goodStore struct {
	dir       string // holds the folders below, and a kubeconfig of a server that is not there
	recipient age.Recipient
	keys      *store.Keys
	mgmtctl   string
	signed    []store.Signed
}

// damageVersion is the version of the program, and of the snapshots.
const damageVersion = "v1.2.3"

func newGoodStore(t *testing.T) *goodStore {
	t.Helper()
	g := &goodStore{dir: t.TempDir()}
	g.mgmtctl = filepath.Join(g.dir, "mgmtctl")
	if out, err := exec.Command("go", "build", "-ldflags", "-X main.release="+damageVersion, "-o",
		g.mgmtctl, ".").CombinedOutput(); err != nil {
		t.Fatalf("build mgmtctl: %v\n%s", err, out)
	}
	kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"u","user":{"token":"t"}}]}`
	must(t, os.WriteFile(g.file("target.kubeconfig"), []byte(kubeconfig), 0o600))
	made, err := store.Keygen(g.file("keys"), time.Now())
	must(t, err)
	_, err = store.Keygen(g.file("other"), time.Now())
	must(t, err)
	g.recipient, err = age.ParseX25519Recipient(made.Recipient)
	must(t, err)
	g.keys = g.load(t, "keys", made.Recipient)
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(g.file("store")),
		Keys: g.keys, Create: true})
	must(t, err)
	source := snapshottest.New("prod", 1, 4)
	for range 3 {
		o := source.Options(st)
		o.Writer = "mgmtctl " + damageVersion
		r, err := snapshot.Create(t.Context(), o)
		must(t, err)
		g.signed = append(g.signed, r.Signed)
		source.Change()
	}
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (g *goodStore) file(path string) string { return filepath.Join(g.dir, path) }

// load loads the keys in a folder; without a recipient it takes the folder's own.
func (g *goodStore) load(t *testing.T, folder, recipient string) *store.Keys {
	t.Helper()
	dir := g.file(folder)
	k, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{recipient}, IdentityFiles: []string{filepath.Join(dir, store.IdentityFile)},
		SigningKeyFile: filepath.Join(dir, store.SigningFile),
	})
	must(t, err)
	return k
}

// damaged is a copy of the good store that a row of the table spoils.
type damaged struct {
	*goodStore
	t    *testing.T
	root string
	st   *store.Store // what a writer has who is trusted
	last store.Signed
	tree store.Tree // of last
}

func (g *goodStore) copy(t *testing.T) *damaged {
	t.Helper()
	d := &damaged{goodStore: g, t: t, root: filepath.Join(t.TempDir(), "store"),
		last: g.signed[len(g.signed)-1]}
	must(t, os.CopyFS(d.root, os.DirFS(g.file("store"))))
	var err error
	d.st, err = store.Open(t.Context(), store.Options{Bucket: directory.New(d.root), Keys: g.keys})
	must(t, err)
	d.tree, err = d.st.GetTree(t.Context(), d.last.Tree)
	must(t, err)
	return d
}

// files gives the SHA-256 of every file, by its path in the store.
func (d *damaged) files() map[string]string {
	d.t.Helper()
	all := map[string]string{}
	must(d.t, filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, d.root+"/")] = sum(data)
		return err
	}))
	return all
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func (d *damaged) path(key string) string { return filepath.Join(d.root, filepath.FromSlash(key)) }

func (d *damaged) read(key string) []byte {
	d.t.Helper()
	data, err := os.ReadFile(d.path(key))
	must(d.t, err)
	return data
}

func (d *damaged) write(key string, data []byte) {
	d.t.Helper()
	must(d.t, os.MkdirAll(filepath.Dir(d.path(key)), 0o700))
	must(d.t, os.WriteFile(d.path(key), data, 0o600))
}

func (d *damaged) remove(key string) { d.t.Helper(); must(d.t, os.Remove(d.path(key))) }

func (d *damaged) truncate(key string) {
	d.t.Helper()
	data := d.read(key)
	d.write(key, data[:len(data)/2])
}

func (d *damaged) flip(key string) {
	d.t.Helper()
	data := d.read(key)
	data[len(data)/2] ^= 4
	d.write(key, data)
}

func (d *damaged) pack() string { return string(d.tree.Packs[0]) }

func (d *damaged) shard() string { return string(d.tree.Shards[0]) }

// compress gives one frame.
func (d *damaged) compress(plain []byte) []byte {
	d.t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithWindowSize(4<<20))
	must(d.t, err)
	return enc.EncodeAll(plain, nil)
}

func (d *damaged) encrypt(data []byte, to age.Recipient) []byte {
	d.t.Helper()
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	must(d.t, err)
	_, err = w.Write(data)
	must(d.t, err)
	must(d.t, w.Close())
	return b.Bytes()
}

// place stores bytes under the key of their hash, whatever they are.
func (d *damaged) place(folder, suffix string, stored []byte) store.Key {
	d.t.Helper()
	s := sum(stored)
	key := folder + "/" + s[:2] + "/" + s + suffix
	d.write(key, stored)
	return store.Key(key)
}

// placePack and placeShard store what is compressed already, encrypted as it has to be.
func (d *damaged) placePack(compressed []byte) store.Key {
	return d.place("packs", ".tar.zst.age", d.encrypt(compressed, d.recipient))
}

func (d *damaged) placeShard(compressed []byte) store.Key {
	return d.place("shards", ".json.zst.age", d.encrypt(compressed, d.recipient))
}

func (d *damaged) placeTree(text []byte) store.Key {
	return d.place("trees", ".json.zst", d.compress(text))
}

// next writes the envelope that follows the last one, signed by the trusted key.
func (d *damaged) next(change func(e *store.Envelope)) store.Signed {
	d.t.Helper()
	e := d.last.Envelope
	e.ID, e.Time, e.Sequence = store.NewSnapshotID(), d.last.Time.Add(time.Minute), d.last.Sequence+1
	e.Parent = &store.Parent{ID: d.last.ID, SHA256: d.last.SHA256}
	change(&e)
	signed, err := d.st.PutEnvelope(d.t.Context(), e)
	must(d.t, err)
	return signed
}

func (d *damaged) nextOf(tree store.Tree) {
	d.t.Helper()
	key, err := d.st.PutTree(d.t.Context(), tree)
	must(d.t, err)
	d.next(func(e *store.Envelope) { e.Tree = key })
}

// halfPrune lets a prune die after it has removed envelopes, and nothing of what these named.
func (d *damaged) halfPrune() {
	d.t.Helper()
	old := time.Now().Add(-48 * time.Hour)
	for name := range d.files() {
		must(d.t, os.Chtimes(d.path(name), old, old))
	}
	died, steps := errors.New("the process died"), 0
	o := retention.Options{Store: d.st, Policy: retention.Policy{Last: 1},
		Step: func(_ string, fn func() error) error {
			if steps++; steps > 1 {
				return died
			}
			return fn()
		}}
	plan, err := retention.NewPlan(d.t.Context(), o)
	must(d.t, err)
	_, err = retention.Execute(d.t.Context(), o, plan)
	if !errors.Is(err, died) || len(d.files()) == 0 {
		d.t.Fatal(err)
	}
}

// envelope is the stored file.
type envelope struct {
	Payload   string `json:"payload"`
	Signature string `json:"signature"`
}

// editLast changes the file of the newest envelope.
func (d *damaged) editLast(change func(e *envelope)) {
	d.t.Helper()
	var e envelope
	must(d.t, json.Unmarshal(d.read(d.last.Key().String()), &e))
	change(&e)
	data, err := json.Marshal(e)
	must(d.t, err)
	d.write(d.last.Key().String(), data)
}

// editObject follows the last snapshot with one of which a shard says something else of a Machine.
func (d *damaged) editObject(change func(object map[string]any)) {
	d.t.Helper()
	tree, done := store.Tree{Packs: d.tree.Packs}, false
	for _, key := range d.tree.Shards {
		text, err := d.st.GetShard(d.t.Context(), key)
		must(d.t, err)
		var shard map[string]any
		must(d.t, json.Unmarshal(text, &shard))
		objects, _ := shard["objects"].([]any)
		for _, o := range objects {
			if o := o.(map[string]any); o["kind"] == "Machine" && !done {
				change(o)
				done = true
			}
		}
		text, err = json.Marshal(shard)
		must(d.t, err)
		tree.Shards = append(tree.Shards, d.placeShard(d.compress(text)))
	}
	if !done {
		d.t.Fatal("no Machine in the snapshot")
	}
	d.nextOf(tree)
}

// editPack follows the last snapshot with one whose first pack was packed by somebody else; the
// shards name the new pack.
func (d *damaged) editPack(compressed []byte) {
	d.t.Helper()
	pack := d.placePack(compressed)
	tree := store.Tree{Packs: append([]store.Key{pack}, d.tree.Packs[1:]...)}
	for _, key := range d.tree.Shards {
		text, err := d.st.GetShard(d.t.Context(), key)
		must(d.t, err)
		text = bytes.ReplaceAll(text, []byte(d.tree.Packs[0]), []byte(pack))
		tree.Shards = append(tree.Shards, d.placeShard(d.compress(text)))
	}
	d.nextOf(tree)
}

// addShard follows the last snapshot with one that has one shard more.
func (d *damaged) addShard(compressed []byte) {
	d.t.Helper()
	d.nextOf(store.Tree{Shards: append([]store.Key{d.placeShard(compressed)}, d.tree.Shards...),
		Packs: d.tree.Packs})
}

// tarOf packs files as mgmtd does, but for what change does to the headers. What the first pack
// holds comes first.
func (d *damaged) tarOf(change func(h *tar.Header), names ...string) []byte {
	d.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, body []byte) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o600,
			ModTime: time.Unix(1e9, 0)}
		if body == nil && change != nil {
			change(h)
		}
		must(d.t, w.WriteHeader(h))
		_, err := w.Write(body)
		must(d.t, err)
	}
	must(d.t, d.st.ReadPack(d.t.Context(), d.tree.Packs[0], func(name string, body []byte) error {
		add(name, body)
		return nil
	}))
	for _, name := range names {
		add(name, nil)
	}
	must(d.t, w.Close())
	return d.compress(b.Bytes())
}

// firstEntry is the name of a file in the first pack.
func (d *damaged) firstEntry() (first string) {
	d.t.Helper()
	must(d.t, d.st.ReadPack(d.t.Context(), d.tree.Packs[0], func(name string, _ []byte) error {
		first = name
		return nil
	}))
	return first
}

// bomb is a few kilobytes that decompress to 4 GiB.
func (d *damaged) bomb(of byte) []byte {
	return bytes.Repeat(d.compress(bytes.Repeat([]byte{of}, 4<<20)), 1024)
}

// manyFiles is the beginning of a tar with ten million files, each of no bytes.
func (d *damaged) manyFiles() []byte {
	d.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 1 << 14 {
		must(d.t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg,
			Name: fmt.Sprintf("core/Secret/ns/%d.json", i), Mode: 0o600}))
	}
	must(d.t, w.Flush())
	frame := d.compress(b.Bytes())
	var rest bytes.Buffer
	w = tar.NewWriter(&rest)
	for i := range 1 << 15 {
		must(d.t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg,
			Name: fmt.Sprintf("core/ConfigMap/ns/%d.json", i), Mode: 0o600}))
	}
	must(d.t, w.Flush())
	return append(frame, bytes.Repeat(d.compress(rest.Bytes()), 305)...)
}

// manyOf is a JSON text of about 32 MiB with ten million of a value in it.
func (d *damaged) manyOf(before, value, after string) []byte {
	n := (32<<20 - len(before) - len(after)) / (len(value) + 1)
	return d.compress([]byte(before + strings.Repeat(value+",", n-1) + value + after))
}

// largeFiles is the beginning of a tar with files of 16 MiB each, 4 GiB in all.
func (d *damaged) largeFiles() []byte {
	d.t.Helper()
	body, all := bytes.Repeat(d.compress(make([]byte, 4<<20)), 4), []byte(nil)
	for i := range 256 {
		var b bytes.Buffer
		must(d.t, tar.NewWriter(&b).WriteHeader(&tar.Header{Typeflag: tar.TypeReg,
			Name: fmt.Sprintf("core/Secret/ns/%d.json", i), Mode: 0o600, Size: 16 << 20}))
		all = append(append(all, d.compress(b.Bytes())...), body...)
	}
	return all
}

// rawTree follows the last snapshot with one that has this text as its tree.
func (d *damaged) rawTree(text string) {
	d.t.Helper()
	key := d.placeTree([]byte(text))
	d.next(func(e *store.Envelope) { e.Tree = key })
}

// sign signs a payload with the trusted key.
func (d *damaged) sign(payload string) string {
	d.t.Helper()
	text, err := os.ReadFile(d.file("keys/" + store.SigningFile))
	must(d.t, err)
	var key minisign.PrivateKey
	must(d.t, key.UnmarshalText(bytes.TrimSpace(text)))
	r := minisign.NewReader(strings.NewReader(payload))
	_, err = io.Copy(io.Discard, r)
	must(d.t, err)
	return string(r.Sign(key))
}
