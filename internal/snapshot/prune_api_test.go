//go:build api

package snapshot_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// age makes all files below a folder older than any grace: they are what both kinds of storage take
// the time of a key from.
func age(t *testing.T, root string) {
	t.Helper()
	old := time.Now().Add(-24 * time.Hour)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAPIPruneLeavesWhatIncrementalSnapshotsName: snapshots that write only what changed stay whole
// when those that they build on are pruned, and the next one builds on them.
func TestAPIPruneLeavesWhatIncrementalSnapshotsName(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "incremental-prune-", "--workloads", "4", "--machines",
		"2", "--fast")
	c := &changingSource{chainFixture: newChainFixture(t), rand: rand.New(rand.NewPCG(7, 7))}
	var err error
	if c.kinds, err = c.m.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, _ := c.take(nil)
	for range 3 {
		for range 2 {
			c.change(last.Envelope)
			last, _ = c.take(nil)
		}
		age(t, filepath.Join(c.dir, "store"))
		o := retention.Options{Store: c.st, Policy: retention.Policy{Last: 1}}
		plan, err := retention.NewPlan(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := retention.Execute(t.Context(), o, plan)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Removed) < 2 || r.Freed.Keys <= int64(len(r.Removed)) {
			t.Errorf("removed %v, freed %+v", r.Removed, r.Freed)
		}
		c.contents(last.Envelope)
	}
	if _, wrote := c.take(nil); len(wrote) != 1 {
		t.Errorf("after a prune, with nothing changed, a snapshot wrote %v", wrote)
	}
}

// TestAPISnapshotRefusesToBeLate: a run that took longer than the grace of prunes publishes no
// snapshot. A run that was delayed in its last write makes another one.
func TestAPISnapshotRefusesToBeLate(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "late-", "--workloads", "1", "--machines", "1", "--fast")
	r := newChainFixture(t)
	count := func() int {
		t.Helper()
		keys, err := r.st.Snapshots(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return len(keys)
	}
	late := func(call int) (*snapshot.Result, error) {
		o := r.options()
		calls, jumped := 0, time.Duration(0)
		o.Now = func() time.Time {
			if calls++; calls == call {
				jumped = 2*time.Hour + time.Second
			}
			return time.Now().Add(jumped)
		}
		return snapshot.Create(t.Context(), o)
	}
	if taken, err := late(2); !errors.Is(err, snapshot.ErrTooLong) || count() != 0 {
		t.Errorf("late before its envelope: %v, %v, %d snapshots", taken, err, count())
	}
	taken, err := late(3)
	if err != nil || count() != 2 || taken.Sequence != 2 {
		t.Fatalf("late with its envelope: %v, %d snapshots", err, count())
	}
	r.contents(taken.Envelope)
}
