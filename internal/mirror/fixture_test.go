package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// flaky is a directory whose next writes of operation records fail.
type flaky struct {
	*directory.Bucket
	// refuse is the error of writes, of which the bytes are stored nevertheless with lostAnswer.
	refuse     error
	lostAnswer bool
	// puts counts the records that were written.
	puts int
	// lost are the bytes of the last record whose number another host had taken.
	lost []byte
	// stored is called once a record is stored; may be nil.
	stored func()
	// hidden is the error of reads of records.
	hidden error
}

func (f *flaky) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if f.hidden != nil && strings.HasPrefix(key, "operations/") {
		return nil, f.hidden
	}
	return f.Bucket.Get(ctx, key)
}

func (f *flaky) Put(ctx context.Context, key string, data []byte) error {
	if !strings.HasPrefix(key, "operations/") {
		return f.Bucket.Put(ctx, key, data)
	}
	if f.refuse != nil && !f.lostAnswer {
		return f.refuse
	}
	err := f.Bucket.Put(ctx, key, data)
	if err == nil {
		f.puts++
		if f.stored != nil {
			f.stored()
		}
	}
	if errors.Is(err, store.ErrExists) {
		f.lost = bytes.Clone(data)
	}
	if f.refuse != nil {
		return f.refuse
	}
	return err
}

// fixture is a store that hosts share.
type fixture struct {
	t    *testing.T
	keys *store.Keys
	dir  string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	g, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: []string{g.Recipient},
		IdentityFiles:   []string{filepath.Join(dir, store.IdentityFile)},
		SigningKeyFile:  filepath.Join(dir, store.SigningFile),
		TrustedKeyFiles: []string{filepath.Join(dir, store.SigningPubFile)}})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, keys, filepath.Join(dir, "store")}
}

// host is a host with a catalog of its own.
type host struct {
	t       *testing.T
	name    string
	file    string
	c       *catalog.Catalog
	st      *store.Store
	bucket  *flaky
	m       *Mirror
	giveUp  bool // of the next begin
	lost    []*FencedError
	unable  []error
	changed []string // what its steps did
}

func (f *fixture) host(name string) *host {
	f.t.Helper()
	b := &flaky{Bucket: directory.New(f.dir)}
	h := f.hostIn(name, b)
	h.bucket = b
	return h
}

// hostIn is a host whose store is in a bucket.
func (f *fixture) hostIn(name string, b bucket.Bucket) *host {
	f.t.Helper()
	h := &host{t: f.t, name: name, file: filepath.Join(f.t.TempDir(), "catalog.db")}
	var err error
	if h.st, err = store.Open(f.t.Context(), store.Options{Bucket: b, Keys: f.keys,
		Create: true}); err != nil {
		f.t.Fatal(err)
	}
	h.open()
	f.t.Cleanup(func() { _ = h.c.Close() })
	return h
}

func (h *host) open() {
	h.t.Helper()
	c, err := catalog.Open(context.Background(), h.file, catalog.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.c = c
}

// begin begins a run of an operation, a new one when id is empty.
func (h *host) begin(id catalog.OperationID) *catalog.Journal {
	h.t.Helper()
	j, err := h.tryBegin(id)
	if err != nil {
		h.t.Fatal(err)
	}
	return j
}

func (h *host) tryBegin(id catalog.OperationID) (*catalog.Journal, error) {
	ctx := h.t.Context()
	if id == "" {
		op, err := h.c.CreateOperation(ctx, catalog.Operation{Kind: catalog.KindRestore,
			Source: catalog.Side{Name: "prod"}, Target: catalog.Side{Name: "next"}})
		if err != nil {
			return nil, err
		}
		id = op.ID
	}
	m, err := Begin(ctx, id, Options{Catalog: h.c, Store: h.st, Host: h.name, GiveUp: h.giveUp,
		Lost:   func(e *FencedError) { h.lost = append(h.lost, e) },
		Unable: func(err error) { h.unable = append(h.unable, err) }})
	if err != nil {
		return nil, err
	}
	h.m = m
	if _, err := h.c.SetState(ctx, id, catalog.Running, catalog.Outcome{}); err != nil {
		return nil, err
	}
	return h.c.Journal(id, m.Journal()), nil
}

// do runs a step that records a value and notes that it ran.
func (h *host) do(j *catalog.Journal, phase string) error {
	step := catalog.Step{Unit: "team-a/web", Phase: phase}
	return j.Do(h.t.Context(), step, func(ctx context.Context, s *catalog.StepHandle) error {
		h.changed = append(h.changed, phase)
		return s.Record(ctx, catalog.Value{Key: phase, Data: json.RawMessage(`"uid"`)})
	})
}

func (h *host) undo(j *catalog.Journal, phase string) error {
	step := catalog.Step{Unit: "team-a/web", Phase: phase}
	return j.Undo(h.t.Context(), step, func(context.Context, *catalog.StepHandle) error {
		h.changed = append(h.changed, "undo "+phase)
		return nil
	})
}

func (h *host) end(j *catalog.Journal, state catalog.State) {
	h.t.Helper()
	if _, err := h.c.SetState(h.t.Context(), j.Operation(), state, catalog.Outcome{}); err != nil {
		h.t.Fatal(err)
	}
	if err := h.m.Close(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) takeOver(id catalog.OperationID) *catalog.Journal {
	h.t.Helper()
	if _, err := Import(h.t.Context(), h.c, h.st, "", id); err != nil {
		h.t.Fatal(err)
	}
	return h.begin(id)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// record is all that a catalog has of an operation.
func (h *host) record(id catalog.OperationID) []any {
	h.t.Helper()
	ctx := h.t.Context()
	op, err := h.c.Operation(ctx, id)
	must(h.t, err)
	steps, err := h.c.Steps(ctx, id)
	must(h.t, err)
	values := map[string]map[string]json.RawMessage{}
	for _, s := range steps {
		values[s.Step.String()], err = h.c.Journal(id, catalog.JournalOptions{}).Values(ctx, s.Step)
		must(h.t, err)
	}
	var events []catalog.Event
	for e, err := range h.c.Events(ctx, id, 0) {
		must(h.t, err)
		events = append(events, e)
	}
	plan, err := h.c.Plan(ctx, id)
	must(h.t, err)
	if problems := h.c.Check(ctx); len(problems) > 0 {
		h.t.Fatal(errors.Join(problems...))
	}
	return []any{op, steps, values, events, sha256.Sum256(plan)}
}
