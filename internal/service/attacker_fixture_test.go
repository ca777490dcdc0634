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
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// attackedNamespace and otherNamespace are what the schedules of the day that are not of everything
// have.
const attackedNamespace, otherNamespace = "team-0", "team-1"

// attackedBucket is the bucket of a daemon, and what somebody who has credentials for it can do.
type attackedBucket interface {
	bucket.Bucket
	// Overwrite stores data under a key, whether that exists or not.
	Overwrite(key string, data []byte)
	// Hide puts a delete marker on a key.
	Hide(key string)
	// Keys returns the keys that a list shows, sorted.
	Keys(prefix string) []string
}

// attackedDay is a daemon with three schedules, for everything and for a namespace each, and a
// bucket that somebody else writes to.
type attackedDay struct {
	*Server
	t      *testing.T
	bucket attackedBucket
	source *snapshottest.Source
	id     []byte // identity
	keys   string // folder
	runs   *dayRuns
	// prunesLater is how much later prunes are, on a storage whose clock nobody can put ahead.
	prunesLater time.Duration
	attacked    map[string][]string // keys, by the name of the attack
	planted     map[string]bool     // keys that only an attacker writes
	pinned      *store.EnvelopeKey  // by prepare

	mu    sync.Mutex
	ahead time.Duration    // of the clock of the daemon's host
	taken map[string]taken // the last one of each scope
}

// newAttackedDay opens the daemon; nothing runs yet.
func newAttackedDay(t *testing.T, b attackedBucket) *attackedDay {
	t.Helper()
	d := &attackedDay{t: t, bucket: b, keys: filepath.Join(t.TempDir(), "keys"),
		source: snapshottest.New("prod", 7, 4), taken: map[string]taken{},
		attacked: map[string][]string{}, planted: map[string]bool{}}
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
		{Name: "other", Cron: "15 */2 * * *", Source: "prod", Location: "main",
			Namespaces: []string{otherNamespace}},
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
		o.TTL, o.Interval, o.Schedule, o.Now = q.TTL, q.Interval, q.Schedule, d.now
		scope, err := scopeOf(q.Namespaces, q.Selector)
		if err != nil {
			return err
		}
		o.Scope = scope
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
		p.options.Now = func() time.Time { return d.now().Add(d.prunesLater) }
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
		Stores: d.runs, States: d.runs.catalog, Metrics: d.metrics, Log: d.cfg.Log,
		Prune: func(string) bool { return true }, Now: d.now})
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

// repair brings back what somebody hid, as store repair does, and returns how many keys.
func (d *attackedDay) repair() (back int) {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], nil, false)
	if err != nil {
		d.t.Fatalf("the store does not open: %v", err)
	}
	plan, err := st.PlanRepair(d.t.Context(), nil)
	if err == nil {
		err = st.RunRepair(d.t.Context(), plan, func(r store.Repair) error {
			if r.State == store.RepairPruned { // it was hidden just before a prune removed it
				return nil
			}
			if r.State != store.RepairUndeleted && r.State != store.RepairCopied {
				d.t.Errorf("repair of %s: %s, %s", r.Key, r.State, r.Reason)
			}
			back++
			return nil
		})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return back
}

// messages returns the findings of all operations, by code.
func (d *attackedDay) messages() map[object.Code][]string {
	d.t.Helper()
	ops, err := d.runs.catalog.Operations(d.t.Context(), catalog.OperationFilter{})
	if err != nil {
		d.t.Fatal(err)
	}
	messages := map[object.Code][]string{}
	for _, op := range ops {
		for e, err := range d.runs.catalog.Events(d.t.Context(), op.ID, 0) {
			if err != nil {
				d.t.Fatal(err)
			}
			if f := e.Finding; f != nil && !slices.Contains(messages[f.Code], f.Message) {
				messages[f.Code] = append(messages[f.Code], f.Message)
			}
		}
	}
	return messages
}

// take takes a snapshot for a schedule, and waits for it.
func (d *attackedDay) take(name string) {
	d.t.Helper()
	for _, s := range d.cfg.Schedules {
		if s.Name != name {
			continue
		}
		run, err := d.runs.BeginSnapshot(d.t.Context(), schedule.SnapshotRequest{Schedule: name,
			Source: s.Source, Location: s.Location, Namespaces: s.Namespaces, TTL: s.TTL})
		if err == nil {
			err = run.Wait()
		}
		if err != nil {
			d.t.Fatalf("take a snapshot of %s: %v", name, err)
		}
	}
}

// prepare makes a pin, results of verifies and an ownership record, for somebody to write over.
func (d *attackedDay) prepare() {
	d.t.Helper()
	d.verify()
	newest, err := store.ParseEnvelopeKey(d.newestKey())
	if err == nil {
		d.pinned = &newest
		err = d.open().PutPin(d.t.Context(), newest, "before the attack", time.Now())
	}
	if err == nil {
		err = ownership.Claim(d.t.Context(), d.open(), ownership.Request{WorkloadID: attackedWorkload,
			Workload: attackedNamespace + "/w-0", Operation: "0123456789ab",
			To: object.Side{UID: d.source.UID, Name: d.source.Name}})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if n := len(d.records()); n != 4 {
		d.t.Fatalf("%d of 4 folders have records", n)
	}
}

// attackedWorkload is the id of the workload cluster that has an ownership record.
const attackedWorkload = "0c1d2e3f-0000-4000-8000-000000000005"

// assertNewest asserts that the last good snapshot of each scope is found as the newest of its
// scope, and holds every object as the source had it.
func (d *attackedDay) assertNewest() {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], d.id, false)
	if err != nil {
		d.t.Fatalf("the store does not open: %v", err)
	}
	if len(d.taken) != len(d.cfg.Schedules) {
		d.t.Fatalf("%d scopes were captured, not %d", len(d.taken), len(d.cfg.Schedules))
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
	if d.pinned == nil {
		return
	}
	e, err := st.GetEnvelope(d.t.Context(), *d.pinned)
	if err != nil {
		d.t.Fatalf("the pinned snapshot is gone: %v", err)
	}
	if report, err := st.VerifyStructure(d.t.Context(), e.Envelope, nil); err != nil ||
		len(report.Findings) > 0 {
		d.t.Errorf("the pinned snapshot: %v, %v", report.Findings, err)
	}
}
