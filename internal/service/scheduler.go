package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// Schedule says when to take snapshots of what.
type Schedule struct {
	Name string
	// Cron is an expression that ParseCron reads.
	Cron string
	// Source and Location are names of the configuration.
	Source, Location string
	// Namespaces to capture; empty for all.
	Namespaces []string
	// TTL is how long its snapshots are kept at least, and no longer unless a rule keeps them; 0
	// leaves it to the rules.
	TTL time.Duration
	// Paused keeps it from running unless somebody resumes it.
	Paused bool
	// SkipImmediately lets a run that was due while the daemon was down, or the first one, wait
	// until it is due next.
	SkipImmediately bool
}

// ParseCron reads a cron expression of five fields, or "@daily" and the like, or "@every 30s";
// "CRON_TZ=Zone " before it names a time zone, else it is the local one. Expressions that are never
// due are refused.
func ParseCron(expression string) (_ cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser does not check everything
			err = fmt.Errorf("%q is not a cron expression", expression)
		}
	}()
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("%q is not a cron expression: %w", expression, err)
	}
	if s.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("%q is never due", expression)
	}
	return s, nil
}

// longestSleep bounds a wait: a timer stands still while its machine does, and knows nothing of a
// clock that was set.
const longestSleep = time.Minute

// scheduleStates records the states of schedules; the catalog does.
type scheduleStates interface {
	ScheduleState(ctx context.Context, name string) (catalog.ScheduleState, error)
	UpdateSchedule(ctx context.Context, name string, change func(*catalog.ScheduleState)) (
		catalog.ScheduleState, error)
}

// scheduler takes the snapshots of the schedules.
//
// A schedule is due at the first time of its expression after its last run began; one that never
// ran is due at once. So a run that was missed while the daemon was down is made up for, once. With
// SkipImmediately, what is past when the daemon starts, or when a pause ends, does not count. A run
// that failed is not tried again before it is due next.
type scheduler struct {
	begin  func(context.Context, wantedSnapshot) (*mgmtv1.Operation, error)
	states scheduleStates
	log    *slog.Logger
	m      *metrics
	wake   chan struct{} // holds one when something changed that the loop sleeps by

	begins sync.WaitGroup // goroutines that begin a run

	// from a change of a recorded state to its being known in list, lest an older one is known last
	recording sync.Mutex
	mu        sync.Mutex
	list      []*scheduled // by name
}

// scheduled is a schedule and where it stands.
type scheduled struct {
	Schedule
	cron    cron.Schedule
	state   catalog.ScheduleState
	due     time.Time // next; also while paused
	running bool
	skipped int64
}

func (d *scheduled) paused() bool {
	if d.state.Paused != nil && d.state.ConfigPaused == d.Paused {
		return *d.state.Paused
	}
	return d.Paused
}

// rewind finds when the schedule is due as seen from its last run.
func (d *scheduled) rewind(now time.Time) {
	switch {
	case d.SkipImmediately:
		d.due = d.cron.Next(now)
	case d.state.LastRun.IsZero():
		d.due = now
	default:
		d.due = d.cron.Next(d.state.LastRun.Local())
	}
}

// overdueSince returns the first time at which a run was due that none since has succeeded for;
// zero when there is none.
func (d *scheduled) overdueSince(now time.Time) time.Time {
	since := d.cron.Next(d.state.LastSuccess.Local())
	if d.state.LastSuccess.IsZero() {
		if since = d.state.Seen; d.SkipImmediately {
			since = d.cron.Next(since.Local())
		}
	}
	if d.paused() || !since.Before(now) {
		return time.Time{}
	}
	return since
}

// interval is how often the schedule is due, as of now.
func (d *scheduled) interval(now time.Time) time.Duration {
	next := d.cron.Next(now)
	return d.cron.Next(next).Sub(next)
}

