package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

func idsOf(list []Operation) (ids []OperationID) {
	for _, op := range list {
		ids = append(ids, op.ID)
	}
	return ids
}

// TestOperationsAreReadInPages reads more operations than one transaction does, by every filter,
// in pages of every size.
func TestOperationsAreReadInPages(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	kinds := []Kind{KindSnapshot, KindRestore, KindVerify}
	picked := map[string][]OperationID{}
	for i := range 2*operationPage + 5 {
		kind, last := kinds[i%3], []State{Succeeded, Failed}[i%2]
		id := newOperationOf(t, c, kind, Running, last)
		for _, key := range []string{"", string(kind), string(last), string(kind) + string(last)} {
			picked[key] = append(picked[key], id)
		}
	}
	for _, list := range picked {
		slices.Reverse(list)
	}
	for _, f := range []OperationFilter{{}, {Kinds: []Kind{KindRestore}}, {States: []State{Failed}},
		{Kinds: []Kind{KindVerify}, States: []State{Succeeded}}} {
		want := picked[fmt.Sprintf("%s%s", slices.Concat(f.Kinds, []Kind{""})[0],
			slices.Concat(f.States, []State{""})[0])]
		for _, limit := range []int{0, 7, operationPage, operationPage + 1} {
			f.Limit, f.Before = limit, ""
			var got []OperationID
			for {
				list, err := c.Operations(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, idsOf(list)...)
				if limit == 0 || len(list) < limit {
					break
				}
				f.Before = list[len(list)-1].ID
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v: %d operations, want %d", f, len(got), len(want))
			}
		}
	}
}

// TestIndexFollowsAnOperation: what a filter by state finds is what the records say, through every
// kind of write. The check at the end of the test compares all of the index.
func TestIndexFollowsAnOperation(t *testing.T) {
	t.Parallel()
	c := openTest(t)
	id := newOperationOf(t, c, KindRestore)
	in := func(states ...State) {
		t.Helper()
		for _, s := range allStates {
			list, err := c.Operations(t.Context(), OperationFilter{States: []State{s}})
			if err != nil || (len(list) == 1) != slices.Contains(states, s) {
				t.Errorf("in %s: %v, %v; want it in %v", s, idsOf(list), err, states)
			}
		}
	}
	in(Planned)
	setState(t, c, id, Running)
	in(Running)
	setState(t, c, id, Succeeded)
	in(Succeeded)
	err := c.UpdateOperation(t.Context(), id, func(op *Operation) {
		op.Unreleased, op.Store, op.SnapshotID = true, "s", "snap"
	})
	if err != nil {
		t.Fatal(err)
	}
	in(Succeeded)
	used, err := c.SnapshotsInUse(t.Context(), "s")
	if err != nil || used[string(id)] != "snap" {
		t.Errorf("in use: %v, %v", used, err)
	}
	if err := c.UpdateOperation(t.Context(), id, func(op *Operation) { op.Unreleased = false }); err != nil {
		t.Fatal(err)
	}
	in(Succeeded)
	change, feed, err := c.Follow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	feed.Close()
	for range 2 { // the second import replaces the first
		_, err := c.Import(t.Context(), id, []Change{change}, MirrorState{Seq: 1},
			func(op *Operation) { op.State = Stopped })
		if err != nil {
			t.Fatal(err)
		}
		in(Stopped)
	}
	setState(t, c, id, Running)
	setState(t, c, id, RolledBack)
	in(RolledBack)
	if n, err := c.ForgetOperations(t.Context(), c.now().Add(time.Hour), 0); n != 1 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	in()
}

func TestMigrationIndexesTheOperations(t *testing.T) {
	const record = `{"id":%q,"kind":%q,"state":%q,"unreleased":%t,` +
		`"created":"2026-03-01T12:00:00Z","updated":"2026-03-01T12:00:00Z"}`
	old := []struct {
		id         OperationID
		kind       Kind
		state      State
		unreleased bool
	}{
		{"aa0000000001", KindMove, Stopped, false},
		{"aa0000000002", KindSnapshot, Running, false},
		{"aa0000000003", KindRestore, Succeeded, true},
		{"aa0000000004", KindSnapshot, Succeeded, false},
	}
	c := openOld(t, 7, func(tx *bolt.Tx) error {
		running, err := tx.CreateBucket(bucketRunning)
		err = errors.Join(err, tx.DeleteBucket(bucketOperationIndex),
			running.Put([]byte("aa0000000002"), nil))
		for _, o := range old {
			b, makeErr := makeOperation(tx.Bucket(bucketOperations), o.id)
			err = errors.Join(err, makeErr,
				b.Put(keyRecord, fmt.Appendf(nil, record, o.id, o.kind, o.state, o.unreleased)))
		}
		return err
	})
	for _, o := range old {
		list, err := c.Operations(t.Context(), OperationFilter{Kinds: []Kind{o.kind},
			States: []State{o.state}})
		if err != nil || !slices.Equal(idsOf(list), []OperationID{o.id}) {
			t.Errorf("%s %s: %v, %v", o.kind, o.state, idsOf(list), err)
		}
	}
	interrupted, err := c.Interrupted(t.Context())
	if err != nil || !slices.Equal(idsOf(interrupted), []OperationID{"aa0000000002"}) {
		t.Errorf("interrupted: %v, %v", idsOf(interrupted), err)
	}
	_ = c.view(t.Context(), func(tx *bolt.Tx) error {
		if tx.Bucket(bucketRunning) != nil {
			t.Error("the index of running operations is still there")
		}
		return nil
	})
}

