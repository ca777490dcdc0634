package service

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
	"github.com/mgmtd/mgmtd/internal/task"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// refusing makes the storage of the fixture refuse some keys from now on.
func (b *pruneFixture) refusing(with bucket.Error, keys ...store.EnvelopeKey) {
	b.t.Helper()
	refusing := faultbucket.NewRefusing(directory.New(b.root))
	for _, k := range keys {
		refusing.Refuse(with, k.String())
	}
	b.buckets["main"] = refusing
}

// TestAPruneThatFailsBeforeItRemovesAnythingIsCounted: an alert looks at the failures.
func TestAPruneThatFailsBeforeItRemovesAnythingIsCounted(t *testing.T) {
	b := newPruneFixture(t, Retention{Policy: retention.Policy{Last: 1}})
	b.take(3)
	b.refusing(bucket.Error{Class: store.ErrUnreachable}, b.keys[1])
	resp, err := (&pruneService{s: b.Server}).RunPrune(t.Context(), &mgmtv1.RunPruneRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b.running.Wait()
	if op := state(t, b.Server, catalog.OperationID(resp.GetOperation().GetId())); op.GetState() !=
		mgmtv1.OperationState_OPERATION_STATE_FAILED || op.GetChanged() {
		t.Errorf("operation %v", op)
	}
	m := b.metrics.prunes
	if failures := testutil.ToFloat64(m.failures); failures != 1 ||
		testutil.ToFloat64(m.lastSuccess) != 0 || testutil.ToFloat64(m.removed) != 0 {
		t.Errorf("%v failures are counted", failures)
	}
	b.wantLeft(1, 2, 3)
}

// TestASnapshotThatFailsBeforeItsSourceIsReadIsCounted: what this host knows of the store is read
// first. A panic counts, too.
func TestASnapshotThatFailsBeforeItsSourceIsReadIsCounted(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	c, err := b.openCatalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindSnapshot})
	if err != nil {
		t.Fatal(err)
	}
	away := faultbucket.New(directory.New(b.root), 1)
	st, err := store.Open(t.Context(), store.Options{Plain: true, Bucket: away})
	if err != nil {
		t.Fatal(err)
	}
	take := func(o snapshot.Options) error {
		o.Schedule = "s"
		return task.Call(func() error {
			return b.snapshotInto(t.Context(), c, c.Journal(op.ID, catalog.JournalOptions{}), "main", o)
		})
	}
	m := b.metrics.snapshots
	counted := func() (failures, successes float64) {
		return testutil.ToFloat64(m.failures.WithLabelValues("s")),
			testutil.ToFloat64(m.successes.WithLabelValues("s"))
	}
	good := snapshottest.New("prod", 1, 1).Options(st)
	if err := take(good); err != nil {
		t.Fatal(err)
	}
	if failures, successes := counted(); failures != 0 || successes != 1 {
		t.Errorf("a good one: %v failures, %v successes", failures, successes)
	}
	away.Set(1, faultbucket.Timeout)
	if err := take(good); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("while the store is away: %v", err)
	}
	if failures, successes := counted(); failures != 1 || successes != 1 ||
		testutil.ToFloat64(m.lastStatus.WithLabelValues("s")) != 0 {
		t.Errorf("while the store is away: %v failures, %v successes", failures, successes)
	}
	if err := take(snapshot.Options{}); err == nil {
		t.Error("without a store it did not panic")
	}
	if failures, successes := counted(); failures != 2 || successes != 1 {
		t.Errorf("after a panic: %v failures, %v successes", failures, successes)
	}
}

// rebuilds rebuilds the index of the fixture's store.
func (b *pruneFixture) rebuilds() (*mgmtv1.RebuiltLocation, error) {
	b.t.Helper()
	resp, err := (&catalogService{s: b.Server}).RebuildCatalog(b.t.Context(),
		&mgmtv1.RebuildCatalogRequest{})
	if err != nil {
		return nil, err
	}
	return resp.GetLocations()[0], nil
}

// TestARebuildGoesOnPastAnEnvelopeThatTheStorageDoesNotGive: it is reported. Where the storage
// gives none, or does not answer, the index stays: to forget all that this host knows would hide
// that it is there.
func TestARebuildGoesOnPastAnEnvelopeThatTheStorageDoesNotGive(t *testing.T) {
	for name, with := range faultbucket.Refusals {
		t.Run(name, func(t *testing.T) {
			b := newPruneFixture(t, Retention{})
			b.take(3)
			b.refusing(with, b.keys...)
			if r, err := b.rebuilds(); err == nil {
				t.Errorf("none is given: %v", r)
			}
			b.wantLeft(1, 2, 3)
			b.refusing(with, b.keys[1])
			r, err := b.rebuilds()
			if err != nil || r.GetSnapshots() != 2 || len(r.GetDamaged()) != 1 ||
				!strings.Contains(r.GetDamaged()[0], string(b.keys[1].ID)) {
				t.Errorf("%v, %v", r, err)
			}
			if _, known := b.left(); len(known) != 2 {
				t.Errorf("the index has %v", known)
			}
		})
	}
	for name, with := range faultbucket.Outages {
		t.Run(name, func(t *testing.T) {
			b := newPruneFixture(t, Retention{})
			b.take(3)
			b.refusing(with, b.keys[1])
			if r, err := b.rebuilds(); !errors.Is(err, with.Class) {
				t.Errorf("%v, %v", r, err)
			}
			b.wantLeft(1, 2, 3)
		})
	}
}

