package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/fence"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/store"
)

// How often the watch for management clusters that come back asks. A management cluster that comes
// back must have its lost workload clusters paused within 10 s of its first answer.
const (
	// fencePollDown is between two tries to reach one that does not answer, fencePollUp between two
	// tries to reach one that does. A try takes up to fenceProbe: the overlap that is printed begins
	// with the last one that failed, so up to 2*fenceProbe+fencePollDown before the answer.
	fencePollDown, fencePollUp = time.Second, 5 * time.Second
	// fenceProbe bounds one try: a host that drops packets must not delay the next one.
	fenceProbe = 3 * time.Second
	// recordsDown and recordsUp are the age at which the ownership records are read again, one
	// request each: before a management cluster comes back they have to be known already.
	recordsDown, recordsUp = 30 * time.Second, 5 * time.Minute
	// confirmTime bounds the last look at the records of what is about to be paused.
	confirmTime = 3 * time.Second
)

// fenceWatch pauses, on each management cluster of a daemon, the workload clusters that a trusted
// ownership record gives to another one: when it answers again, at the start of the daemon, and
// when there are new records.
type fenceWatch struct {
	s *Server

	// reading is held while records are read, so that only one management cluster reads them.
	reading sync.Mutex

	mu       sync.Mutex                // guards what follows
	changed  time.Time                 // when this process last saw a new epoch
	records  map[string]locationOwners // by name of the location
	cameBack map[string]cameBack       // by name of the management cluster
}

// locationOwners are the ownership records of a location, as they were read.
type locationOwners struct {
	store   *store.Store
	records map[string]ownership.Record
	began   time.Time // of the read
	version int       // counts the reads that found other records
}

// cameBack is the last time that workload clusters of a management cluster were paused.
type cameBack struct {
	at     time.Time
	paused int
	// overlap is from its first answer, or rather from the last try before it, to the last pause.
	overlap time.Duration
}

func newFenceWatch(s *Server) *fenceWatch {
	return &fenceWatch{s: s, records: map[string]locationOwners{}, cameBack: map[string]cameBack{}}
}

// epochRaised notes that an ownership record with a new epoch was read or written.
func (w *fenceWatch) epochRaised() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = time.Now()
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
	// down is when the last try failed; zero once a pass with fresh records is through after it.
	down     time.Time
	answered bool
	// fresh: the records were read since it answers again. The first pass takes those of the cache:
	// a slow store must not delay it.
	fresh  bool
	passed map[string]int // versions of the records of the last pass, by location
}

