package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
)

// scheduledRuns begins the operations that the daemon begins by itself. It implements
// schedule.Snapshots, schedule.Verifies, schedule.Copies and schedule.Stores.
type scheduledRuns struct {
	s       *Server
	catalog *catalog.Catalog
}

var (
	_ schedule.Snapshots = (*scheduledRuns)(nil)
	_ schedule.Verifies  = (*scheduledRuns)(nil)
	_ schedule.Stores    = (*scheduledRuns)(nil)
	_ schedule.Copies    = (*scheduledRuns)(nil)
)

// openSchedules makes the scheduler and the verifier of a daemon.
func (s *Server) openSchedules(ctx context.Context, c *catalog.Catalog) error {
	runs := &scheduledRuns{s: s, catalog: c}
	var err error
	s.scheduler, err = schedule.New(ctx, schedule.Options{Schedules: s.cfg.Schedules,
		Snapshots: runs, Stores: runs, States: c, Metrics: s.metrics, Log: s.cfg.Log,
		Prune: s.removes, Panicked: s.scheduled("schedules")})
	if err != nil {
		return err
	}
	var locations []string
	var copies []schedule.Copy
	for _, l := range s.cfg.Locations {
		locations = append(locations, l.Name)
		if l.CopyTo != "" {
			copies = append(copies, schedule.Copy{From: l.Name, To: l.CopyTo})
		}
	}
	s.verifier = schedule.NewVerifier(s.cfg.Verify, locations, runs, c, s.cfg.Log)
	s.verifier.Panicked = s.scheduled("verify")
	s.copier = schedule.NewCopier(schedule.CopierOptions{Copies: copies, Begin: runs,
		Prune: s.removes, Log: s.cfg.Log, Panicked: s.scheduled("copies")})
	return runs.copiesKnown(ctx, copies)
}

// removes reports whether the daemon prunes a location: by rules, or since a schedule gives its
// snapshots an age. A location whose own rules are none is not pruned.
func (s *Server) removes(location string) bool {
	if l, err := s.location(location); err == nil && l.Retention != nil {
		return !l.Retention.IsZero()
	}
	return !s.cfg.Retention.Policy.IsZero() ||
		slices.ContainsFunc(s.cfg.Schedules, func(d schedule.Schedule) bool { return d.TTL > 0 })
}

// BeginSnapshot implements schedule.Snapshots.
func (r *scheduledRuns) BeginSnapshot(ctx context.Context, q schedule.SnapshotRequest) (
	schedule.Run, error) {
	run, err := guarded(r.s, "schedule", func() (*operationRun, error) {
		return r.s.beginSnapshot(ctx, snapshotRequest{source: q.Source, location: q.Location,
			namespaces: q.Namespaces, selector: q.Selector, schedule: q.Schedule, interval: q.Interval,
			ttl: q.TTL})
	})
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
		s.cfg.Log.Error("prune by rules could not begin", "schedule", schedule, "location",
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

// Sources implements schedule.Verifies. It returns the sources that the catalog knows and those
// with a snapshot that counts: anybody who can write to the store can put any number of others
// there, and each would be verified, and recorded, again and again.
func (r *scheduledRuns) Sources(ctx context.Context, location string) ([]string, error) {
	list, err := guarded(r.s, "verify", func() ([]string, error) { return r.sources(ctx, location) })
	if err != nil && !errors.Is(err, store.ErrStoreMissing) { // the first snapshot makes it
		r.verifyFailed()
	}
	return list, err
}

func (r *scheduledRuns) sources(ctx context.Context, location string) ([]string, error) {
	st, err := r.s.openStore(ctx, location, nil)
	if err != nil {
		return nil, err
	}
	uids, err := st.Sources(ctx)
	if err != nil {
		return nil, err
	}
	verified := map[string]bool{}
	records, err := r.catalog.Snapshots(ctx, catalog.SnapshotFilter{StoreID: st.ID()})
	for _, record := range records {
		verified[record.Source] = true
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(uids, func(uid string) bool { return !verified[uid] }) {
		found, _, err := st.SearchSources(ctx)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			verified[f.UID] = verified[f.UID] || counts(f)
		}
	}
	all := len(uids)
	uids = slices.DeleteFunc(uids, func(uid string) bool { return !verified[uid] })
	if others := all - len(uids); others > 0 {
		r.s.cfg.Log.Warn("sources without a snapshot that counts are not verified", "location", location,
			"sources", others)
	}
	return uids, nil
}

// BeginVerify implements schedule.Verifies.
func (r *scheduledRuns) BeginVerify(ctx context.Context, q schedule.VerifyRequest) (
	schedule.VerifyRun, error) {
	run, err := guarded(r.s, "verify", func() (*scopeVerifies, error) { return r.beginVerify(ctx, q) })
	if err != nil { // and not an interface of nothing
		r.verifyFailed()
		return nil, err
	}
	return run, nil
}

// verifyFailed counts a verify that could not begin.
func (r *scheduledRuns) verifyFailed() {
	if r.s.ctx.Err() == nil {
		r.s.metrics.verifies.ended(store.Verification{})
	}
}

// VerifyPass implements schedule.Verifies.
func (r *scheduledRuns) VerifyPass(ctx context.Context, location, source string) bool {
	done, err := guarded(r.s, "verify", func() (bool, error) {
		opened, err := r.s.openVerify(ctx, verifyRequest{location: location, scheduled: true,
			of:    snapshotRef{source: source, ref: latest, scope: store.ScopeAny},
			level: store.LevelStructure})
		if err != nil {
			return false, err
		}
		return r.s.cyclePass(opened)
	})
	return !r.s.reportPass(location, source, done, err)
}

func (r *scheduledRuns) beginVerify(ctx context.Context, q schedule.VerifyRequest) (
	*scopeVerifies, error) {
	request := verifyRequest{location: q.Location, level: q.Level, scheduled: true,
		of: snapshotRef{source: q.Source, ref: latest}, identity: q.Identity}
	run, err := r.s.beginVerify(ctx, request)
	if as[*store.LookupError](err) { // the source has no whole snapshot
		request.of.scope = store.ScopeAny
		run, err = r.s.beginVerify(ctx, request)
	}
	if err != nil {
		return nil, err
	}
	return &scopeVerifies{verifyOperation: run, s: r.s, request: request}, nil
}

// VerifyKnown implements schedule.Verifies. It makes no series for a source that the catalog does
// not know: write access to the store must not be enough to make any number of them.
func (r *scheduledRuns) VerifyKnown(location, source string, level store.VerifyLevel,
	lastSuccess time.Time) {
	if name := sourceName(r.s.ctx, r.catalog, source); name != "" {
		r.s.metrics.verifies.known(verifySeries{location, name, level}, lastSuccess)
		state, err := r.catalog.VerifyState(r.s.ctx, location+"/"+source)
		if err == nil || errors.Is(err, catalog.ErrNotFound) {
			r.s.metrics.verifies.cycle(location, name, state.Cycle)
		}
	}
}