// TestASnapshotListShowsAnEnvelopeThatTheStorageDoesNotGive as it shows a damaged one.
func TestASnapshotListShowsAnEnvelopeThatTheStorageDoesNotGive(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(3)
	b.refusing(faultbucket.Refusals["a key that the disk cannot read"], b.keys[1])
	resp, err := (&snapshotService{s: b.Server}).ListSnapshots(t.Context(),
		&mgmtv1.ListSnapshotsRequest{})
	if err != nil || len(resp.GetSnapshots()) != 3 {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestARestorePlanIsMadeBesideEnvelopesThatTheStorageDoesNotGive: that nothing is known of a newer
// snapshot is a gap.
func TestARestorePlanIsMadeBesideEnvelopesThatTheStorageDoesNotGive(t *testing.T) {
	chain := func(t *testing.T, with bucket.Error) (chainOf, error) {
		t.Helper()
		b := newPruneFixture(t, Retention{})
		b.take(2)
		e, err := b.st.GetEnvelope(t.Context(), b.keys[0])
		if err != nil {
			t.Fatal(err)
		}
		b.refusing(with, b.keys...)
		st, err := b.openLocation(t.Context(), &b.cfg.Locations[0], nil, false)
		if err != nil {
			t.Fatal(err)
		}
		return (&restoreInputs{store: st, signed: e}).chain(t.Context())
	}
	for name, with := range faultbucket.Refusals {
		if c, err := chain(t, with); err != nil || len(c.gaps) == 0 ||
			!strings.HasPrefix(c.gaps[0], "the newest snapshot cannot be read") {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	for name, with := range faultbucket.Outages {
		if c, err := chain(t, with); !errors.Is(err, with.Class) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// TestARebuildGoesOnPastRecordsOfOperationsThatItCannotRead: somebody wrote one whose key nobody
// trusts, and the storage does not give another one.
func TestARebuildGoesOnPastRecordsOfOperationsThatItCannotRead(t *testing.T) {
	m, untrustedHost := newMirroredHosts(t), newMirroredHosts(t)
	a, c, _ := m.host()
	first, refused := m.failedRun(a, c), m.failedRun(a, c)
	untrustedHost.location.Store.URL = m.location.Store.URL
	s, theirs, _ := untrustedHost.host()
	untrusted := untrustedHost.failedRun(s, theirs)
	last := m.failedRun(a, c)
	b, other, _ := m.host()
	refuse := func(with bucket.Error, keys ...string) {
		refusing := faultbucket.NewRefusing(m.bucket())
		refusing.Refuse(with, keys...)
		b.buckets[m.location.Name] = refusing
	}
	keys := recordKeys(t, m.bucket(), refused)
	refuse(bucket.Error{Class: store.ErrDenied}, keys...)
	resp, err := (&catalogService{s: b}).RebuildCatalog(t.Context(),
		&mgmtv1.RebuildCatalogRequest{Identity: m.identity})
	if err != nil {
		t.Fatal(err)
	}
	r := resp.GetLocations()[0]
	damaged := strings.Join(r.GetDamaged(), "\n")
	if len(r.GetImported()) != 2 || len(r.GetDamaged()) != 2 ||
		!strings.Contains(damaged, string(untrusted)) || !strings.Contains(damaged, string(refused)) {
		t.Errorf("rebuilt %v", r)
	}
	for _, id := range []catalog.OperationID{first, last} {
		if _, err := other.Operation(t.Context(), id); err != nil {
			t.Errorf("operation %s: %v", id, err)
		}
	}
	for what, keys := range map[string][]string{"the oldest record": keys[:1],
		"the newest record": keys[len(keys)-1:]} {
		refuse(bucket.Error{Class: store.ErrUnreachable}, keys...)
		if _, err := (&catalogService{s: b}).RebuildCatalog(t.Context(),
			&mgmtv1.RebuildCatalogRequest{Identity: m.identity}); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("while the store is away for %s: %v", what, err)
		}
	}
}

// bucket is where the store of the hosts is.
func (m *mirroredHosts) bucket() *directory.Bucket {
	return directory.New(strings.TrimPrefix(m.location.Store.URL, "file://"))
}

// recordKeys are the keys of the records of an operation.
func recordKeys(t *testing.T, b bucket.Bucket, id catalog.OperationID) (keys []string) {
	t.Helper()
	err := b.List(t.Context(), "operations/"+string(id)+"/", func(i bucket.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil || len(keys) == 0 {
		t.Fatalf("records %v, %v", keys, err)
	}
	return keys
}
