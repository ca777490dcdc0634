//go:build api

package providertest_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// site is a store with its keys and a catalog.
type site struct {
	store   *store.Store
	catalog *catalog.Catalog
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	if _, err := store.Keygen(dir+"/keys", time.Now()); err != nil {
		t.Fatal(err)
	}
	recipient, err := os.ReadFile(dir + "/keys/recipient.txt")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{
		Recipients:      []string{string(bytes.TrimSpace(recipient))},
		IdentityFiles:   []string{dir + "/keys/identity.txt"},
		SigningKeyFile:  dir + "/keys/signing.key",
		TrustedKeyFiles: []string{dir + "/keys/signing.pub"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	if s.store, err = store.Open(t.Context(), store.Options{Bucket: directory.New(dir + "/store"),
		Keys: keys, Create: true}); err != nil {
		t.Fatal(err)
	}
	if s.catalog, err = catalog.Open(t.Context(), dir+"/catalog.db", catalog.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.catalog.Close() })
	return s
}

// taken is a snapshot, in memory.
type taken struct {
	*snapshot.Snapshot
	contents *snapshot.Contents
	signed   store.Signed
}

// take takes a snapshot of a side.
func (s *site) take(t *testing.T, from *side) *taken {
	t.Helper()
	options := snapshot.OptionsFor(from.Mgmt, nil)
	options.Store, options.Writer = s.store, "test"
	if _, err := snapshot.Create(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	sources, err := s.store.Sources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newest, _, err := s.store.Newest(t.Context(), sources[0], store.Which{})
	if err != nil {
		t.Fatal(err)
	}
	out := &taken{signed: *newest}
	if out.Snapshot, err = snapshot.Open(t.Context(), s.store, newest.Envelope, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// plan plans a restore. It loads the objects again: a run frees them.
func (s *taken) plan(t *testing.T, target *side, spec restore.Spec) *restore.Plan {
	t.Helper()
	nodes, err := restore.Nodes(s.Snapshot, restore.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if s.contents, err = s.Load(t.Context(), nodes, nil); err != nil {
		t.Fatal(err)
	}
	providers, err := target.Providers(t.Context(), target.kinds)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := restore.NewPlan(t.Context(), restore.Input{Providers: providers,
		Snapshot: s.Snapshot, Contents: s.contents, Source: restore.Snapshot{ID: string(s.signed.ID),
			Source: object.Side{UID: s.signed.Source.UID}, Time: s.signed.Time},
		Target: object.Side{Name: target.Name(), UID: target.UID()}, Reader: target.Reader(),
		Prober: target.Prober(), Kinds: target.kinds, Spec: spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

var tuning = restore.Tuning{Wait: 20 * time.Second, Settle: 20 * time.Millisecond, MaxFailures: 0}

// restore carries out a plan. Units that fail are logged: what became of them is checked object by
// object.
func (s *site) restore(t *testing.T, from *taken, target *side, plan *restore.Plan,
	w restore.Writer) {
	t.Helper()
	op, err := s.catalog.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		t.Fatal(err)
	}
	s.run(t, op.ID)
	err = restore.Run(t.Context(), restore.RunOptions{Plan: plan, Contents: from.contents,
		Reader: target.Reader(), Writer: w, Prober: target.Prober(), Kinds: target.kinds,
		Operation: string(op.ID), Journal: s.catalog.Journal(op.ID, catalog.JournalOptions{}),
		Tuning: tuning})
	s.end(t, op.ID, err)
}

// move moves everything from one side to the other.
func (s *site) move(t *testing.T, ends move.Ends, spec move.Spec) {
	t.Helper()
	op, err := ends.Create(t.Context(), s.catalog)
	if err != nil {
		t.Fatal(err)
	}
	s.run(t, op.ID)
	err = move.Run(t.Context(), move.Options{Ends: ends, Catalog: s.catalog, Program: "test",
		Journal: s.catalog.Journal(op.ID, catalog.JournalOptions{})},
		move.Request{Spec: spec, Tuning: tuning})
	s.end(t, op.ID, err)
}

func (s *site) ends(t *testing.T, from, to *side) move.Ends {
	t.Helper()
	ends, err := move.NewEnds(t.Context(), from.Mgmt, to.Mgmt, s.store, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

func (s *site) run(t *testing.T, id catalog.OperationID) {
	t.Helper()
	if _, err := s.catalog.SetState(t.Context(), id, catalog.Running, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
}

// end records how an operation ended, and logs what went wrong.
func (s *site) end(t *testing.T, id catalog.OperationID, failed error) {
	t.Helper()
	state := catalog.Succeeded
	if failed != nil {
		state = catalog.Failed
		t.Log(failed)
	}
	if _, err := s.catalog.SetState(t.Context(), id, state, catalog.Outcome{}); err != nil {
		t.Fatal(err)
	}
	for e, err := range s.catalog.Watch(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if f := e.Finding; f != nil && f.Severity >= object.Error {
			t.Log(f.Unit, f)
		}
	}
}

// recorder is a writer that remembers each version of an object that it wrote, in the order of the
// API server's answers.
type recorder struct {
	move.Writer
	mu       sync.Mutex
	versions []*unstructured.Unstructured
	// created is the place of the first version of an object in versions.
	created map[object.Ref]int
}

func newRecorder(s *side) *recorder {
	return &recorder{Writer: s.Writer(), created: map[object.Ref]int{}}
}

func (r *recorder) see(u *unstructured.Unstructured, err error, create bool) (
	*unstructured.Unstructured, error) {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if create {
			r.created[refOf(u)] = len(r.versions)
		}
		r.versions = append(r.versions, u.DeepCopy())
	}
	return u, err
}

func (r *recorder) Create(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	made, err := r.Writer.Create(ctx, k, u)
	return r.see(made, err, true)
}

func (r *recorder) Update(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	made, err := r.Writer.Update(ctx, k, u)
	return r.see(made, err, false)
}

func (r *recorder) UpdateStatus(ctx context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	made, err := r.Writer.UpdateStatus(ctx, k, u)
	return r.see(made, err, false)
}