// TestMigrationSurvivesADamagedOperation: it is not in the index, and Check reports it.
func TestMigrationSurvivesADamagedOperation(t *testing.T) {
	path := closedCatalog(t, func(tx *bolt.Tx, id OperationID) error {
		_, err := tx.CreateBucket(bucketRunning)
		err = errors.Join(err, tx.DeleteBucket(bucketOperationIndex),
			tx.Bucket(bucketMeta).Put(keySchema, []byte{0, 0, 0, 7}))
		for damaged, text := range map[OperationID][]byte{"aa0000000005": []byte("{"),
			"aa0000000006": bytes.ReplaceAll(tx.Bucket(bucketOperations).Bucket([]byte(id)).Get(keyRecord),
				[]byte(id), []byte("aa0000000009"))} {
			b, makeErr := makeOperation(tx.Bucket(bucketOperations), damaged)
			err = errors.Join(err, makeErr, b.Put(keyRecord, text))
		}
		return err
	})
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	found := fmt.Sprint(c.Check(t.Context()))
	if !strings.Contains(found, "aa0000000005") || !strings.Contains(found, "aa0000000006") {
		t.Errorf("check: %s", found)
	}
	if moves, err := c.Operations(t.Context(), OperationFilter{Kinds: []Kind{KindMove}}); err != nil ||
		len(moves) != 1 {
		t.Errorf("moves: %v, %v", idsOf(moves), err)
	}
	_ = c.view(t.Context(), func(tx *bolt.Tx) error {
		n := 0
		_ = tx.Bucket(bucketOperationIndex).ForEach(func(k, _ []byte) error { n++; return nil })
		if n != 1 {
			t.Errorf("the index has %d operations, want that of the good record", n)
		}
		return nil
	})
}

// TestARestoreThatChangedNothingIsForgotten: a restore that is refused in pre-flight every day
// would stay for ever.
func TestARestoreThatChangedNothingIsForgotten(t *testing.T) {
	c := openTest(t)
	refused := newOperationOf(t, c, KindRestore, Running, Failed)
	mirrored := newOperationOf(t, c, KindRestore, Running, Failed)
	if err := c.SetMirror(t.Context(), mirrored, MirrorState{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	mustForget(t, c, c.now(), 1000, map[OperationID]bool{refused: false, mirrored: true})
}

// fillHistory writes many operations of a daemon with a schedule of every 30 seconds: snapshots and
// verifies, and a few restores, one of which is not finished.
func fillHistory(b *testing.B, c *Catalog, n int) {
	b.Helper()
	now := time.Now().Add(-time.Duration(n) * 30 * time.Second)
	var last OperationID
	for done := 0; done < n; {
		err := c.db.Update(func(tx *bolt.Tx) error {
			for range min(10_000, n-done) {
				now = now.Add(30 * time.Second)
				op := Operation{Kind: KindSnapshot, State: Succeeded, Created: now, Updated: now, Store: "s",
					Schedule: "every-30s", SnapshotID: fmt.Sprintf("snap%08d", done), Runs: 1}
				switch {
				case done%1000 == 999:
					op.Kind, op.Changed = KindRestore, true
				case done%100 == 99:
					op.Kind = KindVerify
				}
				if done == n/2 {
					op.Kind, op.State, op.Changed = KindRestore, Stopped, true
				}
				op.ID = newOperationID(now, last)
				last = op.ID
				bucket, err := makeOperation(tx.Bucket(bucketOperations), op.ID)
				if err != nil {
					return err
				}
				o := opTx{c: c, tx: tx, b: bucket, op: op}
				if err := o.finish(Event{Type: EventOperation, State: string(Running)},
					Event{Type: EventOperation, State: string(op.State)}); err != nil {
					return err
				}
				done++
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHistory is what prunes, lists and starts cost with 300,000 operations in the catalog.
func BenchmarkHistory(b *testing.B) {
	const operations = 300_000
	path := filepath.Join(b.TempDir(), "catalog.db")
	c, err := Open(b.Context(), path, Options{})
	if err != nil {
		b.Fatal(err)
	}
	fillHistory(b, c, operations)
	b.Run("first page", func(b *testing.B) {
		for b.Loop() {
			list, err := c.Operations(b.Context(), OperationFilter{Limit: 100})
			if err != nil || len(list) != 100 {
				b.Fatal(len(list), err)
			}
		}
	})
	b.Run("restores that are stopped", func(b *testing.B) {
		for b.Loop() {
			list, err := c.Operations(b.Context(), OperationFilter{Kinds: []Kind{KindRestore},
				States: []State{Stopped}})
			if err != nil || len(list) != 1 {
				b.Fatal(len(list), err)
			}
		}
	})
	b.Run("snapshots in use", func(b *testing.B) {
		for b.Loop() {
			used, err := c.SnapshotsInUse(b.Context(), "s")
			if err != nil || len(used) != 1 {
				b.Fatal(used, err)
			}
		}
	})
	b.Run("nothing to forget", func(b *testing.B) {
		for b.Loop() {
			n, err := c.ForgetOperations(b.Context(), time.Time{}, operations)
			if err != nil || n != 0 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
			if c, err = Open(b.Context(), path, Options{}); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Interrupted(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
}
