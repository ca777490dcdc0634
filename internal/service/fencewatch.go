package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/task"
)

// How often the watch for management clusters that come back asks. A management cluster that comes
// back must have its lost workload clusters paused within 10 s of its first answer.
const (
	// fencePoll is between two tries to reach one, also while it answers: a restore of what it has,
	// by an operator who cannot reach it either, takes longer than that, and must not pass in an
	// outage that nobody has noticed. A try takes up to fenceProbe: the overlap that is printed
	// begins with the last one that failed, so up to 2*fenceProbe+fencePoll before the answer.
	fencePoll = time.Second
	// fenceProbe bounds one try: a host that drops packets must not delay the next one.
	fenceProbe = 3 * time.Second
	// confirmTime bounds the last read of the records of what is about to be paused.
	confirmTime = 3 * time.Second
	// passGuarded is the time between two passes over a management cluster with fenced workload
	// clusters: somebody may unpause one where no admission policy denies it. passIncomplete is that
	// after a pass that left something undone. Others have a pass as often as records are read.
	passGuarded, passIncomplete = time.Minute, 10 * time.Second
	// passStale is that over one that came back, until the records were read again. freshTime is how
	// long such passes only pause: a store may not answer for days.
	passStale, freshTime = 3 * time.Second, 30 * time.Second
)

// fenceWatch pauses, on each management cluster of a daemon, the workload clusters that a trusted
// ownership record gives to another one: when it answers again, at the start of the daemon, when
// there are new records, and from time to time.
type fenceWatch struct {
	s *Server
	*ownerCache

	mu       sync.Mutex          // guards what follows
	cameBack map[string]cameBack // by name of the management cluster
}

// cameBack is the last time that workload clusters of a management cluster were paused.
type cameBack struct {
	at     time.Time
	paused int
	// overlap is from its first answer, or rather from the last try before it, to the last pause.
	overlap time.Duration
}

func newFenceWatch(s *Server) *fenceWatch {
	return &fenceWatch{s: s, cameBack: map[string]cameBack{},
		ownerCache: newOwnerCache(s.cfg.Locations, s.readOwners, s.cfg.Log)}
}

// last returns when workload clusters of a management cluster were last paused; false when none
// were.
func (w *fenceWatch) last(name string) (cameBack, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.cameBack[name]
	return c, ok
}

// run watches all management clusters until ctx ends.
func (w *fenceWatch) run(ctx context.Context) {
	var watches sync.WaitGroup
	watches.Go(func() { w.ownerCache.run(ctx) })
	for _, o := range w.s.cfg.Sources {
		watches.Go(func() { w.watch(ctx, o) })
	}
	watches.Wait()
}

// mgmtWatch is the watch of one management cluster.
type mgmtWatch struct {
	*fenceWatch
	options kube.Options
	log     *slog.Logger
	mgmt    *kube.Mgmt // of the last try; nil when that failed
	// asking is the last try, and confirming the last read of records, by location. One that hangs is
	// not begun a second time: each would take another thread of the process.
	asking     *call[*kube.Mgmt]
	asked      time.Time // when it began
	confirming map[string]*call[struct{}]
	// down is when the last try failed, back when the first one after it did not. Both are zero once
	// a pass is through with records that were read since.
	down, back time.Time
	// answered is the UID of the management cluster that had a pass since; empty when none had.
	answered string
	passed   map[string]int // versions of the records of the last pass, by location
	next     time.Time      // of the next pass
	// complete: the last pass left nothing undone. said are its warnings.
	complete bool
	said     string
	// unprotected is how many workload clusters the admission policy did not protect.
	unprotected int
}

// of returns the watch of a management cluster that was never reached.
func (w *fenceWatch) of(o kube.Options) *mgmtWatch {
	return &mgmtWatch{fenceWatch: w, options: o, log: w.s.cfg.Log.With("managementCluster", o.Name),
		confirming: map[string]*call[struct{}]{}}
}

func (w *fenceWatch) watch(ctx context.Context, o kube.Options) {
	m := w.of(o)
	for {
		err := task.Call(func() error { return m.look(ctx) })
		_ = m.s.panicked(err, "managementCluster", o.Name) // it is logged
		if retry.Sleep(ctx, fencePoll) != nil {
			return
		}
	}
}

