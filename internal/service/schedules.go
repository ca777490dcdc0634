package service

import (
	"context"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
)

// scheduledRuns begins the operations that the daemon begins by itself. It implements
// schedule.Snapshots and schedule.Verifies.
type scheduledRuns struct {
	s       *Server
	catalog *catalog.Catalog
}

var (
	_ schedule.Snapshots = (*scheduledRuns)(nil)
	_ schedule.Verifies  = (*scheduledRuns)(nil)
)

// openSchedules makes the scheduler and the verifier of a daemon.
func (s *Server) openSchedules(ctx context.Context, c *catalog.Catalog) error {
	runs := &scheduledRuns{s: s, catalog: c}
	ttl := slices.ContainsFunc(s.cfg.Schedules,
		func(d schedule.Schedule) bool { return d.TTL > 0 })
	var err error
	s.scheduler, err = schedule.New(ctx, schedule.Options{Schedules: s.cfg.Schedules,
		Snapshots: runs, States: c, Metrics: s.metrics, Log: s.cfg.Log,
		Prune: ttl || !s.cfg.Retention.Policy.IsZero()})
	if err != nil {
		return err
	}
	var locations []string
	for _, l := range s.cfg.Locations {
		locations = append(locations, l.Name)
	}
	s.verifier = schedule.NewVerifier(s.cfg.Verify, locations, runs, c, s.cfg.Log)
	return nil
}

// BeginSnapshot implements schedule.Snapshots.
func (r *scheduledRuns) BeginSnapshot(ctx context.Context, q schedule.SnapshotRequest) (
	schedule.Run, error) {
	run, err := r.s.beginSnapshot(ctx, snapshotRequest{source: q.Source, location: q.Location,
		namespaces: q.Namespaces, schedule: q.Schedule, interval: q.Interval, ttl: q.TTL})
	if err != nil {
		r.s.metrics.snapshots.attempts.WithLabelValues(q.Schedule).Inc()
		r.s.metrics.snapshotFailed(q.Schedule)
		return nil, err
	}
	return run, nil
}

// BeginPrune implements schedule.Snapshots.
func (r *scheduledRuns) BeginPrune(schedule, location string) {
	s := r.s
	c, p, err := s.preparePrune(s.ctx, s.pruneByRules(location))
	if err == nil {
		_, err = s.beginPrune(s.ctx, c, p, schedule)
	}
	if err != nil && s.ctx.Err() == nil {
		s.metrics.pruned(nil, err)
		s.cfg.Log.Error("prune after a snapshot could not begin", "schedule", schedule, "location",
			location, "error", err)
	}
}

// LastPrune implements schedule.Snapshots.
func (r *scheduledRuns) LastPrune(location string) (began time.Time, running bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	last := r.s.prunes[location]
	return last.began, last.going
}

// Sources implements schedule.Verifies.
func (r *scheduledRuns) Sources(ctx context.Context, location string) ([]string, error) {
	st, err := r.s.openStore(ctx, location, nil)
	if err != nil {
		return nil, err
	}
	return st.Sources(ctx)
}

// BeginVerify implements schedule.Verifies.
func (r *scheduledRuns) BeginVerify(ctx context.Context, q schedule.VerifyRequest) (
	schedule.VerifyRun, error) {
	request := verifyRequest{location: q.Location, level: q.Level,
		of: snapshotRef{source: q.Source, ref: latest}, identity: q.Identity}
	run, err := r.s.beginVerify(ctx, request)
	if as[*store.LookupError](err) { // the source has no whole snapshot
		request.of.scope = store.ScopeAny
		run, err = r.s.beginVerify(ctx, request)
	}
	if err != nil {
		return nil, err
	}
	return run, nil
}

// VerifyKnown implements schedule.Verifies. It makes no series for a source that the catalog does
// not know: write access to the store must not be enough to make any number of them.
func (r *scheduledRuns) VerifyKnown(location, source string, level store.VerifyLevel,
	lastSuccess time.Time) {
	if name := sourceName(r.s.ctx, r.catalog, source); name != "" {
		r.s.metrics.verifySucceeded(location, name, level, lastSuccess)
	}
}
