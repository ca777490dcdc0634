package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// longestSleep bounds a wait: a timer stops while its machine sleeps, and does not notice that
	// the clock was set.
	longestSleep = time.Minute
	// pruneEvery is the least time between two prunes of a location that the scheduler begins.
	pruneEvery = time.Hour
)

// Run is an operation that was begun. Its beginner waits for it.
type Run interface {
	// Operation returns the operation as it was when the run began.
	Operation() catalog.Operation
	// Wait returns how the run ended, once that is recorded.
	Wait() error
	// Stopped reports whether an operator stopped the run. Call it after Wait.
	Stopped() bool
}

// SnapshotRequest is one run of a schedule.
type SnapshotRequest struct {
	Schedule         string
	Source, Location string
	Namespaces       []string
	Selector         string
	// Interval is the time between two runs of the schedule.
	Interval time.Duration
	TTL      time.Duration
}

// Snapshots begins the operations of schedules.
type Snapshots interface {
	// BeginSnapshot begins a run. ctx bounds the beginning, not the run.
	BeginSnapshot(ctx context.Context, r SnapshotRequest) (Run, error)
	// BeginPrune begins a prune of a location by the rules of the configuration, after a snapshot
	// of a schedule. It reports by itself that it could not begin one.
	BeginPrune(schedule, location string)
	// LastPrune returns when the last prune of a location began, scheduled or requested, and
	// whether it is still running; zero when there was none since the daemon started.
	LastPrune(location string) (began time.Time, running bool)
}

// States records the states of schedules; *catalog.Catalog does.
type States interface {
	ScheduleState(ctx context.Context, name string) (catalog.ScheduleState, error)
	UpdateSchedule(ctx context.Context, name string, change func(*catalog.ScheduleState)) (
		catalog.ScheduleState, error)
}

// Metrics observes the scheduler.
type Metrics interface {
	// ScheduleKnown reports a schedule when the daemon starts, and its last success, if any.
	ScheduleKnown(schedule string, lastSuccess time.Time)
	// RunSkipped reports a run that was due while the run before was not at its end.
	RunSkipped(schedule string)
	// Overdue reports for how long a schedule is overdue; 0 when it is not.
	Overdue(schedule string, by time.Duration)
	// NewestStored reports when the newest snapshot of a schedule was taken that its store has; zero
	// when it has none.
	NewestStored(schedule string, taken time.Time)
	// ClockWentBack reports that recorded times of a schedule were ahead of the clock, and its last
	// success, if any, as it counts now.
	ClockWentBack(schedule string, lastSuccess time.Time)
}

// Options of a Scheduler.
type Options struct {
	Schedules []Schedule
	Snapshots Snapshots
	// Stores is searched for the last snapshot of each schedule; nil: recorded successes count.
	Stores  Stores
	States  States
	Metrics Metrics
	Log     *slog.Logger
	// Prune reports whether rules remove snapshots from a location: then a prune follows a run that
	// succeeded, at most once in an hour for each location. nil: from none.
	Prune func(location string) bool
	// Now returns the time; nil for time.Now.
	Now func() time.Time
	// Panicked logs and counts a panic; nil to log it only.
	Panicked func(error)
}

// Scheduler takes the snapshots of the schedules.
//
// A schedule is due at the first time of its expression after its last run began; a schedule that
// never ran is due at once. So the scheduler makes up once for runs that were missed while the
// daemon was down. With SkipImmediately, times before the start of the daemon, or before the end of
// a pause, do not count.
//
// A run that failed is retried after a minute, and then after twice the time each, at most half of
// the interval, until the schedule is due next or is not overdue any more. A run that an operator
// stopped is not retried.
//
// The clock of a host can be ahead and be set back. A recorded time that the clock has not reached
// counts as now, see correctClocks.
//
// A schedule is overdue by the newest snapshot that is really in its store, see followStore.
type Scheduler struct {
	Options
	wake chan struct{} // holds one when a change may shorten the sleep of Run

	runs sync.WaitGroup // goroutines that begin a run or wait for its end

	// recording is held from a change of a recorded state until list has it, so that list never
	// ends with the older of two states.
	recording sync.Mutex
	mu        sync.Mutex
	list      []*scheduled // by name
}

