//go:build api

package snapshot_test

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// remembering takes snapshots with a catalog, as the service does.
type remembering struct {
	t      *testing.T
	source *hooked // of the snapshots
	m      *kube.Mgmt
	st     *store.Store
	dir    string
	c      *catalog.Catalog
	cache  snapshot.RunCache
	runs   int

	refuses func(kube.Kind) bool // kinds that the source does not read as of a resourceVersion
}

func newRemembering(t *testing.T) *remembering {
	t.Helper()
	dir := t.TempDir()
	r := &remembering{t: t, m: servers.Connect(t, 0), st: newStoreIn(t, dir), dir: dir}
	r.source = &hooked{Source: r.m.Reader()}
	r.newCatalog()
	return r
}

// newCatalog begins with a catalog that knows nothing.
func (r *remembering) newCatalog() {
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
func (r *remembering) files() map[string]int64 {
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
func (r *remembering) take(change func(*snapshot.Options)) (taken *snapshot.Result,
	wrote map[string]int64) {
	r.t.Helper()
	before := r.files()
	o := r.options()
	if change != nil {
		change(&o)
	}
	taken, err := snapshot.Run(r.t.Context(), o)
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
func (r *remembering) options() snapshot.Options {
	cache := &r.cache
	if r.runs++; r.runs%3 == 0 {
		cache = nil
	}
	return snapshot.Options{
		Source: r.source, SourceName: r.m.Name(), SourceUID: r.m.UID(),
		Kubernetes: r.m.KubernetesVersion(), Providers: r.m.Providers, Store: r.st,
		Writer: "test", State: r.c.SnapshotState(r.st.ID(), r.m.UID()), Cache: cache,
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

func (r *remembering) contents(e store.Envelope) map[object.Ref][]byte {
	r.t.Helper()
	return r.verified(e).bodies
}

// verified opens a snapshot after a look at its structure.
func (r *remembering) verified(e store.Envelope) opened {
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

// TestAPIUnchangedWritesOneKey: between two snapshots nothing changed, so that the second is an
// envelope.
func TestAPIUnchangedWritesOneKey(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "same-", "--workloads", "6", "--machines", "3", "--fast")
	r := newRemembering(t)
	first, wrote := r.take(nil)
	if len(wrote) < 8 {
		t.Errorf("the first wrote %v", wrote)
	}
	second, wrote := r.take(nil)
	if first.Read != first.Counts.Objects || second.Read != 0 {
		t.Errorf("of %d objects the first read %d, the second %d", first.Counts.Objects, first.Read,
			second.Read)
	}
	if first.Tree != second.Tree || len(wrote) != 1 || wrote[second.Key().String()] == 0 ||
		wrote[second.Key().String()] > 8<<10 {
		t.Errorf("the second wrote %v", wrote)
	}
}

// changes are what happens to a source between snapshots.
type changes struct {
	*remembering
	rand  *rand.Rand
	kinds []kube.Kind
}

// hooked is a source in which a test can do something before a LIST or a watch, and make it fail.
type hooked struct {
	snapshot.Source
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

// TestAPIIncrementalIsFull: what is read and written of changes gives, with what was there, the
// same snapshot as one that reads and writes everything; whatever happened to the objects, to the
// catalog, to the snapshots before, and to the recipients.
func TestAPIIncrementalIsFull(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "incremental-", "--workloads", "6", "--machines", "3",
		"--fast")
	c, last, whole := newChanges(t, 3)
	for range 6 {
		last = c.round(last, whole)
	}
	full := func(what string, is bool, change func(*snapshot.Options)) *snapshot.Result {
		t.Helper()
		taken, wrote := c.take(change)
		shards, _ := kind(wrote, "shards")
		if is && shards < 6 || !is && len(wrote) != 1 {
			t.Errorf("%s: wrote %v", what, wrote)
		}
		return taken
	}
	full("nothing happened", false, nil)
	full("asked for", true, func(o *snapshot.Options) { o.Full = true })
	full("after it", false, nil)
	c.newCatalog()
	full("a lost catalog", true, nil)
	full("after it", false, nil)
	c.removeSnapshots()
	full("snapshots that are gone", true, nil)
	full("a base that goes while a snapshot is taken", true, func(o *snapshot.Options) {
		o.Progress = once(func() { c.removeSnapshots() })
	})
	full("after it", false, nil)
	c.damageTrees()
	full("a damaged tree", true, nil)
	other, wrote := c.take(func(o *snapshot.Options) {
		o.Progress = once(func() {
			if _, err := snapshot.Run(t.Context(), c.options()); err != nil {
				t.Error(err)
			}
		})
	})
	if n, _ := kind(wrote, "snapshots"); n != 2 || len(wrote) != 2 || other.Parent == nil {
		t.Errorf("two at once wrote %v", wrote)
	}
	scope := snapshot.Scope{Namespaces: []string{onlyNamespace(t, c.m, "incremental-")}}
	_, wrote = c.take(func(o *snapshot.Options) { o.Scope = scope })
	if packs, _ := kind(wrote, "packs"); len(wrote) > 4 || packs > 0 {
		t.Errorf("a part of what is stored wrote %v", wrote)
	}
	full("what the part did not have", true, nil)
	c.anotherRecipient()
	full("another recipient", true, nil)
	before := full("the same recipients", false, nil)
	c.anotherSigningKey()
	after := full("another signing key", true, nil)
	if after.KeyID == before.KeyID || after.Parent == nil || after.Parent.SHA256 != before.SHA256 ||
		after.Sequence != before.Sequence+1 {
		t.Errorf("number %d signed by %s follows number %d signed by %s: parent %+v", after.Sequence,
			after.KeyID, before.Sequence, before.KeyID, after.Parent)
	}
	full("the same signing key", false, func(o *snapshot.Options) { o.Cache = &c.cache })
	in := func(days time.Duration) func(o *snapshot.Options) {
		return func(o *snapshot.Options) {
			o.Cache = &c.cache
			o.Now = func() time.Time { return time.Now().Add(days * 24 * time.Hour) }
		}
	}
	o := c.options()
	in(8)(&o)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(what string, _, _ int64) {
		if what == "shards written" { // the objects are in other packs by now
			cancel()
		}
	}
	if _, err := snapshot.Run(ctx, o); err == nil {
		t.Error("a run that was stopped took a snapshot")
	}
	full("after a run that was stopped", false, func(o *snapshot.Options) { o.Cache = &c.cache })
	full("old content", true, in(8))
	last = full("after old content", false, in(8))
	c.change(last.Envelope)
	c.take(in(12)) // some shards are younger now than the packs that they name
	full("content that is older than its shard", true, in(16))
}

func newChanges(t *testing.T, seed uint64) (c *changes, first *snapshot.Result,
	wrote map[string]int64) {
	t.Helper()
	c = &changes{remembering: newRemembering(t), rand: rand.New(rand.NewPCG(seed, seed))}
	var err error
	if c.kinds, err = c.m.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, wrote = c.take(nil)
	return c, first, wrote
}

// round changes something and takes a snapshot, which reads and writes little.
func (c *changes) round(last *snapshot.Result, whole map[string]int64) *snapshot.Result {
	c.t.Helper()
	c.change(last.Envelope)
	next, wrote := c.take(nil)
	packs, packed := kind(wrote, "packs")
	_, shards := kind(wrote, "shards")
	_, envelopes := kind(wrote, "snapshots")
	if len(wrote) >= len(whole) || packs != 1 {
		c.t.Errorf("%d keys written, by the first snapshot %d", len(wrote), len(whole))
	}
	if next.Read > 12 {
		c.t.Errorf("%d of %d objects read", next.Read, next.Counts.Objects)
	}
	if next.Wrote != packed+shards+envelopes {
		c.t.Errorf("it says that it wrote %d bytes: %v", next.Wrote, wrote)
	}
	return next
}

// once calls fn when progress is first told.
func once(fn func()) func(string, int64, int64) {
	var done sync.Once
	return func(string, int64, int64) { done.Do(fn) }
}

// removeSnapshots deletes all envelopes, as somebody with a broom would.
func (r *remembering) removeSnapshots() {
	for key := range r.files() {
		if strings.HasPrefix(key, "snapshots/") {
			if err := os.Remove(filepath.Join(r.dir, "store", key)); err != nil {
				r.t.Error(err)
			}
		}
	}
}

func (r *remembering) damageTrees() {
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
func (r *remembering) anotherRecipient() {
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
func (r *remembering) anotherSigningKey() {
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

func recipientIn(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(dir + "recipient.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// change writes to some objects, deletes one, and makes one anew.
func (c *changes) change(e store.Envelope) {
	c.t.Helper()
	s, err := snapshot.Open(c.t.Context(), c.st, e, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	nodes := slices.DeleteFunc(slices.Clone(s.Graph.Nodes),
		func(n *graph.Node) bool { return !strings.HasPrefix(n.Namespace, "incremental-") })
	loose := slices.DeleteFunc(slices.Clone(nodes),
		func(n *graph.Node) bool { return n.Kind != "Secret" && n.Kind != "ConfigMap" })
	for i := range 5 {
		n := nodes[c.rand.IntN(len(nodes))]
		k, _ := kube.FindKind(c.kinds, n.GroupKind())
		if _, err := c.m.Writer().PatchMetadata(c.t.Context(), k, n.Namespace, n.Name,
			map[string]any{"annotations": map[string]any{"test.mgmtd.dev/touched": string(
				rune('a' + i))}}); err != nil {
			c.t.Fatal(err)
		}
	}
	for i, at := range c.rand.Perm(len(loose))[:2] {
		n := loose[at]
		k, _ := kube.FindKind(c.kinds, n.GroupKind())
		u, err := c.m.Reader().Get(c.t.Context(), k, n.Namespace, n.Name)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := c.m.Writer().Delete(c.t.Context(), k, n.Namespace, n.Name, u.GetUID(),
			""); err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		u.SetUID("")
		u.SetResourceVersion("")
		if _, err := c.m.Writer().Create(c.t.Context(), k, u); err != nil {
			c.t.Fatal(err)
		}
	}
}
