//go:build api

package snapshot_test

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// chainFixture creates snapshots of one source with a catalog and a cache, as the service does.
type chainFixture struct {
	t      testing.TB
	source *hooked // of the snapshots
	m      *kube.Mgmt
	st     *store.Store
	dir    string
	c      *catalog.Catalog
	cache  incremental.RunCache
	runs   int

	exactLimit int // of all snapshots

	refuses func(kube.Kind) bool // kinds that the source does not read as of a resourceVersion
}

func newChainFixture(t testing.TB) *chainFixture { return newChainFixtureOn(t, 0) }

// newChainFixtureOn makes a fixture whose source is another server.
func newChainFixtureOn(t testing.TB, server int) *chainFixture {
	t.Helper()
	dir := t.TempDir()
	r := &chainFixture{t: t, m: servers.Connect(t, server), st: newStoreIn(t, dir), dir: dir}
	r.source = &hooked{Source: r.m.Reader()}
	r.newCatalog()
	return r
}

// newCatalog begins with a catalog that knows nothing.
func (r *chainFixture) newCatalog() {
	r.t.Helper()
	c, err := catalog.Open(r.t.Context(), filepath.Join(r.t.TempDir(), "catalog.db"),
		catalog.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.c = c
	r.t.Cleanup(func() {
		if problems := c.Check(context.Background()); len(problems) > 0 {
			r.t.Error(problems)
		}
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

// files are the keys of the bucket and their sizes.
func (r *chainFixture) files() map[string]int64 {
	r.t.Helper()
	files := map[string]int64{}
	root := filepath.Join(r.dir, "store")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files[strings.TrimPrefix(path, root+"/")] = info.Size()
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return files
}

// take takes a snapshot and returns it with the keys that it wrote. It is what a full one as of the
// same resourceVersion is.
func (r *chainFixture) take(change func(*snapshot.Options)) (taken *snapshot.Result,
	wrote map[string]int64) {
	r.t.Helper()
	before := r.files()
	o := r.options()
	if change != nil {
		change(&o)
	}
	taken, err := snapshot.Create(r.t.Context(), o)
	if err != nil || taken.NotRemembered != nil {
		r.t.Fatal(err, taken.NotRemembered)
	}
	wrote = r.files()
	maps.DeleteFunc(wrote, func(key string, _ int64) bool { _, there := before[key]; return there })
	r.same(taken, o)
	return taken, wrote
}

// options are those of a process that took the snapshot before, but for each third one: that opens
// what the catalog has.
func (r *chainFixture) options() snapshot.Options {
	cache := &r.cache
	if r.runs++; r.runs%3 == 0 {
		cache = nil
	}
	return snapshot.Options{
		Source: r.source, SourceName: r.m.Name(), SourceUID: r.m.UID(),
		Kubernetes: r.m.KubernetesVersion(), Providers: r.m.Providers, Store: r.st,
		Writer: "test", State: r.c.SnapshotState(r.st.ID(), r.m.UID()), Cache: cache,
		ExactLimit: r.exactLimit,
	}
}

// kind counts keys of one kind.
func kind(keys map[string]int64, folder string) (n int, bytes int64) {
	for key, size := range keys {
		if strings.HasPrefix(key, folder+"/") {
			n++
			bytes += size
		}
	}
	return n, bytes
}

func (r *chainFixture) contents(e store.Envelope) map[object.Ref][]byte {
	r.t.Helper()
	return r.verified(e).bodies
}

// verified opens a snapshot after a verification of its structure.
func (r *chainFixture) verified(e store.Envelope) opened {
	r.t.Helper()
	report, err := r.st.VerifyStructure(r.t.Context(), e, nil)
	if err != nil || len(report.Findings) > 0 {
		r.t.Fatalf("verify: %v, %v", report.Findings, err)
	}
	if report.Bytes != e.Bytes {
		r.t.Errorf("the envelope says %d bytes, there are %d", e.Bytes, report.Bytes)
	}
	return r.open(r.st, e)
}

// hooked is a source in which a test can do something before a LIST or a watch, and make it fail.
type hooked struct {
	capture.Source
	onKinds func()
	onList  func(k kube.Kind, o kube.ListOptions) error
	onWatch func(k kube.Kind) error
	alter   func(k kube.Kind, o kube.ListOptions, raw []byte) []byte
	// asked after each object: the connection breaks
	breaks func(k kube.Kind, o kube.ListOptions) bool
}

func (h *hooked) Kinds(ctx context.Context) ([]kube.Kind, error) {
	if h.onKinds != nil {
		h.onKinds()
	}
	return h.Source.Kinds(ctx)
}

func (h *hooked) List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func([]byte) error) (
	kube.ListResult, error) {
	if h.onList != nil {
		if err := h.onList(k, o); err != nil {
			return kube.ListResult{}, err
		}
	}
	if alter := h.alter; alter != nil {
		give := fn
		fn = func(raw []byte) error { return give(alter(k, o, raw)) }
	}
	broken := false
	if breaks := h.breaks; breaks != nil {
		give := fn
		fn = func(raw []byte) error {
			if err := give(raw); err != nil || !breaks(k, o) {
				return err
			}
			broken = true
			return io.ErrUnexpectedEOF
		}
	}
	result, err := h.Source.List(ctx, k, o, fn)
	if broken {
		err = io.ErrUnexpectedEOF
	}
	return result, err
}

func (h *hooked) Changes(ctx context.Context, k kube.Kind, from, to string,
	fn func(bool, []byte) error) error {
	if h.onWatch != nil {
		if err := h.onWatch(k); err != nil {
			return err
		}
	}
	return h.Source.Changes(ctx, k, from, to, fn)
}

// removeSnapshots deletes all envelopes, as somebody with a broom would.
func (r *chainFixture) removeSnapshots() {
	for key := range r.files() {
		if strings.HasPrefix(key, "snapshots/") {
			if err := os.Remove(filepath.Join(r.dir, "store", key)); err != nil {
				r.t.Error(err)
			}
		}
	}
}

func (r *chainFixture) damageTrees() {
	r.t.Helper()
	for key := range r.files() {
		if strings.HasPrefix(key, "trees/") {
			if err := os.WriteFile(filepath.Join(r.dir, "store", key), []byte("broken"), 0o600); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// anotherRecipient opens the store with one recipient more.
func (r *chainFixture) anotherRecipient() {
	r.t.Helper()
	more, err := store.Keygen(r.t.TempDir()+"/keys", time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	keys := r.dir + "/keys/"
	loaded, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{recipientIn(r.t, keys), more.Recipient}, IdentityFiles: []string{keys +
			"identity.txt"}, SigningKeyFile: keys + "signing.key",
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.st, err = store.Open(r.t.Context(), store.Options{Bucket: directory.New(r.dir + "/store"),
		Keys: loaded}); err != nil {
		r.t.Fatal(err)
	}
}

// anotherSigningKey opens the store with a new signing key, and still trusts the one before.
func (r *chainFixture) anotherSigningKey() {
	r.t.Helper()
	keys, more := r.dir+"/keys/", r.t.TempDir()+"/keys/"
	if _, err := store.Keygen(more, time.Now()); err != nil {
		r.t.Fatal(err)
	}
	loaded, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{recipientIn(r.t, keys)}, IdentityFiles: []string{keys + "identity.txt"},
		SigningKeyFile: more + "signing.key", TrustedKeyFiles: []string{keys + "signing.pub"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.st, err = store.Open(r.t.Context(), store.Options{Bucket: directory.New(r.dir + "/store"),
		Keys: loaded}); err != nil {
		r.t.Fatal(err)
	}
}

func recipientIn(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile(dir + "recipient.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
