package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// attackedNamespace is what the schedules of the day that are not of everything have.
const attackedNamespace = "team-0"

// attackedBucket is the bucket of a daemon, and what somebody who has credentials for it can do.
type attackedBucket interface {
	bucket.Bucket
	// Overwrite stores data under a key, whether that exists or not.
	Overwrite(key string, data []byte)
	// Keys returns the keys that a list shows, sorted.
	Keys(prefix string) []string
}

// attackedDay is a daemon with two schedules, for everything and for one namespace, and a bucket
// that somebody else writes to.
type attackedDay struct {
	*Server
	t      *testing.T
	bucket attackedBucket
	source *snapshottest.Source
	id     []byte // identity
	keys   string // folder
	runs   *dayRuns

	mu    sync.Mutex
	ahead time.Duration       // of the clock of the daemon's host
	taken map[string]taken    // the last one of each scope
	told  map[object.Code]int // by operations of the day
}

// newAttackedDay opens the daemon; nothing runs yet.
func newAttackedDay(t *testing.T, b attackedBucket) *attackedDay {
	t.Helper()
	d := &attackedDay{t: t, bucket: b, keys: filepath.Join(t.TempDir(), "keys"),
		source: snapshottest.New("prod", 7, 4), taken: map[string]taken{},
		told: map[object.Code]int{}}
	made, err := store.Keygen(d.keys, time.Now())
	if err == nil {
		d.id, err = os.ReadFile(filepath.Join(d.keys, store.IdentityFile))
	}
	if err != nil {
		t.Fatal(err)
	}
	schedules := []schedule.Schedule{
		{Name: "all", Cron: "@hourly", Source: "prod", Location: "main"},
		{Name: "team", Cron: "*/30 * * * *", Source: "prod", Location: "main",
			Namespaces: []string{attackedNamespace}, TTL: 6 * time.Hour},
	}
	d.Server = New(Config{
		Daemon: true, Version: "test",
		Locations: []Location{{Name: "main", Store: StoreOptions{URL: t.TempDir(),
			Recipients:      []string{made.Recipient},
			SigningKeyFile:  filepath.Join(d.keys, store.SigningFile),
			TrustedKeyFiles: []string{filepath.Join(d.keys, store.SigningPubFile)}}}},
		Schedules: schedules, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Retention: Retention{Policy: retention.Policy{Last: 3}, Grace: retention.MinGrace},
	})
	d.buckets["main"] = b
	// Without the socket that a server has beside its catalog: a read of it stops the clock.
	c, err := catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.catalog = c
	d.runs = &dayRuns{scheduledRuns: &scheduledRuns{s: d.Server, catalog: c}, d: d}
	return d
}

// inBubble runs a test with a clock of its own. The encoders of the process get their channels
// outside of it, by a snapshot: a channel of one bubble cannot be used in the next one.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	d := newAttackedDay(t, faultbucket.NewVersioned())
	run, err := d.runs.BeginSnapshot(t.Context(), schedule.SnapshotRequest{Schedule: "all"})
	if err == nil {
		err = run.Wait()
	}
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, test)
}

// now is what the clock of the daemon's host shows.
func (d *attackedDay) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Add(d.ahead)
}

// setClock puts the clock of the daemon's host ahead.
func (d *attackedDay) setClock(ahead time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead = ahead
}

// dayRuns begins the operations of the schedules, with a source in memory and the clock of the day.
type dayRuns struct {
	*scheduledRuns
	d *attackedDay
}

// BeginSnapshot implements schedule.Snapshots.
func (r *dayRuns) BeginSnapshot(ctx context.Context, q schedule.SnapshotRequest) (schedule.Run,
	error) {
	d := r.d
	d.source.Change()
	st, err := d.openLocation(ctx, &d.cfg.Locations[0], nil, true)
	if err != nil {
		return nil, err
	}
	op, err := r.catalog.CreateOperation(ctx, catalog.Operation{Kind: catalog.KindSnapshot,
		Source: catalog.Side{Name: d.source.Name, UID: d.source.UID}, Store: st.ID(), Location: "main",
		Schedule: q.Schedule})
	if err != nil {
		return nil, err
	}
	return d.start(d.ctx, r.catalog, op.ID, func(ctx context.Context, j *catalog.Journal) error {
		o := d.source.Options(st)
		o.Scope.Namespaces, o.TTL, o.Interval, o.Schedule = q.Namespaces, q.TTL, q.Interval, q.Schedule
		o.Now = d.now
		if err := d.snapshotInto(ctx, r.catalog, j, "main", o); err != nil {
			return err
		}
		return d.note(ctx, r.catalog, st, op.ID)
	})
}

