package service

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/snapshot/incremental"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// TestVerifiesByScheduleReadEverythingThatSnapshotsNameInACycle: a pack that only an older snapshot
// needs is found within the passes of a week, the metrics say so, and the newest counts as good.
func TestVerifiesByScheduleReadEverythingThatSnapshotsNameInACycle(t *testing.T) {
	root := t.TempDir()
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true,
		Create: true})
	if err != nil {
		t.Fatal(err)
	}
	older := putScoped(t, st, 1)
	newest := putScoped(t, st, 2)
	tree, err := st.GetTree(t.Context(), older.Tree)
	if err == nil {
		err = os.Remove(root + "/" + tree.Packs[0].String())
	}
	if err == nil {
		err = os.WriteFile(root+"/"+tree.Packs[0].String(), []byte("rotten"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := verifyServer(t, root)
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PutSnapshot(t.Context(), catalog.RecordOf(newest)); err != nil {
		t.Fatal(err)
	}
	runs := &scheduledRuns{s: s, catalog: c}
	runs.VerifyKnown("disk", verifySource, store.LevelStructure, time.Time{})
	completed := s.metrics.verifies.cycleCompleted.WithLabelValues("disk", "prod")
	damaged := s.metrics.verifies.cycleDamaged.WithLabelValues("disk", "prod")
	const name = "disk/" + verifySource
	leaves := c.SnapshotState(st.ID(), verifySource) // to the next snapshot
	if _, err = leaves.Load(t.Context(), store.ScopeWhole); err == nil {
		err = leaves.Update(t.Context(), store.ScopeWhole, incremental.StateDelta{To: string(newest.ID)})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		if got := testutil.ToFloat64(completed); got != 0 {
			t.Fatalf("after %d of 7 passes the cycle is complete", i)
		}
		for range 2 { // the second one is too early for another pass
			run, err := runs.BeginVerify(t.Context(), schedule.VerifyRequest{Location: "disk",
				Source: verifySource, Level: store.LevelStructure})
			if err != nil {
				t.Fatal(err)
			}
			if outcome, err := run.Wait(); outcome != store.OutcomeOK || err != nil {
				t.Fatal("the newest snapshot:", outcome, err)
			}
		}
		state, err := c.UpdateVerify(t.Context(), name, func(v *catalog.VerifyState) {
			v.Cycle.LastPass = v.Cycle.LastPass.Add(-24 * time.Hour)
		})
		if err != nil || state.Cycle.Of != 7 || state.Cycle.Done != (i+1)%7 {
			t.Fatalf("pass %d: %+v, %v", i+1, state.Cycle, err)
		}
	}
	if testutil.ToFloat64(completed) < 1e9 || testutil.ToFloat64(damaged) != 1 {
		t.Errorf("completed %v, %v damaged", testutil.ToFloat64(completed), testutil.ToFloat64(damaged))
	}
	ops, err := c.Operations(t.Context(), catalog.OperationFilter{})
	if err != nil {
		t.Fatal(err)
	}
	found, named := 0, false
	for _, op := range ops {
		if op.SnapshotID == "" && strings.Contains(op.Message, "not as they should be") {
			found++
			for e, err := range c.Events(t.Context(), op.ID, 0) {
				named = named || err == nil && e.Finding != nil &&
					strings.Contains(e.Finding.Message, tree.Packs[0].String())
			}
		}
	}
	if found == 0 || !named {
		t.Errorf("%d operations report the damage, and a finding has the key: %v", found, named)
	}
	left, err := leaves.Load(t.Context(), store.ScopeWhole)
	if err != nil || left.Snapshot != "" {
		t.Errorf("the next snapshot is incremental to %q, %v", left.Snapshot, err)
	}
	// After a restart the metrics are what they were.
	completed.Set(0)
	damaged.Set(0)
	runs.VerifyKnown("disk", verifySource, store.LevelStructure, time.Time{})
	if testutil.ToFloat64(completed) < 1e9 || testutil.ToFloat64(damaged) != 1 {
		t.Errorf("after a restart: completed %v, %v damaged", testutil.ToFloat64(completed),
			testutil.ToFloat64(damaged))
	}
}

// TestAPassIsDueOnceInItsInterval: with a tolerance, and whatever the clock was before.
func TestAPassIsDueOnceInItsInterval(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for since, want := range map[time.Duration]bool{0: false, day / 2: true, day/2 - 1: false,
		day: true, -time.Hour: true} {
		if passDue(now.Add(-since), now, day, day) != want {
			t.Errorf("due after %s: %v", since, !want)
		}
	}
}

func TestCyclesTakeAWeekAndPassesAtLeastAnHour(t *testing.T) {
	for every, want := range map[time.Duration]struct {
		apart  time.Duration
		passes int
	}{
		24 * time.Hour:      {24 * time.Hour, 7},
		48 * time.Hour:      {48 * time.Hour, 3},
		30 * 24 * time.Hour: {30 * 24 * time.Hour, 1},
		time.Minute:         {time.Hour, 168},
		40 * time.Minute:    {80 * time.Minute, 126},
		time.Hour:           {time.Hour, 168},
	} {
		apart, passes := cyclePasses(every)
		if apart != want.apart || passes != want.passes {
			t.Errorf("every %v: %d passes, %v apart; want %+v", every, passes, apart, want)
		}
	}
}

// away is a bucket of which some calls find it unreachable.
type away struct {
	bucket.Bucket
	gets, lists bool
}

func (a *away) fail(op, key string) error {
	return &store.BucketError{Op: op, Key: key, Class: store.ErrUnreachable,
		Err: errors.New("connection refused")}
}

func (a *away) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if a.gets {
		return nil, a.fail("get", key)
	}
	return a.Bucket.Get(ctx, key)
}

// List finds the content gone, which a pass lists, and a verify of the newest snapshots does not.
func (a *away) List(ctx context.Context, prefix string, fn func(bucket.Info) error) error {
	if a.lists && strings.HasPrefix(prefix, "packs/") {
		return a.fail("list", prefix)
	}
	return a.Bucket.List(ctx, prefix, fn)
}

// TestAPassOrVerifyThatCannotBeMadeIsCountedAndDoneAgain: nobody has to miss it a week later.
func TestAPassOrVerifyThatCannotBeMadeIsCountedAndDoneAgain(t *testing.T) {
	root := t.TempDir()
	e := putStructure(t, root, 1)
	s := verifyServer(t, root)
	b := &away{Bucket: directory.New(root), lists: true}
	s.buckets["disk"] = b
	c, err := s.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PutSnapshot(t.Context(), catalog.RecordOf(e)); err != nil {
		t.Fatal(err)
	}
	runs := &scheduledRuns{s: s, catalog: c}
	failed := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(s.metrics.verifies.total.WithLabelValues("failed")); got != want {
			t.Errorf("counted %v failures, want %v", got, want)
		}
	}
	done := func() int {
		t.Helper()
		state, err := c.VerifyState(t.Context(), "disk/"+e.Source.UID)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			t.Fatal(err)
		}
		return state.Cycle.Done
	}
	request := schedule.VerifyRequest{Location: "disk", Source: e.Source.UID,
		Level: store.LevelStructure}
	run, err := runs.BeginVerify(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if outcome, err := run.Wait(); outcome != store.OutcomeOK || err != nil {
		t.Error("the newest snapshot:", outcome, err)
	}
	if !run.PassFailed() || done() != 0 {
		t.Errorf("the pass failed: %v, done: %d", run.PassFailed(), done())
	}
	failed(1)
	if runs.VerifyPass(t.Context(), "disk", e.Source.UID) || done() != 0 {
		t.Error("the pass is done without a list of the content")
	}
	failed(2)
	b.gets = true
	if _, err := runs.BeginVerify(t.Context(), request); err == nil {
		t.Error("a verify of an unreachable store began")
	}
	failed(3)
	if runs.VerifyPass(t.Context(), "disk", e.Source.UID) {
		t.Error("a pass of an unreachable store is done")
	}
	failed(4)
	b.gets, b.lists = false, false
	if !runs.VerifyPass(t.Context(), "disk", e.Source.UID) || done() != 1 {
		t.Errorf("the pass that was done again: %d", done())
	}
	// And not a second time.
	if !runs.VerifyPass(t.Context(), "disk", e.Source.UID) || done() != 1 {
		t.Errorf("the pass that was not due: %d", done())
	}
	failed(4)
	b.gets = true
	if _, err := runs.Sources(t.Context(), "disk"); err == nil {
		t.Error("the sources of an unreachable store are known")
	}
	failed(5)
}