// look asks the management cluster for an answer, and fences what it lost when that is due. It
// never waits for a store: the records are read beside it, so that a slow store does not delay the
// answer to a management cluster that comes back. The first pass takes the records that were read
// last and only pauses, and so does each one until all were read again: what they did not say yet
// must not wait for what belongs to the first pauses.
func (m *mgmtWatch) look(ctx context.Context) error {
	probe, cancel := context.WithTimeout(ctx, fenceProbe)
	mgmt, began, err := m.connect(probe)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.setDown(m.options.Name, err != nil)
	if err != nil {
		if m.answered != "" {
			m.log.Warn("management cluster does not answer; when it does, what it lost is fenced",
				"error", err)
		}
		m.answered, m.down, m.back, m.passed = "", began, time.Time{}, nil
		return err
	}
	since := began
	if !m.down.IsZero() {
		since = m.down
	}
	owners := m.cached()
	fresh := !slices.ContainsFunc(slices.Collect(maps.Values(owners)),
		func(o locationOwners) bool { return o.began.Before(m.back) })
	same := m.answered == mgmt.UID() && maps.Equal(m.passed, versions(owners))
	if same && began.Before(m.next) {
		m.settle(fresh)
		return nil
	}
	if !m.down.IsZero() && m.back.IsZero() {
		m.back, fresh = time.Now(), false
		m.outdate() // records may have been written while it was away
	}
	pauseOnly := !fresh && time.Since(m.back) < freshTime
	guarded, err := m.pass(ctx, mgmt, owners, since, same, pauseOnly)
	m.passed = versions(owners)
	if err != nil {
		m.log.Error("fence what the management cluster lost", "error", err)
		m.answered = ""
		return err
	}
	m.answered = mgmt.UID()
	m.settle(fresh && !m.back.After(began))
	switch {
	case pauseOnly:
		m.next = time.Now().Add(passStale)
	case !m.complete:
		m.next = time.Now().Add(passIncomplete)
	case guarded:
		m.next = time.Now().Add(passGuarded)
	default:
		m.next = time.Now().Add(recordsUp)
	}
	return nil
}

// settle ends what is measured from the last try before a management cluster came back.
func (m *mgmtWatch) settle(fresh bool) {
	if fresh {
		m.down, m.back = time.Time{}, time.Time{}
	}
}

func versions(owners map[string]locationOwners) map[string]int {
	v := map[string]int{}
	for name, o := range owners {
		v[name] = o.version
	}
	return v
}

// pass fences the workload clusters that a management cluster lost by the records of any location.
// It reports whether workload clusters there are fenced or were moved away. again says that the
// last pass was made with the same records: what it logged is not logged again. With pauseOnly it
// leaves what belongs to a fence besides the pause, and what takes time, to a later one.
func (m *mgmtWatch) pass(ctx context.Context, mgmt *kube.Mgmt, owners map[string]locationOwners,
	since time.Time, again, pauseOnly bool) (guarded bool, err error) {
	if len(owners) == 0 {
		m.complete = true
		return false, nil
	}
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	f, err := m.s.newFencing(listing, mgmt)
	cancel()
	if err != nil {
		return false, err
	}
	var state fence.PolicyState
	unread := errors.New("a pass that only pauses writes no list")
	if !pauseOnly {
		state, unread = f.fence.Policy.State(ctx)
	}
	// A list that cannot be read most likely cannot be written either.
	listed := func(ref object.Ref) bool { return unread != nil || state.Known(ref) }
	all, lost := m.pauseLost(ctx, f, owners, again, listed)
	if len(all.Paused) > 0 {
		m.noteCameBack(cameBack{at: time.Now(), paused: len(all.Paused),
			overlap: all.LastPause.Sub(since)})
	}
	fenced := all.FencedOf(lost)
	guarded = len(all.Paused)+len(all.Already) > 0 // also of those that an operation holds
	if pauseOnly {
		m.complete = false
	} else {
		taken := m.takenFrom(ctx, mgmt.UID(), owners)
		var deny []fence.Cluster
		if unread == nil {
			deny = m.toDeny(ctx, f, owners, taken, state)
		}
		m.finish(ctx, f, fenced, deny, again && m.complete && len(all.Paused) == 0)
		guarded = m.protected(ctx, f, taken, fenced) || guarded
	}
	var errs []error
	for _, finding := range all.Findings {
		errs = append(errs, errors.New(finding.String()))
	}
	return guarded, errors.Join(errs...)
}