func (w *fenceWatch) watch(ctx context.Context, o kube.Options) {
	m := &mgmtWatch{fenceWatch: w, options: o, log: w.s.cfg.Log.With("managementCluster", o.Name)}
	for {
		wait := fencePollUp
		if err := m.look(ctx); err != nil && ctx.Err() == nil {
			wait = fencePollDown
		} else if err == nil && !m.fresh {
			continue // with fresh records
		}
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// look asks the management cluster for an answer, and fences what it lost when it has not been done
// since.
func (m *mgmtWatch) look(ctx context.Context) error {
	began := time.Now()
	probe, cancel := context.WithTimeout(ctx, fenceProbe)
	mgmt, err := kube.Connect(probe, m.options)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if m.answered {
			m.log.Warn("management cluster does not answer; when it does, what it lost is fenced",
				"error", err)
		}
		m.answered, m.fresh, m.down, m.passed = false, false, began, nil
		_, _ = m.refresh(ctx, recordsDown) // the next look reports the error
		return err
	}
	since := began
	if !m.down.IsZero() {
		since = m.down
	}
	owners := m.cached()
	switch {
	case m.fresh:
		owners, err = m.refresh(ctx, recordsUp)
	case m.answered || len(owners) == 0:
		owners, err = m.refresh(ctx, 0)
		m.fresh = err == nil
	}
	if !m.answered || err != nil || !maps.Equal(m.passed, versions(owners)) {
		if passErr := m.pass(ctx, mgmt, owners, since); passErr != nil || err != nil {
			err = errors.Join(err, passErr)
			m.log.Error("fence what the management cluster lost", "error", err)
			return err
		}
	}
	m.answered, m.passed = true, versions(owners)
	if m.fresh {
		m.down = time.Time{}
	}
	return nil
}

func versions(owners map[string]locationOwners) map[string]int {
	v := map[string]int{}
	for name, o := range owners {
		v[name] = o.version
	}
	return v
}

// refresh returns the ownership records of all locations. It reads those again that are older than
// maxAge or than the last new epoch. Where that fails, it returns the ones before, with the error.
// While a management cluster is down, maxAge is short: then records are there when it comes back.
func (w *fenceWatch) refresh(ctx context.Context, maxAge time.Duration) (map[string]locationOwners,
	error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	var errs []error
	for i := range w.s.cfg.Locations {
		l := &w.s.cfg.Locations[i]
		have, known := w.cached()[l.Name]
		if known && time.Since(have.began) < maxAge && have.began.After(changed) {
			continue
		}
		next, err := w.s.readOwners(ctx, l)
		if errors.Is(err, store.ErrStoreMissing) {
			continue // before the first snapshot
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		next.version = have.version
		if !known || !maps.EqualFunc(have.records, next.records, sameRecord) {
			next.version++
		}
		w.mu.Lock()
		w.records[l.Name] = next
		w.mu.Unlock()
	}
	return w.cached(), errors.Join(errs...)
}

// cached returns the ownership records that were read last, by location.
func (w *fenceWatch) cached() map[string]locationOwners {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.records)
}

func sameRecord(a, b ownership.Record) bool {
	return a.By == b.By && a.Epoch == b.Epoch && a.Trusted == b.Trusted && a.Seen == b.Seen &&
		(a.Damaged == nil) == (b.Damaged == nil)
}

func (s *Server) readOwners(ctx context.Context, l *Location) (o locationOwners, err error) {
	o.began = time.Now()
	if o.store, err = s.openLocation(ctx, l, nil, false); err == nil {
		o.records, err = ownership.Owners(ctx, o.store)
	}
	return o, err
}

// pass fences the workload clusters that a management cluster lost by the records of any location.
func (m *mgmtWatch) pass(ctx context.Context, mgmt *kube.Mgmt, owners map[string]locationOwners,
	since time.Time) error {
	if len(owners) == 0 {
		return nil
	}
	f, err := m.s.newFencing(ctx, mgmt)
	if err != nil {
		return err
	}
	var ignored int
	var all fence.Result
	var armed []fence.Cluster
	for _, o := range owners {
		f.owners.StoreID, f.owners.Records = o.store.ID(), o.records
		lost, findings := f.owners.Lost(f.clusters)
		ignored += len(findings)
		for _, finding := range findings {
			m.log.Warn("ownership record is not obeyed", "workloadCluster", finding.Unit, "code",
				finding.Code, "message", finding.Message)
		}
		lost = m.confirmed(ctx, f, o, lost)
		armed = append(armed, lost...)
		r := f.fence.Pause(ctx, lost, capi.FencedByRecord)
		all.Paused, all.Findings = append(all.Paused, r.Paused...), append(all.Findings, r.Findings...)
		if r.LastPause.After(all.LastPause) {
			all.LastPause = r.LastPause
		}
	}
	m.s.metrics.fenced(mgmt.Name(), len(all.Paused), len(all.Findings), ignored)
	if len(all.Paused) > 0 {
		c := cameBack{at: time.Now(), paused: len(all.Paused), overlap: all.LastPause.Sub(since)}
		m.log.Warn("fenced workload clusters that another management cluster owns", "count", c.paused,
			"overlap", c.overlap)
		m.s.metrics.fence.overlap.WithLabelValues(mgmt.Name()).Set(c.overlap.Seconds())
		m.mu.Lock()
		m.cameBack[m.options.Name] = c
		m.mu.Unlock()
		_, findings := f.fence.Acknowledge(ctx, all.Paused)
		findings = append(f.fence.Arm(ctx, armed), findings...)
		for _, finding := range findings {
			m.log.Warn("fence is not complete", "workloadCluster", finding.Unit, "code", finding.Code,
				"message", finding.Message)
		}
	}
	var errs []error
	for _, finding := range all.Findings {
		errs = append(errs, errors.New(finding.String()))
	}
	return errors.Join(errs...)
}

// confirmed returns those of the Clusters that are lost by their records of this moment as well:
// the records are cached, and one may have been claimed back since. Where the store does not answer
// in time, the cached record decides.
func (m *mgmtWatch) confirmed(ctx context.Context, f *fencing, o locationOwners,
	lost []fence.Cluster) []fence.Cluster {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	now := fence.Owners{StoreID: o.store.ID(), UID: f.mgmt.UID(),
		Records: map[string]ownership.Record{}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(mgmtRequests)
	for _, c := range lost {
		g.Go(func() error {
			r, err := ownership.Read(ctx, o.store, c.ID)
			if err != nil {
				r = o.records[c.ID]
			}
			mu.Lock()
			defer mu.Unlock()
			now.Records[c.ID] = r
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	still, _ := now.Lost(lost)
	return still
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