// newScheduler reads what is remembered of the schedules.
func newScheduler(ctx context.Context, r *scheduler, schedules []Schedule) (*scheduler, error) {
	now := time.Now().Round(0)
	r.wake = make(chan struct{}, 1)
	for _, s := range schedules {
		parsed, err := ParseCron(s.Cron)
		if err != nil {
			return nil, &Error{Reason: ReasonUsage, Message: "schedule " + s.Name + ": " + err.Error(),
				err: err}
		}
		d := &scheduled{Schedule: s, cron: parsed}
		if d.state, err = r.states.ScheduleState(ctx, s.Name); errors.Is(err, catalog.ErrNotFound) {
			// A new schedule is recorded once: it can be overdue from now on.
			d.state, err = r.states.UpdateSchedule(ctx, s.Name, func(*catalog.ScheduleState) {})
		}
		if err != nil {
			return nil, err
		}
		d.rewind(now)
		r.m.know(s.Name)
		if !d.state.LastSuccess.IsZero() {
			r.m.snapshots.lastSuccess.WithLabelValues(s.Name).Set(float64(d.state.LastSuccess.Unix()))
		}
		r.list = append(r.list, d)
	}
	slices.SortFunc(r.list, func(a, b *scheduled) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// run begins what is due until the context ends, and waits for what is just beginning. Runs under
// way are operations and none of its business.
func (r *scheduler) run(ctx context.Context) {
	defer r.begins.Wait()
	for {
		wait := r.step(ctx, time.Now().Round(0))
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
func (r *scheduler) step(ctx context.Context, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := longestSleep
	for _, d := range r.list {
		r.observe(d, now)
		if d.paused() {
			continue
		}
		if !d.due.After(now) {
			d.due = d.cron.Next(now)
			if d.running {
				d.skipped++
				r.m.skipped.WithLabelValues(d.Name).Inc()
				r.log.Warn("schedule is due while its last run is going: skipped", "schedule", d.Name)
			} else {
				d.running = true
				r.begins.Go(func() {
					_, _ = r.beginRun(ctx, d) // logged and remembered
				})
			}
		}
		wait = min(wait, d.due.Sub(now))
	}
	return wait
}

func (r *scheduler) observe(d *scheduled, now time.Time) {
	late := 0.0
	if since := d.overdueSince(now); !since.IsZero() {
		late = now.Sub(since).Seconds()
	}
	r.m.overdue.WithLabelValues(d.Name).Set(late)
}

// beginRun begins a run; d.running is set already.
func (r *scheduler) beginRun(ctx context.Context, d *scheduled) (*mgmtv1.Operation, error) {
	began := time.Now().Round(0)
	w := wantedSnapshot{
		source: d.Source, location: d.Location, namespaces: d.Namespaces, schedule: d.Name,
		interval: d.interval(began), ttl: d.TTL,
		ended: func(err error) { r.ended(d, began, err) },
	}
	op, err := r.begin(ctx, w)
	if err != nil {
		r.m.snapshots.attempts.WithLabelValues(d.Name).Inc()
		r.m.snapshotFailed(d.Name)
		r.remember(d, func(s *catalog.ScheduleState) { s.LastRun, s.LastOperation = began, "" })
		r.ended(d, began, err)
		return nil, err
	}
	r.log.Info("schedule began a snapshot", "schedule", d.Name, "operation", op.GetId())
	// It may have ended meanwhile, so its end is not touched.
	r.remember(d, func(s *catalog.ScheduleState) {
		s.LastRun, s.LastOperation = began,
			catalog.OperationID(op.GetId())
	})
	return op, nil
}

func (r *scheduler) ended(d *scheduled, began time.Time, err error) {
	if err != nil {
		r.log.Error("schedule took no snapshot", "schedule", d.Name, "error", err)
	}
	r.remember(d, func(s *catalog.ScheduleState) {
		s.LastError = ""
		if err != nil {
			s.LastError = err.Error()
		} else {
			s.LastSuccess = began
		}
	})
	r.mu.Lock()
	d.running = false
	r.observe(d, time.Now())
	r.mu.Unlock()
}

// remember stores the state; where that fails, it is at least known until the daemon ends.
func (r *scheduler) remember(d *scheduled, change func(*catalog.ScheduleState)) {
	r.recording.Lock()
	defer r.recording.Unlock()
	state, err := r.states.UpdateSchedule(context.Background(), d.Name, change)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.log.Error("record state of schedule", "schedule", d.Name, "error", err)
		change(&d.state)
		return
	}
	d.state = state
}

func (r *scheduler) find(name string) (*scheduled, error) {
	var names []string
	for _, d := range r.list {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	hint := "the configuration has none"
	if len(names) > 0 {
		hint = "there are " + strings.Join(names, ", ")
	}
	return nil, &Error{Reason: ReasonNotFound, Message: fmt.Sprintf("no schedule is named %q", name),
		Hint: hint}
}

// setPaused pauses or resumes a schedule. It is remembered before it holds.
func (r *scheduler) setPaused(ctx context.Context, name string, paused bool) (*scheduled, error) {
	d, err := r.find(name)
	if err != nil {
		return nil, err
	}
	r.recording.Lock()
	defer r.recording.Unlock()
	state, err := r.states.UpdateSchedule(ctx, d.Name, func(s *catalog.ScheduleState) {
		s.Paused, s.ConfigPaused = &paused, d.Paused
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := d.paused()
	d.state = state
	if before && !paused {
		d.rewind(time.Now().Round(0))
	}
	select {
	case r.wake <- struct{}{}:
	default: // it is about to look anyway
	}
	return d, nil
}

// runNow begins a run whether it is due or not.
func (r *scheduler) runNow(ctx context.Context, name string) (*mgmtv1.Operation, error) {
	d, err := r.find(name)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if d.running {
		id := d.state.LastOperation
		r.mu.Unlock()
		return nil, &Error{Reason: ReasonLocked, Message: "a run of schedule " + name + " is going",
			Hint: "wait for it: mgmtctl operation watch " + string(id), err: errors.New("running")}
	}
	d.running = true
	r.mu.Unlock()
	return r.beginRun(ctx, d)
}
