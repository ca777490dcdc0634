package mirror

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	lost    []*FencedError
	unable  []error
	changed []string // what its steps did
}

func (f *fixture) host(name string) *host {
	f.t.Helper()
	h := &host{t: f.t, name: name, file: filepath.Join(f.t.TempDir(), "catalog.db"),
		bucket: &flaky{Bucket: directory.New(f.dir)}}
	var err error
	if h.st, err = store.Open(f.t.Context(), store.Options{Bucket: h.bucket, Keys: f.keys,
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
	m, err := Begin(ctx, id, Options{Catalog: h.c, Store: h.st, Host: h.name,
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
	if _, err := Import(h.t.Context(), h.c, h.st, id); err != nil {
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

// TestOperationIsTheSameOnAnotherHost: plans, steps, values, units and history are in the mirror,
// also a plan that needs many records.
func TestOperationIsTheSameOnAnotherHost(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	plan := make([]byte, 9<<20) // random: it is not compressed
	_, _ = rand.Read(plan)
	_, err := a.c.PutPlan(t.Context(), j.Operation(), bytes.NewReader(plan))
	must(t, err)
	must(t, j.SetUnit(t.Context(), "team-a/web", catalog.UnitPending, ""))
	for _, phase := range []string{"create", "own", "release"} {
		must(t, a.do(j, phase))
	}
	must(t, a.undo(j, "release"))
	_, err = a.c.PutBatchPlan(t.Context(), j.Operation(), "batch-001", strings.NewReader("batch"))
	must(t, err)
	must(t, j.SetUnit(t.Context(), "team-a/web", catalog.UnitCopied, ""))
	a.end(j, catalog.Failed)

	if a.bucket.puts < 5 {
		t.Errorf("only %d records for a plan of 9 MiB", a.bucket.puts)
	}
	op, err := Import(t.Context(), b.c, b.st, j.Operation())
	must(t, err)
	if diff := cmp.Diff(a.record(op.ID), b.record(op.ID), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-first +other):\n%.2000s", diff)
	}
	if text, err := b.c.BatchPlan(t.Context(), op.ID, "batch-001"); string(text) != "batch" {
		t.Errorf("batch %q, %v", text, err)
	}
	found, err := List(t.Context(), b.st)
	must(t, err)
	if len(found) != 1 || found[0].Head.Host != "a" || found[0].Head.State != "failed" ||
		found[0].Head.Final || found[0].Head.Source != "prod" || found[0].Head.Target != "next" {
		t.Errorf("listed %+v", found)
	}
}

// TestOnlyHarmlessStepsBeginWithoutTheirRecord: what the store does not know must not change
// anything that another host could not repeat.
func TestOnlyHarmlessStepsBeginWithoutTheirRecord(t *testing.T) {
	a := newFixture(t).host("a")
	j := a.begin("")
	down := &bucket.Error{Op: "put", Class: bucket.ErrUnreachable, Err: errors.New("down")}
	a.bucket.refuse = down
	if err := a.do(j, "create"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("the first step of a run began: %v", err)
	}
	a.bucket.refuse = nil
	must(t, a.do(j, "create"))
	a.bucket.refuse = down
	must(t, a.do(j, "owners"))
	for _, phase := range []string{"own", "release", "pause", "hand-over", "retire",
		"never-heard-of"} {
		if err := a.do(j, phase); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("%s began: %v", phase, err)
		}
	}
	if err := a.undo(j, "create"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("undo began: %v", err)
	}
	_, err := a.c.PutBatchPlan(t.Context(), j.Operation(), "batch-001", strings.NewReader("batch"))
	must(t, err)
	if err := a.do(j, "create-b1"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("a step of a new plan began: %v", err)
	}
	a.bucket.refuse = nil
	must(t, a.do(j, "release"))
	if diff := cmp.Diff([]string{"create", "owners", "release"}, a.changed); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestHostThatWasSuspendedAsksBeforeHarmlessSteps: what it creates after a take-over is litter.
func TestHostThatWasSuspendedAsksBeforeHarmlessSteps(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	must(t, b.do(b.takeOver(j.Operation()), "release"))
	a.m.mu.Lock()
	a.m.written = time.Now().Add(-time.Minute)
	a.m.mu.Unlock()
	if err := a.do(j, "owners"); !errorIsFenced(err) {
		t.Errorf("began: %v", err)
	}
}

// TestFirstHostStopsWhenAnotherTakesOver: it loses its next record, begins no step any more, and
// cannot begin a run.
func TestFirstHostStopsWhenAnotherTakesOver(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	other := b.takeOver(j.Operation())
	must(t, b.do(other, "release"))

	err := a.do(j, "release")
	fenced, ok := errors.AsType[*FencedError](err)
	if !ok || fenced.Host != "b" || len(a.lost) != 1 {
		t.Fatalf("%v, lost %v; want host b", err, a.lost)
	}
	for _, phase := range []string{"owners", "own"} {
		if err := a.do(j, phase); err == nil {
			t.Errorf("%s began although another host has taken over", phase)
		}
	}
	if diff := cmp.Diff([]string{"create"}, a.changed); diff != "" {
		t.Errorf("steps of the first host (-want +got):\n%s", diff)
	}
	a.end(j, catalog.Stopped)
	if _, err := a.tryBegin(j.Operation()); !errorIsFenced(err) {
		t.Errorf("the first host begins again: %v", err)
	}
	b.end(other, catalog.Stopped)
	// An operator may bring it back, with all that the other host has done.
	back := a.takeOver(j.Operation())
	if state, err := back.State(t.Context(), catalog.Step{Unit: "team-a/web",
		Phase: "release"}); state != catalog.StepDone || err != nil {
		t.Errorf("the step of the other host is %q, %v", state, err)
	}
	if err := b.do(other, "own"); err == nil {
		t.Error("the other host goes on")
	}
}

func errorIsFenced(err error) bool {
	_, ok := errors.AsType[*FencedError](err)
	return ok
}

// TestOfTwoHostsThatTakeOverOneStops: both have read the same record.
func TestOfTwoHostsThatTakeOverOneStops(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.host("a"), f.host("b"), f.host("c")
	j := a.begin("")
	must(t, a.do(j, "create"))
	first, second := b.takeOver(j.Operation()), c.takeOver(j.Operation())
	must(t, b.do(first, "release"))
	if err := c.do(second, "release"); !errorIsFenced(err) || len(c.changed) > 0 {
		t.Errorf("%v, changed %v", err, c.changed)
	}
}

// TestHostKnowsItsOwnRecordAfterACrash: the answer to its last record was lost, and so was the
// process. It is not taken for another host.
func TestHostKnowsItsOwnRecordAfterACrash(t *testing.T) {
	f := newFixture(t)
	a := f.host("a")
	j := a.begin("")
	must(t, a.do(j, "create"))
	a.bucket.refuse, a.bucket.lostAnswer = &bucket.Error{Op: "put", Class: bucket.ErrUnreachable,
		Err: errors.New("reset")}, true
	if err := a.do(j, "release"); err == nil {
		t.Fatal("the answer was not lost")
	}
	must(t, a.c.Close())
	a.bucket.refuse, a.bucket.lostAnswer = nil, false
	a.open()
	_, err := a.c.SetState(t.Context(), j.Operation(), catalog.Stopped, catalog.Outcome{})
	must(t, err)
	must(t, a.do(a.begin(j.Operation()), "release"))
	// And within one process the record is not written twice.
	a.bucket.refuse, a.bucket.lostAnswer = &bucket.Error{Op: "put", Class: bucket.ErrUnreachable,
		Err: errors.New("reset")}, true
	j = a.c.Journal(j.Operation(), a.m.Journal())
	if err := a.do(j, "own"); err == nil {
		t.Fatal("the answer was not lost")
	}
	a.bucket.refuse, a.bucket.lostAnswer = nil, false
	must(t, a.do(j, "own"))
	_, _, err = Read(t.Context(), a.st, j.Operation())
	must(t, err)
}

// TestStoreThatTakesNoRecordsStopsNoRestore: the run goes on, and says so once.
func TestStoreThatTakesNoRecordsStopsNoRestore(t *testing.T) {
	f := newFixture(t)
	a := f.host("a")
	a.bucket.refuse = &bucket.Error{Op: "put", Class: bucket.ErrDenied, Err: errors.New("read only")}
	j := a.begin("")
	must(t, a.do(j, "create"))
	must(t, a.do(j, "release"))
	a.end(j, catalog.Stopped)
	if len(a.unable) != 1 || !errors.Is(a.unable[0], store.ErrDenied) {
		t.Errorf("unable: %v", a.unable)
	}
	// The next run tries again. Once there are records, it does not go on without them.
	a.bucket.refuse = nil
	j = a.begin(j.Operation())
	must(t, a.do(j, "own"))
	a.bucket.refuse = &bucket.Error{Op: "put", Class: bucket.ErrDenied, Err: errors.New("read only")}
	if err := a.do(j, "retire"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("went on without the mirror that another host may have taken over: %v", err)
	}
}

// TestRecordsThatAreMissingAreDamage: a host that finds fewer records than it wrote cannot fence
// out another one, and a reader would get a mixture.
func TestRecordsThatAreMissingAreDamage(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	for _, phase := range []string{"create", "own", "release"} {
		must(t, a.do(j, phase))
	}
	a.end(j, catalog.Stopped)
	must(t, a.bucket.Delete(t.Context(), fmt.Sprintf("operations/%s/00000002.json.zst.age",
		j.Operation())))
	if _, err := Import(t.Context(), b.c, b.st, j.Operation()); !isCorrupt(err) {
		t.Errorf("read with a record missing: %v", err)
	}
	keys, err := a.st.OperationRecords(t.Context(), string(j.Operation()))
	must(t, err)
	must(t, a.bucket.Delete(t.Context(), keys[len(keys)-1].String()))
	if _, err := a.tryBegin(j.Operation()); err == nil {
		t.Error("went on although its newest record is gone")
	}
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*store.CorruptError](err)
	return ok
}

// TestUndoOfAnImportedOperationSkipsNoStep: the lost host may have begun steps that only its
// catalog knew of.
func TestUndoOfAnImportedOperationSkipsNoStep(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	must(t, a.undo(j, "owners"))
	must(t, b.undo(b.takeOver(j.Operation()), "owners"))
	if len(a.changed) != 1 || len(b.changed) != 1 {
		t.Errorf("the first host did %v, the other one %v", a.changed, b.changed)
	}
}

// TestHostLostInTheMiddleOfRecordsLeavesTheStateBefore: a plan that takes several records counts
// only once all of them are there.
func TestHostLostInTheMiddleOfRecordsLeavesTheStateBefore(t *testing.T) {
	f := newFixture(t)
	a, b := f.host("a"), f.host("b")
	j := a.begin("")
	must(t, a.do(j, "create"))
	plan := make([]byte, 9<<20)
	_, _ = rand.Read(plan)
	_, err := a.c.PutBatchPlan(t.Context(), j.Operation(), "batch-001", bytes.NewReader(plan))
	must(t, err)
	must(t, a.do(j, "own"))
	keys, err := a.st.OperationRecords(t.Context(), string(j.Operation()))
	must(t, err)
	must(t, a.bucket.Delete(t.Context(), keys[len(keys)-1].String()))
	_, err = Import(t.Context(), b.c, b.st, j.Operation())
	must(t, err)
	if _, err := b.c.BatchPlan(t.Context(), j.Operation(), "batch-001"); !errors.Is(err,
		catalog.ErrNotFound) {
		t.Errorf("half a plan: %v", err)
	}
	steps, err := b.c.Steps(t.Context(), j.Operation())
	if err != nil || len(steps) != 1 {
		t.Errorf("steps %v, %v", steps, err)
	}
}

// TestPruneRemovesOnlyOldOperationsThatEndedForGood: an unfinished one stays, however old, and
// protects its snapshot.
func TestPruneRemovesOnlyOldOperationsThatEndedForGood(t *testing.T) {
	a := newFixture(t).host("a")
	ids := map[catalog.State]catalog.OperationID{}
	for _, state := range []catalog.State{catalog.Succeeded, catalog.RolledBack, catalog.Failed,
		catalog.Stopped} {
		j := a.begin("")
		must(t, a.c.UpdateOperation(t.Context(), j.Operation(), func(op *catalog.Operation) {
			op.SnapshotID = "snapshot-" + string(state)
		}))
		must(t, a.do(j, "release"))
		a.end(j, state)
		ids[state] = j.Operation()
	}
	if n, err := Prune(t.Context(), a.st, time.Now().Add(Retention-time.Hour)); n != 0 || err != nil {
		t.Errorf("removed %d records before their time, %v", n, err)
	}
	used, err := InUse(t.Context(), a.st)
	must(t, err)
	if diff := cmp.Diff(map[store.SnapshotID]string{"snapshot-failed": string(ids[catalog.Failed]),
		"snapshot-stopped": string(ids[catalog.Stopped])}, used); diff != "" {
		t.Errorf("in use (-want +got):\n%s", diff)
	}
	if n, err := Prune(t.Context(), a.st, time.Now().Add(Retention+time.Hour)); n == 0 || err != nil {
		t.Errorf("removed %d records, %v", n, err)
	}
	left, err := List(t.Context(), a.st)
	must(t, err)
	if len(left) != 2 || left[0].ID != ids[catalog.Stopped] || left[1].ID != ids[catalog.Failed] {
		t.Errorf("left %+v", left)
	}
}
