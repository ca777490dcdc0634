package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// copyingDaemon is a daemon in a bubble, whose location main is copied to offsite. Both are in
// memory, with the clock of the bubble.
type copyingDaemon struct {
	*Server
	t             *testing.T
	path          string
	main, offsite *faultbucket.Versioned
	source        *snapshottest.Source
	known         float64 // last success of the copy before its first run
}

func newCopyingDaemon(t *testing.T) *copyingDaemon {
	d := &copyingDaemon{t: t, path: t.TempDir() + "/c.db", main: faultbucket.NewVersioned(),
		offsite: faultbucket.NewVersioned(), source: snapshottest.New("prod", 1, 2)}
	d.restart()
	return d
}

// restart starts the daemon, or another one in its place.
func (d *copyingDaemon) restart() {
	d.t.Helper()
	if d.Server != nil {
		d.end()
	}
	d.Server = New(Config{CatalogFile: d.path, Daemon: true, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(),
		Locations: []Location{
			{Name: "main", Default: true, CopyTo: "offsite", Store: StoreOptions{Plain: true}},
			{Name: "offsite", Store: StoreOptions{Plain: true},
				Retention: &retention.Policy{Last: 2}}}})
	d.buckets["main"], d.buckets["offsite"] = d.main, d.offsite
	var err error // opened by the server, it would be served on a socket, on which a bubble hangs
	if d.catalog, err = catalog.Open(d.t.Context(), d.path, catalog.Options{}); err == nil {
		err = d.openSchedules(d.t.Context(), d.catalog)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.known = d.metric(d.metrics.copies.lastSuccess)
	d.running.Go(func() { d.copier.Run(d.ctx) })
	synctest.Wait()
}

func (d *copyingDaemon) end() {
	d.t.Helper()
	if err := d.Close(); err != nil {
		d.t.Error(err)
	}
}

// take takes snapshots, as a schedule does.
func (d *copyingDaemon) take(n int) {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], nil, true)
	if err != nil {
		d.t.Fatal(err)
	}
	for range n {
		time.Sleep(time.Second)
		d.source.Change()
		op, err := d.catalog.CreateOperation(d.t.Context(), catalog.Operation{
			Kind: catalog.KindSnapshot, Store: st.ID(), Location: "main"})
		if err != nil {
			d.t.Fatal(err)
		}
		run, err := d.start(d.ctx, d.catalog, op.ID, func(ctx context.Context,
			j *catalog.Journal) error {
			return d.snapshotInto(ctx, d.catalog, j, "main", d.source.Options(st))
		})
		if err == nil {
			err = run.Wait()
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// copies returns how many copies the catalog has.
func (d *copyingDaemon) copies() int {
	d.t.Helper()
	synctest.Wait()
	ops, err := d.catalog.Operations(d.t.Context(), catalog.OperationFilter{
		Kinds: []catalog.Kind{catalog.KindCopy}})
	if err != nil {
		d.t.Fatal(err)
	}
	return len(ops)
}

// have returns the sequence numbers in a bucket.
func (d *copyingDaemon) have(b bucket.Bucket) (numbers []int64) {
	d.t.Helper()
	st, err := store.Open(d.t.Context(), store.Options{Bucket: b, Plain: true})
	if err != nil {
		d.t.Fatal(err)
	}
	keys, err := st.Snapshots(d.t.Context(), "")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, k := range keys {
		e, err := st.GetEnvelope(d.t.Context(), k)
		if err != nil {
			d.t.Fatal(err)
		}
		numbers = append(numbers, e.Sequence)
	}
	return numbers
}

// metric returns the value of a metric of the copy.
func (d *copyingDaemon) metric(c interface {
	WithLabelValues(lvs ...string) prometheus.Gauge
}) float64 {
	return testutil.ToFloat64(c.WithLabelValues("main", "offsite"))
}

// last returns the newest copy in the catalog.
func (d *copyingDaemon) last() catalog.Operation {
	d.t.Helper()
	ops, err := d.catalog.Operations(d.t.Context(), catalog.OperationFilter{
		Kinds: []catalog.Kind{catalog.KindCopy}, Limit: 1})
	if err != nil || len(ops) == 0 {
		d.t.Fatalf("%d copies, %v", len(ops), err)
	}
	return ops[0]
}

// TestADaemonCopiesWhatItTakes: each snapshot comes within a minute, a copy that fails is retried
// and counted, and what is behind is a metric. The last success outlives a restart.
func TestADaemonCopiesWhatItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCopyingDaemon(t)
		time.Sleep(time.Hour)
		if n := testutil.ToFloat64(d.metrics.copies.failures); n != 0 {
			t.Errorf("an empty location counts as %v failures", n)
		}
		d.take(3)
		if n := d.metric(d.metrics.copies.behind); n != 3 {
			t.Errorf("%v snapshots behind before the copy", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := d.have(d.offsite); len(got) != 3 {
			t.Errorf("the copy has %v", got)
		}
		op := d.last()
		if op.State != catalog.Succeeded || op.Location != "main" || op.Copy.Location != "offsite" ||
			op.Copy.Copied != 3 || op.Copy.Behind != 0 || op.Copy.Bytes == 0 {
			t.Errorf("operation %+v, %+v", op, op.Copy)
		}
		indexed, err := d.catalog.Snapshots(t.Context(), catalog.SnapshotFilter{StoreID: op.Copy.Store})
		if err != nil || len(indexed) != 3 {
			t.Errorf("the index has %d snapshots of the copy, %v", len(indexed), err)
		}
		success := d.metric(d.metrics.copies.lastSuccess)
		if d.metric(d.metrics.copies.behind) != 0 || success != float64(op.Created.Unix()) ||
			testutil.ToFloat64(d.metrics.copies.wrote) != float64(op.Copy.Bytes) {
			t.Errorf("last success %v, operation of %d", success, op.Created.Unix())
		}

		d.buckets["offsite"] = &deny{Bucket: d.offsite}
		d.take(1)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := testutil.ToFloat64(d.metrics.copies.failures); n < 2 || n > 9 {
			t.Errorf("%v runs failed", n)
		}
		if op := d.last(); op.State != catalog.Failed || op.Copy.Behind != 1 || op.Changed ||
			d.metric(d.metrics.copies.behind) != 1 {
			t.Errorf("operation %+v, %+v", op, op.Copy)
		}
		if got := d.have(d.main); len(got) != 4 {
			t.Errorf("the store has %v", got)
		}
		d.restart() // with the real bucket
		if n := d.metric(d.metrics.copies.lastSuccess); d.known != success || n <= success {
			t.Errorf("after a restart the last success is %v and then %v, before it was %v", d.known, n,
				success)
		}
		if got := d.have(d.offsite); got[len(got)-1] != 4 {
			t.Errorf("the copy has %v", got)
		}
		d.end()
	})
}

// TestACopyIsPrunedByItsOwnRules: after a copy, by the rules of its location, and what goes is not
// copied again.
func TestACopyIsPrunedByItsOwnRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCopyingDaemon(t)
		d.take(5)
		time.Sleep(48 * time.Hour)
		d.take(1)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if all, left := d.have(d.main), d.have(d.offsite); len(all) != 6 || len(left) != 2 ||
			left[0] != 5 || left[1] != 6 {
			t.Errorf("the store has %v, the copy %v", all, left)
		}
		op := d.last()
		if op.State != catalog.Succeeded || op.Copy.Removed != 4 {
			t.Errorf("operation %+v, %+v", op, op.Copy)
		}
		known, err := knownNumbers(t.Context(), d.catalog, op.Store, op.Copy.Store)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range d.main.Keys("snapshots/") {
			k, err := store.ParseEnvelopeKey(key)
			if err != nil {
				t.Fatal(err)
			}
			n, inMain := known(op.Store, k)
			_, inCopy := known(op.Copy.Store, k)
			if !inMain || n != int64(i+1) || inCopy != (n > 4) {
				t.Errorf("number %d of %s: known as %d %v, in the copy %v", i+1, key, n, inMain, inCopy)
			}
		}
		for st, want := range map[bucket.Bucket]int{d.main: 0, d.offsite: 0} {
			opened, err := store.Open(t.Context(), store.Options{Bucket: st, Plain: true})
			if err != nil {
				t.Fatal(err)
			}
			known, err := readKnown(t.Context(), d.catalog, opened, "")
			if err != nil || len(known.missing) != want {
				t.Errorf("%d snapshots are missing, %v", len(known.missing), err)
			}
		}
		d.end()
	})
}

