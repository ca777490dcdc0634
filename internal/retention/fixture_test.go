package retention

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

const (
	sourceA = "6f1b2c3d-0000-4000-8000-00000000000a"
	sourceB = "6f1b2c3d-0000-4000-8000-00000000000b"
)

// errTooLong is what a writer returns that exceeded store.MaxRun.
var errTooLong = errors.New("the run exceeded store.MaxRun")

var pruneTime = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// clocked is a bucket whose storage has a clock of its own, which tests set.
type clocked struct {
	*directory.Bucket
	mu       sync.Mutex
	now      time.Time
	written  map[string]time.Time
	retained map[string]bool         // by Object Lock
	refused  map[string]bucket.Error // of reads
	// size is how many keys are deleted together; 0 for each by itself.
	size    int
	batches [][]string // what was deleted together
	// batch stands for DeleteBatch when it is set.
	batch func(ctx context.Context, keys []string) map[string]error
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	return &clocked{Bucket: directory.New(filepath.Join(t.TempDir(), "store")), now: pruneTime,
		written: map[string]time.Time{}, retained: map[string]bool{},
		refused: map[string]bucket.Error{}}
}

func (b *clocked) time() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *clocked) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *clocked) Put(ctx context.Context, key string, data []byte) error {
	b.mu.Lock()
	if _, there := b.written[key]; !there { // a list may see it at once
		b.written[key] = b.now
	}
	b.mu.Unlock()
	return b.Bucket.Put(ctx, key, data)
}

func (b *clocked) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	b.mu.Lock()
	err, refused := b.refused[key]
	b.mu.Unlock()
	if refused {
		err.Op, err.Key = "get", key
		return nil, &err
	}
	return b.Bucket.Get(ctx, key)
}

// refuse makes each read of a key fail from now on.
func (b *clocked) refuse(with bucket.Error, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[key] = with
}

func (b *clocked) at(i bucket.Info) bucket.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	i.Modified = b.written[i.Key]
	return i
}

func (b *clocked) Stat(ctx context.Context, key string) (bucket.Info, error) {
	i, err := b.Bucket.Stat(ctx, key)
	return b.at(i), err
}

func (b *clocked) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	return b.Bucket.List(ctx, prefix, func(i bucket.Info) error { return fn(b.at(i)) })
}

func (b *clocked) Delete(ctx context.Context, key string) error {
	b.mu.Lock()
	retained := b.retained[key]
	b.mu.Unlock()
	if retained {
		return &store.BucketError{Op: "delete", Key: key, Class: store.ErrRetained}
	}
	return b.Bucket.Delete(ctx, key)
}

func (b *clocked) BatchSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

func (b *clocked) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	b.mu.Lock()
	b.batches = append(b.batches, slices.Clone(keys))
	b.mu.Unlock()
	if b.batch != nil {
		return b.batch(ctx, keys)
	}
	return bucket.DeleteEach(ctx, b, keys)
}