// note remembers the snapshot that an operation has taken.
func (d *attackedDay) note(ctx context.Context, c *catalog.Catalog, st *store.Store,
	id catalog.OperationID) error {
	op, err := c.Operation(ctx, id)
	if err != nil {
		return err
	}
	list, err := c.Snapshots(ctx, catalog.SnapshotFilter{StoreID: st.ID()})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(r catalog.SnapshotRecord) bool { return r.ID == op.SnapshotID })
	key, err := store.ParseEnvelopeKey(list[i].Key)
	if err != nil {
		return err
	}
	signed, err := st.GetEnvelope(ctx, key)
	if err != nil {
		return err
	}
	objects, _ := d.source.At(signed.ResourceVersion)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken[signed.ScopeID()] = taken{Signed: signed, source: d.source, objects: objects}
	return nil
}

// BeginPrune implements schedule.Snapshots. It waits for the prune: the day is to be the same each
// time.
func (r *dayRuns) BeginPrune(name, location string) {
	d := r.d
	c, p, err := d.preparePrune(d.ctx, d.pruneByRules(location))
	var run *operationRun
	if err == nil {
		p.options.Now = d.now
		run, err = d.beginPrune(d.ctx, c, p, name)
	}
	if err == nil {
		err = run.Wait()
	}
	if err == nil || d.ctx.Err() != nil {
		return
	}
	if r := classify(err).Reason; r != ReasonIncomplete && r != ReasonLocked {
		d.t.Errorf("prune: %v", err)
	}
}

// pass lets the schedules run for a time.
func (d *attackedDay) pass(hours time.Duration) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	s, err := schedule.New(ctx, schedule.Options{Schedules: d.cfg.Schedules, Snapshots: d.runs,
		States: d.runs.catalog, Metrics: d.metrics, Log: d.cfg.Log, Prune: true, Now: d.now})
	if err != nil {
		d.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	time.Sleep(hours)
	cancel()
	<-done
}

// verify verifies the newest snapshot of each scope, as the daemon does by schedule.
func (d *attackedDay) verify() {
	d.t.Helper()
	for _, scope := range slices.Sorted(maps.Keys(d.taken)) {
		run, err := d.beginVerify(d.t.Context(), verifyRequest{location: "main",
			level: store.LevelFull, identity: d.id,
			of: snapshotRef{source: d.source.UID, ref: latest, scope: scope}})
		if err != nil {
			d.t.Errorf("verify of the newest of %s: %v", scope, err)
			continue
		}
		_, _ = run.Wait() // its findings are what counts
	}
}

// reported counts the findings of all operations.
func (d *attackedDay) reported() map[object.Code]int {
	d.t.Helper()
	ops, err := d.runs.catalog.Operations(d.t.Context(), catalog.OperationFilter{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, op := range ops {
		for e, err := range d.runs.catalog.Events(d.t.Context(), op.ID, 0) {
			if err != nil {
				d.t.Fatal(err)
			}
			if e.Finding != nil {
				d.told[e.Finding.Code]++
			}
		}
	}
	return d.told
}

// assertNewest asserts that the last good snapshot of each scope is found as the newest of its
// scope, and holds every object as the source had it.
func (d *attackedDay) assertNewest() {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], d.id, false)
	if err != nil {
		d.t.Fatalf("the store does not open: %v", err)
	}
	if len(d.taken) != 2 {
		d.t.Fatalf("%d scopes were captured, not 2", len(d.taken))
	}
	for scope, want := range d.taken {
		got, _, err := findSnapshot(d.t.Context(), st, snapshotRef{source: d.source.UID, scope: scope})
		if err != nil || got.ID != want.ID {
			d.t.Errorf("the newest of scope %s is %s, number %d; want %s, number %d; %v", scope, got.ID,
				got.Sequence, want.ID, want.Sequence, err)
			continue
		}
		if err := compareTaken(d.t, st, want); err != nil {
			d.t.Errorf("the newest of scope %s cannot be read: %v", scope, err)
		}
	}
}
