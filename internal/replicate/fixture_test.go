package replicate

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

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

const (
	sourceA = "6f1b2c3d-0000-4000-8000-00000000000a"
	sourceB = "6f1b2c3d-0000-4000-8000-00000000000b"
)

// pair is a store and the place of its copy, whose storages have one clock.
type pair struct {
	from, to *faultbucket.Versioned
	clock    struct {
		sync.Mutex
		now time.Time
	}
	keys   *store.Keys // nil: plain
	takers map[string]*taker
}

func newPair(t *testing.T, encrypted bool) *pair {
	t.Helper()
	p := &pair{from: faultbucket.NewVersioned(), to: faultbucket.NewVersioned(),
		takers: map[string]*taker{}}
	p.at(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	p.from.Now = p.time
	p.to.Now = p.from.Now
	if encrypted {
		p.keys = newKeys(t)
	}
	return p
}

func (p *pair) time() time.Time {
	p.clock.Lock()
	defer p.clock.Unlock()
	return p.clock.now
}

func (p *pair) pass(d time.Duration) { p.at(p.time().Add(d)) }

func (p *pair) at(now time.Time) {
	p.clock.Lock()
	defer p.clock.Unlock()
	p.clock.now = now
}

func newKeys(t *testing.T) *store.Keys {
	t.Helper()
	dir := t.TempDir()
	generated, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	k, err := store.LoadKeys(store.KeyOptions{Recipients: []string{generated.Recipient},
		IdentityFiles:  []string{filepath.Join(dir, store.IdentityFile)},
		SigningKeyFile: filepath.Join(dir, store.SigningFile)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (p *pair) options(b bucket.Bucket) store.Options {
	return store.Options{Bucket: b, Keys: p.keys, Plain: p.keys == nil,
		Now: p.time}
}

func (p *pair) origin(t *testing.T) *store.Store {
	t.Helper()
	o := p.options(p.from)
	o.Create = true
	st, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// copyBetween runs once, with the two buckets as given.
func (p *pair) copyBetween(ctx context.Context, from, to bucket.Bucket,
	change func(*Options)) (*Result, error) {
	origin, err := store.Open(ctx, p.options(from))
	if err != nil {
		return nil, err
	}
	st, err := store.OpenCopy(ctx, p.options(to), origin)
	if err != nil {
		return nil, err
	}
	o := Options{From: origin, To: st, Now: p.time}
	if change != nil {
		change(&o)
	}
	return Run(ctx, o)
}

func (p *pair) copy(t *testing.T) *Result {
	t.Helper()
	r, err := p.copyBetween(t.Context(), p.from, p.to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// opened opens a store without making one.
func (p *pair) opened(t *testing.T, b bucket.Bucket) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), p.options(b))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func (p *pair) prune(ctx context.Context, b bucket.Bucket, last int) (*retention.Result, error) {
	st, err := store.Open(ctx, p.options(b))
	if err != nil {
		return nil, err
	}
	o := retention.Options{Store: st, Policy: retention.Policy{Last: last},
		Now: p.time}
	plan, err := retention.NewPlan(ctx, o)
	if err != nil {
		return nil, err
	}
	return retention.Execute(ctx, o, plan)
}

// taker writes snapshots of one source. Each has a pack of its own, and that of the one before.
type taker struct {
	last *store.Signed
	pack store.Key
	n    int64
}

func (p *pair) take(t *testing.T, source string) store.Signed {
	t.Helper()
	e, err := p.put(t.Context(), p.origin(t), source)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (p *pair) put(ctx context.Context, st *store.Store, source string) (store.Signed, error) {
	w := p.takers[source]
	if w == nil {
		w = &taker{}
		p.takers[source] = w
	}
	packs, err := st.NewPackWriter(ctx, p.time())
	if err != nil {
		return store.Signed{}, err
	}
	defer packs.Abort()
	name, err := store.EntryName(store.Entry{Kind: "Secret", Namespace: "fleet", Name: "a"})
	if err == nil {
		_, err = packs.Add(name, fmt.Appendf(nil, "%s %d", source, w.n))
	}
	if err == nil {
		err = packs.Close()
	}
	if err != nil {
		return store.Signed{}, err
	}
	shard, err := st.PutShard(ctx, []byte("{}"))
	if err != nil {
		return store.Signed{}, err
	}
	tree := store.Tree{Shards: []store.Key{shard.Key}, Packs: []store.Key{packs.Packs()[0].Key}}
	if w.pack != "" {
		tree.Packs = append(tree.Packs, w.pack)
	}
	key, err := st.PutTree(ctx, tree)
	if err != nil {
		return store.Signed{}, err
	}
	e := store.Envelope{ID: store.NewSnapshotID(), Time: p.time(), Source: store.Source{UID: source,
		Name: "m"}, ResourceVersion: "1", Sequence: w.n + 1, Tree: key, Writer: "test"}
	if w.last != nil {
		e.Parent = &store.Parent{ID: w.last.ID, SHA256: w.last.SHA256}
	}
	signed, err := st.PutEnvelope(ctx, e)
	if err == nil {
		w.last, w.pack, w.n = &signed, packs.Packs()[0].Key, w.n+1
	}
	return signed, err
}

// hourly takes n snapshots of a source, one an hour.
func (p *pair) hourly(t *testing.T, source string, n int) (list []store.Signed) {
	t.Helper()
	for range n {
		p.pass(time.Hour)
		list = append(list, p.take(t, source))
	}
	return list
}

// whole fails unless every snapshot in a bucket has all that it names, and returns their numbers.
func (p *pair) whole(t *testing.T, b bucket.Bucket) string {
	t.Helper()
	st := p.opened(t, b)
	keys, err := st.Snapshots(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for _, k := range keys {
		e, err := st.GetEnvelope(t.Context(), k)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		if !st.Accepted(&e) {
			t.Errorf("%s is %s", k, e.Trust)
		}
		numbers = append(numbers, fmt.Sprintf("%s%d", k.Source[len(k.Source)-1:], e.Sequence))
		r, err := st.VerifyStructure(t.Context(), e.Envelope, nil)
		if err != nil || len(r.Findings) > 0 {
			t.Errorf("%s (number %d): %v, %v", k, e.Sequence, r.Findings, err)
		}
	}
	return strings.Join(numbers, " ")
}

// content lists the keys of a bucket but those that each run writes for itself.
func content(b *faultbucket.Versioned) []string {
	return slices.DeleteFunc(b.Keys(""), func(key string) bool {
		folder, _, _ := strings.Cut(key, "/")
		return folder == "copying" || folder == "copied" || folder == "prunes"
	})
}

func read(t *testing.T, b bucket.Bucket, key string) string {
	t.Helper()
	data, err := bucket.ReadAll(t.Context(), b, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// hooked calls a function before each call of a bucket; it may use the bucket itself. Its error is
// that of the call.
type hooked struct {
	bucket.Bucket
	before func(op, key string) error
	// size is how many keys are deleted together; 0 for each by itself.
	size int
}

func (h *hooked) BatchSize() int { return h.size }

func (h *hooked) DeleteBatch(ctx context.Context, keys []string) map[string]error {
	return bucket.DeleteEach(ctx, h, keys)
}

func (h *hooked) Put(ctx context.Context, key string, data []byte) error {
	if err := h.before("put", key); err != nil {
		return err
	}
	return h.Bucket.Put(ctx, key, data)
}

func (h *hooked) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	if err := h.before("list", prefix); err != nil {
		return err
	}
	return h.Bucket.List(ctx, prefix, fn)
}

func (h *hooked) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := h.before("get", key); err != nil {
		return nil, err
	}
	return h.Bucket.Get(ctx, key)
}

func (h *hooked) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if err := h.before("stat", key); err != nil {
		return bucket.Info{}, err
	}
	return h.Bucket.Stat(ctx, key)
}

func (h *hooked) Delete(ctx context.Context, key string) error {
	if err := h.before("delete", key); err != nil {
		return err
	}
	r, ok := h.Bucket.(bucket.Remover)
	if !ok {
		return errors.New("nothing can be deleted")
	}
	return r.Delete(ctx, key)
}