// newKeys makes all keys of a store in a folder.
func newKeys(t *testing.T, dir string) *store.Keys {
	t.Helper()
	dir += "/keys"
	generated, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	k, err := store.LoadKeys(store.KeyOptions{Recipients: []string{generated.Recipient},
		IdentityFiles: []string{dir + "/identity.txt"}, SigningKeyFile: dir + "/signing.key",
		TrustedKeyFiles: []string{dir + "/signing.pub"}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func openPlain(t *testing.T, b bucket.Bucket) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// taker writes snapshots of one source without reading one: a prune depends only on the keys that
// they name.
type taker struct {
	st       *store.Store
	source   string
	sequence int64
	last     *store.Signed
	lastTree store.Tree
	// storing runs the last step: the check of the clock, and the write of the envelope.
	storing func(began time.Time, store func() error) error
}

// put stores a snapshot of two packs and two shards, of which one each is that of the snapshot
// before, as of a time.
func (w *taker) put(ctx context.Context, at time.Time, change func(*store.Envelope)) (store.Signed,
	error) {
	if w.storing == nil {
		w.storing = func(_ time.Time, store func() error) error { return store() }
	}
	p, err := w.st.NewPackWriter(ctx, at)
	if err != nil {
		return store.Signed{}, err
	}
	defer p.Abort()
	name, err := store.EntryName(store.Entry{Kind: "Secret", Namespace: "fleet", Name: "a"})
	if err == nil {
		_, err = p.Add(name, []byte(at.String()))
	}
	if err == nil {
		err = p.Close()
	}
	if err != nil {
		return store.Signed{}, err
	}
	shard, err := w.st.PutShard(ctx, []byte("{}"))
	if err != nil {
		return store.Signed{}, err
	}
	tree := store.Tree{Shards: []store.Key{shard.Key}, Packs: []store.Key{p.Packs()[0].Key}}
	full := store.Tree{Shards: append(slices.Clone(tree.Shards), w.lastTree.Shards...),
		Packs: append(slices.Clone(tree.Packs), w.lastTree.Packs...)}
	key, err := w.st.PutTree(ctx, full)
	if err != nil {
		return store.Signed{}, err
	}
	e := store.Envelope{ID: store.NewSnapshotID(), Time: at, Source: store.Source{UID: w.source,
		Name: "m"}, ResourceVersion: "1", Sequence: w.sequence + 1, Tree: key, Writer: "test"}
	if w.last != nil {
		e.Parent = &store.Parent{ID: w.last.ID, SHA256: w.last.SHA256}
	}
	if change != nil {
		change(&e)
	}
	var signed store.Signed
	err = w.storing(at, func() (err error) {
		signed, err = w.st.PutEnvelope(ctx, e)
		return err
	})
	if err == nil {
		w.last, w.lastTree, w.sequence = &signed, tree, e.Sequence
	}
	return signed, err
}

func (w *taker) take(t *testing.T, at time.Time, change func(*store.Envelope)) store.Signed {
	t.Helper()
	signed, err := w.put(t.Context(), at, change)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// hourly takes n snapshots, one an hour.
func (w *taker) hourly(t *testing.T, b *clocked, n int) (list []store.Signed) {
	t.Helper()
	for range n {
		b.pass(time.Hour)
		list = append(list, w.take(t, b.time(), nil))
	}
	return list
}

// whole fails unless every snapshot in the store has all that it names.
func whole(t *testing.T, st *store.Store) {
	t.Helper()
	keys, err := st.Snapshots(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		e, err := st.GetEnvelope(t.Context(), k)
		if err != nil {
			t.Errorf("%s: %v", k, err)
			continue
		}
		r, err := st.VerifyStructure(t.Context(), e.Envelope, nil)
		if err != nil || len(r.Findings) > 0 {
			t.Errorf("%s: %v, %v", k, r.Findings, err)
		}
	}
}

// left are the numbers of the snapshots in the store, by the last digit of their source.
func left(t *testing.T, st *store.Store) string {
	t.Helper()
	keys, err := st.Snapshots(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, k := range keys {
		e, err := st.GetEnvelope(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s%d", k.Source[len(k.Source)-1:], e.Sequence))
	}
	return strings.Join(all, " ")
}

func contents(t *testing.T, st *store.Store) int {
	t.Helper()
	n := 0
	if err := st.Content(t.Context(), func(store.StoredContent) error {
		n++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func options(st *store.Store, b *clocked, p Policy) Options {
	return Options{Store: st, Policy: p, Now: b.time}
}

// prune plans and executes.
func prune(ctx context.Context, o Options) (*Result, error) {
	plan, err := NewPlan(ctx, o)
	if err != nil {
		return nil, err
	}
	return Execute(ctx, o, plan)
}

// planAll plans, content included.
func planAll(ctx context.Context, o Options) (*Plan, error) {
	plan, err := NewPlan(ctx, o)
	if err != nil {
		return nil, err
	}
	return plan, CountContent(ctx, o, plan)
}

func mustPrune(t *testing.T, o Options) *Result {
	t.Helper()
	r, err := prune(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
