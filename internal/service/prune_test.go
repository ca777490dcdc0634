package service

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// pruneFixture is a daemon over a plain store in a folder, with snapshots that name an empty tree.
type pruneFixture struct {
	*Server
	t    *testing.T
	root string
	st   *store.Store
	keys []store.EnvelopeKey
}

func newPruneFixture(t *testing.T, retention Retention,
	schedules ...schedule.Schedule) *pruneFixture {
	t.Helper()
	b := &pruneFixture{t: t, root: filepath.Join(t.TempDir(), "store")}
	var err error
	if b.st, err = store.Open(t.Context(), store.Options{Bucket: directory.New(b.root), Plain: true,
		Create: true}); err != nil {
		t.Fatal(err)
	}
	b.Server = New(Config{
		CatalogFile: filepath.Join(t.TempDir(), "c.db"),
		Locations:   []Location{{Name: "main", Store: StoreOptions{URL: b.root, Plain: true}}},
		Daemon:      true, Log: slog.New(slog.DiscardHandler), Retention: retention, Schedules: schedules,
		Metrics: prometheus.NewRegistry(),
	})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// take stores n snapshots, in the catalog too, and makes all files old.
func (b *pruneFixture) take(n int) {
	b.t.Helper()
	c, err := b.openCatalog(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for range n {
		tree, err := b.st.PutTree(b.t.Context(), store.Tree{})
		if err != nil {
			b.t.Fatal(err)
		}
		at := time.Now().Add(-48 * time.Hour).Add(time.Duration(len(b.keys)) * time.Minute)
		signed, err := b.st.PutEnvelope(b.t.Context(), store.Envelope{
			ID: store.NewSnapshotID(), Time: at, Source: store.Source{UID: "uid", Name: "m"},
			Sequence: int64(len(b.keys)) + 1, Tree: tree,
		})
		if err == nil {
			err = c.PutSnapshot(b.t.Context(), catalog.RecordOf(signed))
		}
		if err != nil {
			b.t.Fatal(err)
		}
		b.keys = append(b.keys, signed.Key())
	}
	old := time.Now().Add(-24 * time.Hour)
	err = filepath.WalkDir(b.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *pruneFixture) operations() []catalog.Operation {
	b.t.Helper()
	c, err := b.openCatalog(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	ops, err := c.Operations(b.t.Context(), catalog.OperationFilter{
		Kinds: []catalog.Kind{catalog.KindPrune}})
	if err != nil {
		b.t.Fatal(err)
	}
	return ops
}

// left are the sequence numbers in the store, and those that the catalog knows.
func (b *pruneFixture) left() (stored, known []int64) {
	b.t.Helper()
	keys, err := b.st.Snapshots(b.t.Context(), "")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, k := range keys {
		e, err := b.st.GetEnvelope(b.t.Context(), k)
		if err != nil {
			b.t.Fatal(err)
		}
		stored = append(stored, e.Sequence)
	}
	c, err := b.openCatalog(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := c.Snapshots(b.t.Context(), catalog.SnapshotFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	for i := len(list) - 1; i >= 0; i-- {
		known = append(known, list[i].Sequence)
	}
	return stored, known
}

func (b *pruneFixture) wantLeft(want ...int64) {
	b.t.Helper()
	stored, known := b.left()
	if diff := cmp.Diff(want, stored); diff != "" {
		b.t.Errorf("stored (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, known); diff != "" {
		b.t.Errorf("known (-want +got):\n%s", diff)
	}
}

func TestScheduledPruneUsesTheRulesOfTheConfiguration(t *testing.T) {
	b := newPruneFixture(t, Retention{Policy: retention.Policy{Last: 2}})
	b.take(5)
	c, err := b.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runs := &scheduledRuns{s: b.Server, catalog: c}
	if began, running := runs.LastPrune("main"); !began.IsZero() || running {
		t.Errorf("before the first: %v, %t", began, running)
	}
	runs.BeginPrune("s", "main")
	b.running.Wait()
	b.wantLeft(4, 5)
	if ops := b.operations(); len(ops) != 1 || ops[0].State != catalog.Succeeded ||
		ops[0].Schedule != "s" || ops[0].Location != "main" {
		t.Errorf("operations: %+v", ops)
	}
	if began, running := runs.LastPrune("main"); began.IsZero() || running {
		t.Errorf("after it: %v, %t", began, running)
	}
	if n := testutil.ToFloat64(b.metrics.prunes.removed); n != 3 {
		t.Errorf("the metric says that %v snapshots were removed", n)
	}
	if runs.BeginPrune("s", "nowhere"); testutil.ToFloat64(b.metrics.prunes.failures) != 1 {
		t.Error("a prune that could not begin is not counted")
	}
}

func TestDaemonPrunesOnlyWithRulesOrExpiries(t *testing.T) {
	for _, test := range []struct {
		retention Retention
		own       *retention.Policy
		ttl       time.Duration
		want      bool
	}{
		{want: false},
		{own: &retention.Policy{Daily: 3}, want: true},
		{retention: Retention{Policy: retention.Policy{Last: 2}}, own: &retention.Policy{},
			ttl: time.Hour, want: false},
		{ttl: time.Hour, want: true},
		{retention: Retention{Policy: retention.Policy{Last: 2}}, want: true},
	} {
		b := newPruneFixture(t, test.retention, schedule.Schedule{Name: "s", Cron: "@daily",
			TTL: test.ttl})
		b.cfg.Locations[0].Retention = test.own
		if err := b.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.scheduler.Prune("main"); got != test.want {
			t.Errorf("%+v: prunes: %t", test, got)
		}
	}
}

func TestSecondPruneOfALocationIsRefused(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(2)
	if !b.claimPrune("main") {
		t.Fatal("the first may not begin")
	}
	run := func() error {
		_, err := (&pruneService{s: b.Server}).RunPrune(t.Context(),
			&mgmtv1.RunPruneRequest{Spec: &mgmtv1.PruneSpec{Retention: &mgmtv1.Retention{KeepLast: 1}}})
		return err
	}
	if err := run(); ExitCode(err) != ExitHeld {
		t.Errorf("while another runs: %v", err)
	}
	b.releasePrune("main")
	if err := run(); err != nil {
		t.Error(err)
	}
	b.running.Wait()
	b.wantLeft(2)
}

// TestPruneLeavesWhatOperationsRead: a snapshot that a restore, a move or a verification still
// reads stays, and its deletion is refused.
func TestPruneLeavesWhatOperationsRead(t *testing.T) {
	b := newPruneFixture(t, Retention{Policy: retention.Policy{Last: 1}})
	b.take(9)
	c, err := b.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range []struct {
		kind                catalog.Kind
		changed, unreleased bool
		states              []catalog.State
		used                bool
	}{
		{catalog.KindRestore, true, false, []catalog.State{catalog.Running, catalog.Stopped}, true},
		{catalog.KindRestore, false, true, []catalog.State{catalog.Running, catalog.Failed}, false},
		{catalog.KindRestore, true, false, []catalog.State{catalog.Running, catalog.Succeeded}, false},
		{catalog.KindMove, true, false, []catalog.State{catalog.Running, catalog.Failed}, true},
		{catalog.KindVerify, false, false, []catalog.State{catalog.Running}, true},
		{catalog.KindVerify, false, false, []catalog.State{catalog.Running, catalog.Failed}, false},
		{catalog.KindSnapshot, false, false, []catalog.State{catalog.Running}, false},
		{catalog.KindRestore, true, true, []catalog.State{catalog.Running, catalog.Succeeded}, true},
	} {
		op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: o.kind, Store: b.st.ID(),
			SnapshotID: string(b.keys[i].ID)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.UpdateOperation(t.Context(), op.ID, func(op *catalog.Operation) {
			op.Unreleased = o.unreleased
		}); err != nil {
			t.Fatal(err)
		}
		for n, state := range o.states {
			if _, err := c.SetState(t.Context(), op.ID, state, catalog.Outcome{}); err != nil {
				t.Fatal(err)
			}
			if n == 0 && o.changed {
				step := func(context.Context, *catalog.StepHandle) error { return nil }
				if err := c.Journal(op.ID, catalog.JournalOptions{}).Do(t.Context(),
					catalog.Step{Phase: "write"}, step); err != nil {
					t.Fatal(err)
				}
			}
		}
		used, err := c.SnapshotsInUse(t.Context(), b.st.ID())
		if err != nil || (used[string(op.ID)] == b.keys[i].ID) != o.used {
			t.Errorf("a %s that %v: used %v, %v", o.kind, o.states, used, err)
		}
	}
	if other, err := c.SnapshotsInUse(t.Context(), "other"); err != nil || len(other) > 0 {
		t.Errorf("of another store: %v, %v", other, err)
	}
	if _, err := (&pruneService{s: b.Server}).RunPrune(t.Context(),
		&mgmtv1.RunPruneRequest{}); err != nil {
		t.Fatal(err)
	}
	b.running.Wait()
	b.wantLeft(1, 4, 5, 8, 9)
	resp, err := (&snapshotService{s: b.Server}).DeleteSnapshots(t.Context(),
		&mgmtv1.DeleteSnapshotsRequest{Ids: []string{string(b.keys[0].ID)}})
	if err != nil {
		t.Fatal(err)
	}
	b.running.Wait()
	if op := state(t, b.Server, catalog.OperationID(
		resp.GetOperation().GetId())); op.GetExitCode() != ExitFindings {
		t.Errorf("delete what is in use: %v", op)
	}
	b.wantLeft(1, 4, 5, 8, 9)
}

// lastMomentPin is a bucket in which a snapshot is pinned when a deletion asks for its pin, right
// before it removes the snapshot.
type lastMomentPin struct {
	*directory.Bucket
	at  string // the key of the pin
	pin func(ctx context.Context) error
}

func (b *lastMomentPin) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if key == b.at {
		if err := b.pin(ctx); err != nil {
			return bucket.Info{}, err
		}
	}
	return b.Bucket.Stat(ctx, key)
}

// TestDeletionRefusedBeforeTheFirstRemovalChangedNothing: a deletion that is refused after its
// step began, and before anything was removed, has changed nothing. One that is refused later has.
func TestDeletionRefusedBeforeTheFirstRemovalChangedNothing(t *testing.T) {
	for _, removed := range []int{0, 1} {
		b := newPruneFixture(t, Retention{})
		b.take(4)
		b.buckets["main"] = &lastMomentPin{Bucket: directory.New(b.root),
			pin: func(ctx context.Context) error {
				return b.st.PutPin(ctx, b.keys[removed], "just in time", time.Now())
			}, at: "pins/" + strings.TrimPrefix(b.keys[removed].String(), "snapshots/")}
		resp, err := (&snapshotService{s: b.Server}).DeleteSnapshots(t.Context(),
			&mgmtv1.DeleteSnapshotsRequest{Ids: []string{string(b.keys[0].ID), string(b.keys[1].ID)}})
		if err != nil {
			t.Fatal(err)
		}
		b.running.Wait()
		op := state(t, b.Server, catalog.OperationID(resp.GetOperation().GetId()))
		want := map[int]int32{0: ExitFindings, 1: ExitIncomplete}[removed]
		if op.GetExitCode() != want || op.GetChanged() != (removed > 0) ||
			op.GetState() != mgmtv1.OperationState_OPERATION_STATE_FAILED {
			t.Errorf("%d removed: %v, want exit code %d", removed, op, want)
		}
		b.wantLeft([]int64{1, 2, 3, 4}[removed:]...)
	}
}

// TestBlockedPruneExitsWith4AfterRemovalsElse3: while an envelope cannot be read, all content
// stays: exit code 4 when snapshots went, 3 when none did.
func TestBlockedPruneExitsWith4AfterRemovalsElse3(t *testing.T) {
	b := newPruneFixture(t, Retention{Policy: retention.Policy{Last: 1}})
	b.take(4)
	if err := os.WriteFile(filepath.Join(b.root, b.keys[1].String()), []byte("{}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{ExitIncomplete, ExitFindings} {
		resp, err := (&pruneService{s: b.Server}).RunPrune(t.Context(), &mgmtv1.RunPruneRequest{})
		if err != nil {
			t.Fatal(err)
		}
		b.running.Wait()
		if op := state(t, b.Server, catalog.OperationID(
			resp.GetOperation().GetId())); op.GetExitCode() != want ||
			op.GetHintKey() != string(object.HintDeleteDamaged) {
			t.Errorf("exit code %d, want %d: %v", op.GetExitCode(), want, op)
		}
	}
	if _, err := b.st.GetEnvelope(t.Context(), b.keys[0]); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the first snapshot: %v", err)
	}
}

func TestPruneRefusesInvalidRequests(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(1)
	for name, spec := range map[string]*mgmtv1.PruneSpec{
		"negative": {Retention: &mgmtv1.Retention{KeepDaily: -1}},
		"nowhere":  {Location: "nowhere"},
	} {
		if _, err := (&pruneService{s: b.Server}).RunPrune(t.Context(),
			&mgmtv1.RunPruneRequest{Spec: spec}); ExitCode(err) != ExitUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ops := b.operations(); len(ops) > 0 {
		t.Errorf("operations %v", ops)
	}
}

// TestPruneRefusesAChangedPlan: a prune that was approved with its plan removes nothing when other
// snapshots would be removed by now.
func TestPruneRefusesAChangedPlan(t *testing.T) {
	b := newPruneFixture(t, Retention{Policy: retention.Policy{Last: 1}})
	b.take(2)
	_, p, err := b.preparePrune(t.Context(), b.pruneByRules(""))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := retention.NewPlan(t.Context(), p.options)
	if err != nil {
		t.Fatal(err)
	}
	run := func() *mgmtv1.Operation {
		t.Helper()
		resp, err := (&pruneService{s: b.Server}).RunPrune(t.Context(),
			&mgmtv1.RunPruneRequest{ApprovedDigest: plan.Digest()})
		if err != nil {
			t.Fatal(err)
		}
		b.running.Wait()
		return state(t, b.Server, catalog.OperationID(resp.GetOperation().GetId()))
	}
	b.take(1)
	if op := run(); op.GetExitCode() != ExitFindings || op.GetChanged() ||
		op.GetState() != mgmtv1.OperationState_OPERATION_STATE_FAILED {
		t.Errorf("with another plan: %v", op)
	}
	b.wantLeft(1, 2, 3)
	if plan, err = retention.NewPlan(t.Context(), p.options); err != nil {
		t.Fatal(err)
	}
	if op := run(); op.GetExitCode() != ExitDone {
		t.Errorf("with its plan: %v", op)
	}
	b.wantLeft(3)
}