// New reads the recorded states of the schedules.
func New(ctx context.Context, o Options) (*Scheduler, error) {
	r := &Scheduler{Options: o, wake: make(chan struct{}, 1)}
	now := r.now()
	for _, s := range o.Schedules {
		parsed, err := ParseCron(s.Cron)
		if err != nil {
			return nil, fmt.Errorf("schedule %s: %w", s.Name, err)
		}
		d := &scheduled{Schedule: s, cron: parsed, ran: make(chan struct{}, 1)}
		if d.state, err = o.States.ScheduleState(ctx, s.Name); errors.Is(err, catalog.ErrNotFound) {
			// A new schedule is recorded once: it can be overdue from now on.
			d.state, err = o.States.UpdateSchedule(ctx, s.Name, func(*catalog.ScheduleState) {})
		}
		if err != nil {
			return nil, err
		}
		d.fresh.good = reached(d.state.LastSuccess, now)
		d.rewind(now)
		o.Metrics.ScheduleKnown(s.Name, reached(d.state.LastSuccess, now))
		r.list = append(r.list, d)
	}
	slices.SortFunc(r.list, func(a, b *scheduled) int { return strings.Compare(a.Name, b.Name) })
	r.correctClocks(now)
	return r, nil
}

// Run begins what is due until the context ends, which must also end the runs. It returns once all
// runs that the scheduler began have ended.
func (r *Scheduler) Run(ctx context.Context) {
	defer r.runs.Wait()
	for _, d := range r.list {
		if r.Stores != nil {
			r.runs.Go(func() {
				again(ctx, r.Log, r.Panicked, func() { r.followStore(ctx, d) })
			})
		}
	}
	for {
		now := r.now()
		r.correctClocks(now)
		wait := r.step(ctx, now)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-r.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// step begins what is due and returns how long to sleep.
func (r *Scheduler) step(ctx context.Context, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := longestSleep
	for _, d := range r.list {
		r.observe(d, now)
		if d.paused() {
			continue
		}
		if !d.due.After(now) {
			tries := 1
			if d.retry {
				tries = d.state.Tries + 1
			}
			d.due, d.retry = d.next(now), false
			if d.running {
				d.skipped++
				r.Metrics.RunSkipped(d.Name)
				r.Log.Warn("schedule is due while its last run is not at its end: skipped", "schedule", d.Name)
			} else {
				d.running = true
				r.runs.Go(func() {
					r.guarded(d, now, func() {
						// A later time could have another jitter, and so another next time.
						if run, err := r.begin(ctx, d, now, tries); err == nil {
							r.finish(d, now, run)
						}
					})
				})
			}
		}
		wait = min(wait, d.due.Sub(now))
	}
	return wait
}

// guarded runs a part of a run. One that panics has ended with that as its error, and is retried
// like others: a schedule whose run never ends is never due again.
func (r *Scheduler) guarded(d *scheduled, began time.Time, part func()) {
	err := task.Call(func() error { part(); return nil })
	if err == nil {
		return
	}
	report(r.Log, r.Panicked, err)
	if again := task.Call(func() error {
		r.end(d, began, store.EnvelopeKey{}, err, false)
		return nil
	}); again != nil {
		report(r.Log, r.Panicked, again)
	}
}

func (r *Scheduler) observe(d *scheduled, now time.Time) {
	late := time.Duration(0)
	if since := d.overdueSince(now); !since.IsZero() {
		late = now.Sub(since)
	}
	r.Metrics.Overdue(d.Name, late)
}

// begin begins a run and records it; d.running is set already. tries counts this run and those
// before it that failed for the same time. begin records and logs an error as the end of the run.
func (r *Scheduler) begin(ctx context.Context, d *scheduled, began time.Time, tries int) (
	Run, error) {
	var run Run
	err := task.Call(func() (err error) {
		run, err = r.Snapshots.BeginSnapshot(ctx, SnapshotRequest{Schedule: d.Name, Source: d.Source,
			Location: d.Location, Namespaces: d.Namespaces, Selector: d.Selector,
			Interval: d.interval(began), TTL: d.TTL})
		return err
	})
	if bug, ok := errors.AsType[*task.PanicError](err); ok {
		report(r.Log, r.Panicked, bug)
	}
	id := catalog.OperationID("")
	if err == nil {
		id = run.Operation().ID
		r.Log.Info("schedule began a snapshot", "schedule", d.Name, "operation", id)
	}
	r.record(d, func(s *catalog.ScheduleState) {
		s.LastRun, s.LastOperation, s.Tries = began, id, tries
	})
	if err != nil {
		r.end(d, began, store.EnvelopeKey{}, err, false)
		return nil, err
	}
	return run, nil
}

// finish waits for a run, records its end, and begins the prune that follows it.
func (r *Scheduler) finish(d *scheduled, began time.Time, run Run) {
	err := run.Wait()
	var taken store.EnvelopeKey
	if err == nil && r.Stores != nil {
		var unknown error
		taken, unknown = r.Stores.Taken(context.Background(), run.Operation().ID)
		if unknown != nil {
			r.Log.Error("find the snapshot that the schedule took", "schedule", d.Name, "error", unknown)
		}
	}
	r.end(d, began, taken, err, run.Stopped())
	if err == nil {
		r.prune(d.Name, run.Operation().Location)
	}
}

// end records how a run ended and the snapshot that it took, if any, and when a run that failed is
// retried.
func (r *Scheduler) end(d *scheduled, began time.Time, taken store.EnvelopeKey, err error,
	stopped bool) {
	if err != nil {
		r.Log.Error("schedule took no snapshot", "schedule", d.Name, "error", err)
	}
	r.record(d, func(s *catalog.ScheduleState) {
		s.LastError = ""
		if err != nil {
			s.LastError = err.Error()
		} else {
			s.LastSuccess, s.LastSnapshot, s.LastScope = began, "", ""
			if taken != (store.EnvelopeKey{}) {
				s.LastSnapshot, s.LastScope = taken.String(), d.scopeIn(taken.Source)
			}
		}
		if err == nil || stopped {
			s.Tries = 0
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	d.running = false
	if d.retry { // of a run before one that an operator requested
		d.due, d.retry = d.next(now), false
	}
	d.retryAfter(now, now)
	r.observe(d, now)
	r.wakeUp()
	select {
	case d.ran <- struct{}{}:
	default: // the store is searched anyway
	}
}

// wakeUp makes Run look again at what is due.
func (r *Scheduler) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // Run wakes up anyway
	}
}

// prune begins a prune of the location of a snapshot, unless one began within the hour. Nobody
// waits for that prune: its operation says how it went.
func (r *Scheduler) prune(schedule, location string) {
	if r.Prune == nil || !r.Prune(location) {
		return
	}
	began, running := r.Snapshots.LastPrune(location)
	if running || !began.IsZero() && time.Since(began) < pruneEvery {
		return
	}
	r.Snapshots.BeginPrune(schedule, location)
}

// record stores a change of the state. When that fails, the change holds until the daemon ends.
func (r *Scheduler) record(d *scheduled, change func(*catalog.ScheduleState)) {
	r.recording.Lock()
	defer r.recording.Unlock()
	state, err := r.States.UpdateSchedule(context.Background(), d.Name, change)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.Log.Error("record state of schedule", "schedule", d.Name, "error", err)
		change(&d.state)
		return
	}
	d.state = state
}

func (r *Scheduler) find(name string) (*scheduled, error) {
	var names []string
	for _, d := range r.list {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return nil, &UnknownError{Name: name, Known: names}
}

// List returns the schedules by name.
func (r *Scheduler) List() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	list := make([]Status, 0, len(r.list))
	for _, d := range r.list {
		list = append(list, d.status(now))
	}
	return list
}

// SetPaused pauses or resumes a schedule, which outlives the daemon. *UnknownError; errors of the
// catalog, and then nothing has changed.
func (r *Scheduler) SetPaused(ctx context.Context, name string, paused bool) (Status, error) {
	d, err := r.find(name)
	if err != nil {
		return Status{}, err
	}
	r.recording.Lock()
	defer r.recording.Unlock()
	state, err := r.States.UpdateSchedule(ctx, d.Name, func(s *catalog.ScheduleState) {
		s.Paused, s.ConfigPaused = &paused, d.Paused
	})
	if err != nil {
		return Status{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	before := d.paused()
	d.state = state
	if before && !paused {
		d.rewind(now)
	}
	r.wakeUp()
	return d.status(now), nil
}

// RunNow begins a run whether it is due or not, and returns its operation. *UnknownError;
// *RunningError; errors of the beginning.
func (r *Scheduler) RunNow(ctx context.Context, name string) (catalog.Operation, error) {
	d, err := r.find(name)
	if err != nil {
		return catalog.Operation{}, err
	}
	r.mu.Lock()
	if d.running {
		id := d.state.LastOperation
		r.mu.Unlock()
		return catalog.Operation{}, &RunningError{Name: name, Operation: id}
	}
	d.running = true
	r.mu.Unlock()
	began := r.now()
	r.runs.Add(1) // before the run begins: Run must not return before its end
	run, err := r.begin(ctx, d, began, 1)
	if err != nil {
		r.runs.Done()
		return catalog.Operation{}, err
	}
	go func() {
		defer r.runs.Done()
		r.guarded(d, began, func() { r.finish(d, began, run) })
	}()
	return run.Operation(), nil
}