// pauseLost pauses the Clusters that are lost by the records of any location, and returns them.
func (m *mgmtWatch) pauseLost(ctx context.Context, f *fencing, owners map[string]locationOwners,
	again bool, listed func(object.Ref) bool) (all fence.Result, clusters []fence.Cluster) {
	ignored := 0
	for location, o := range owners {
		f.owners = ownersIn(o.store, f.mgmt, o.records)
		lost, findings := f.owners.Lost(f.clusters)
		ignored += len(findings)
		for _, finding := range findings {
			if !again {
				m.log.Warn("ownership record is not obeyed", "workloadCluster", finding.Unit, "code",
					finding.Code, "message", finding.Message)
			}
		}
		lost = m.confirmed(ctx, f, location, o, lost, listed)
		clusters = append(clusters, lost...)
		r := f.fence.Pause(ctx, lost, capi.FencedByRecord)
		all.Paused = append(all.Paused, r.Paused...)
		all.Already = append(all.Already, r.Already...)
		all.Held = append(all.Held, r.Held...)
		all.Findings = append(all.Findings, r.Findings...)
		if r.LastPause.After(all.LastPause) {
			all.LastPause = r.LastPause
		}
	}
	m.s.metrics.fenced(f.mgmt.Name(), len(all.Paused), len(all.Findings), ignored)
	return all, clusters
}

func (m *mgmtWatch) noteCameBack(c cameBack) {
	m.log.Warn("fenced workload clusters that another management cluster owns", "count", c.paused,
		"overlap", c.overlap)
	m.s.metrics.fence.overlap.WithLabelValues(m.options.Name).Set(c.overlap.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cameBack[m.options.Name] = c
}

// finish does what belongs to a fence besides the pause of the Clusters: the admission policy, and
// the switches of other objects. A daemon may have died before it came to that, so each pass does
// it, until it is known to be done. Then only the policy is looked after. That denies what is not
// there as well (deny): somebody may create it again, unpaused.
func (m *mgmtWatch) finish(ctx context.Context, f *fencing, fenced, deny []fence.Cluster,
	done bool) {
	warnings := append(f.fence.Arm(ctx, fenced), f.fence.Deny(ctx, deny)...)
	if !done {
		units := make([]string, len(fenced))
		for i, c := range fenced {
			units[i] = c.Unit()
		}
		set, findings := f.fence.Acknowledge(ctx, units)
		m.complete = set
		warnings = append(warnings, findings...)
	}
	said := fmt.Sprint(warnings)
	for _, finding := range warnings {
		if said != m.said {
			m.log.Warn("fence is not complete", "workloadCluster", finding.Unit, "code", finding.Code,
				"message", finding.Message)
		}
	}
	m.said = said
}

// protected counts, for the metric, the workload clusters that were fenced on a management cluster
// or moved away from it, and that its admission policy does not protect. It reports whether there
// are any that it should.
func (m *mgmtWatch) protected(ctx context.Context, f *fencing, taken map[string][]fence.Cluster,
	fenced []fence.Cluster) (any bool) {
	want := map[object.Ref]bool{}
	for _, c := range fenced {
		want[c.Ref] = true
	}
	for _, c := range f.clusters {
		if c.Fenced() != "" {
			want[c.Ref] = true
		}
	}
	there := map[object.Ref]string{}
	for _, c := range f.clusters {
		there[c.Ref] = c.ID
	}
	for _, clusters := range taken {
		for _, c := range clusters {
			// Another workload cluster of that name is not denied: an operator may have made it.
			if id, is := there[c.Ref]; !is || id == c.ID {
				want[c.Ref] = true
			}
		}
	}
	missing := 0
	if len(want) > 0 {
		state, err := f.fence.Policy.State(ctx)
		for ref := range want {
			if err != nil || !state.Enforced || !state.Known(ref) {
				missing++
			}
		}
		if missing > m.unprotected {
			m.log.Warn("the admission policy mgmtd-moved does not protect workload clusters that were "+
				"fenced or moved away: somebody may unpause them, or create them again", "count", missing,
				"error", err)
		}
	}
	m.unprotected = missing
	m.s.metrics.fence.unprotected.WithLabelValues(f.mgmt.Name()).Set(float64(missing))
	return len(want) > 0
}

// checkCameBack reports the last time that workload clusters were fenced because the management
// cluster came back.
func checkCameBack(_ context.Context, k *mgmtCheck) error {
	if k.cameBack != nil {
		k.add(object.Finding{Severity: object.Info, Code: object.CodeCameBack,
			Message: fmt.Sprintf("at %s it had %d workload clusters at work that another management "+
				"cluster owns; they were paused within %s of its first answer",
				k.cameBack.at.UTC().Format(time.RFC3339), k.cameBack.paused,
				k.cameBack.overlap.Round(time.Millisecond)),
			Hint: "compare what both management clusters did meanwhile"})
	}
	return nil
}