// TestResultsAndRecordsFollowASnapshot: the results of verifies, and what prunes record, come to
// the copy without a new snapshot.
func TestResultsAndRecordsFollowASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCopyingDaemon(t)
		d.take(2)
		time.Sleep(5 * time.Minute)
		before := d.copies()
		verified, err := d.beginVerify(t.Context(), verifyRequest{location: "main",
			level: store.LevelStructure})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verified.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := d.copies(); n != before+1 {
			t.Errorf("%d copies after a verify, %d before", n, before)
		}
		time.Sleep(5 * time.Minute)
		c, p, err := d.preparePrune(t.Context(), d.pruneByRules("main"))
		if err != nil {
			t.Fatal(err)
		}
		pruned, err := d.beginPrune(t.Context(), c, p, "")
		if err != nil || pruned.Wait() != nil {
			t.Fatal(err)
		}
		if n := d.copies(); n != before+2 {
			t.Errorf("%d copies after a prune, %d before", n, before+1)
		}
		d.end()
	})
}

// TestTheCopierStartsWithTheDaemon, and copies where the configuration says.
func TestTheCopierStartsWithTheDaemon(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(1)
	copied := b.copied()
	b.cfg.Locations[0].CopyTo = "copy"
	b.take(1)
	if err := errors.Join(b.Open(t.Context()), b.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(
		time.Millisecond) {
		keys, err := copied.Snapshots(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 2 {
			return
		}
	}
	t.Error("nothing was copied")
}

// TestOneCopyToALocationAtATime: an operator's run is refused while one is going, and a run of the
// daemon waits for that of an operator.
func TestOneCopyToALocationAtATime(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(1)
	b.copied()
	if !b.claimCopy("copy") {
		t.Fatal("the first may not begin")
	}
	if _, err := b.beginCopy(t.Context(), copyRequest{to: "copy"}); classify(err).Reason !=
		ReasonLocked {
		t.Errorf("a second one: %v", err)
	}
	c, err := b.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runs := &scheduledRuns{s: b.Server, catalog: c}
	if run, err := runs.BeginCopy(t.Context(), schedule.Copy{From: "main", To: "copy"}); run != nil ||
		err != nil {
		t.Errorf("one of the daemon: %v, %v", run, err)
	}
	b.releaseCopy("copy")
	b.cfg.Locations[0].CopyTo = "copy"
	run, err := b.beginCopy(t.Context(), copyRequest{})
	if err != nil || run.Wait() != nil {
		t.Errorf("after it: %v", err)
	}
	if !b.claimCopy("copy") {
		t.Error("a run that has ended still has its place")
	}
}

// TestACopyThatLeavesOutASnapshotHasFailed: with what was copied work is left, without it there are
// findings only; both name the snapshot.
func TestACopyThatLeavesOutASnapshotHasFailed(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(2)
	b.copied()
	b.take(1)
	tree, err := b.st.PutTree(t.Context(), store.Tree{Packs: []store.Key{
		"packs/ab/abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd.tar.zst"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.st.PutEnvelope(t.Context(), store.Envelope{ID: store.NewSnapshotID(),
		Time: time.Now(), Source: store.Source{UID: "uid", Name: "m"}, Sequence: 4,
		Tree: tree}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		reason Reason
		copied int
	}{{ReasonIncomplete, 1}, {ReasonFindings, 0}} {
		run, err := b.beginCopy(t.Context(), copyRequest{to: "copy"})
		if err != nil {
			t.Fatal(err)
		}
		failed := run.Wait()
		op, err := b.catalog.Operation(t.Context(), run.Operation().ID)
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(failed, schedule.ErrLeftBehind) || op.State != catalog.Failed || op.Code != string(want.reason) ||
			op.Copy.Copied != want.copied || op.Copy.Behind != 1 ||
			!strings.Contains(op.Message, "not in the copy: 1") {
			t.Errorf("%+v, %+v, %v", op, op.Copy, failed)
		}
		found := 0
		for e, err := range b.catalog.Events(t.Context(), op.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Finding != nil && e.Finding.Code == object.CodeNotCopied {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d findings", found)
		}
	}
}
