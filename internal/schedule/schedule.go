package schedule

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// firstRetry is how long a run that failed waits for the first retry. Each further wait is twice as
// long.
const firstRetry = time.Minute

// Schedule says when to take snapshots of what.
type Schedule struct {
	Name string
	// Cron is an expression that ParseCron reads.
	Cron string
	// Source and Location are names of the configuration.
	Source, Location string
	// Namespaces to capture; empty for all.
	Namespaces []string
	// Selector selects among the workload clusters of these namespaces, in its canonical form
	// (graph.Selector); empty for all, and what no workload cluster needs.
	Selector string
	// TTL is how long a prune retains its snapshots at least, and no longer unless a rule retains
	// them; 0 leaves it to the rules.
	TTL time.Duration
	// Paused stops it from running until an operator resumes it.
	Paused bool
	// SkipImmediately lets a run that was due while the daemon was down, or the first one, wait
	// until the schedule is due next.
	SkipImmediately bool
	// Jitter is the longest time by which runs are delayed, so that many daemons with one store do
	// not begin at once; 0 for none. A delay is at most half of the time to the next run.
	Jitter time.Duration
}

// Status is a schedule and its state.
type Status struct {
	Schedule
	// Paused is what holds: an operator's word, else the configuration's.
	Paused bool
	// Due is the time of the next run, which may be a retry; also while the schedule is paused.
	Due time.Time
	// LastRun and LastSuccess are when the last run, and the last one that succeeded, began; zero
	// when there was none.
	LastRun, LastSuccess time.Time
	// Newest is when the newest snapshot was taken that counts. It is before LastSuccess when later
	// ones are not in the store, or the store could not be searched for them.
	Newest        time.Time
	LastError     string
	LastOperation catalog.OperationID
	// Skipped counts runs that were due while the run before was going, since the daemon started.
	Skipped int64
	Overdue bool
}

// UnknownError says that no schedule has this name.
type UnknownError struct {
	Name string
	// Known are the names of the schedules.
	Known []string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("no schedule is named %q", e.Name) }

// Hint lists the names.
func (e *UnknownError) Hint() string {
	if len(e.Known) == 0 {
		return "the configuration has none"
	}
	return "there are " + strings.Join(e.Known, ", ")
}

// RunningError says that a run of the schedule is not at its end.
type RunningError struct {
	Name string
	// Operation of that run.
	Operation catalog.OperationID
}

func (e *RunningError) Error() string { return "a run of schedule " + e.Name + " is running" }

// scheduled is a schedule and its state.
type scheduled struct {
	Schedule
	cron    cron.Schedule
	state   catalog.ScheduleState
	due     time.Time // next; also while paused
	retry   bool      // due is the time of a retry
	running bool
	skipped int64
	fresh   freshness
	ran     chan struct{} // holds one after the end of a run
}

func (d *scheduled) paused() bool {
	if d.state.Paused != nil && d.state.ConfigPaused == d.Paused {
		return *d.state.Paused
	}
	return d.Paused
}

// rewind sets the time at which the schedule is due, counted from its last run.
func (d *scheduled) rewind(now time.Time) {
	d.retry = false
	switch {
	case d.SkipImmediately:
		d.due = d.next(now)
	case d.state.LastRun.IsZero():
		d.due = now
	default:
		d.due = d.next(d.state.LastRun.Local())
		d.retryAfter(d.state.LastRun, now)
	}
}

// retryAfter makes the schedule due again a while after the end of a run, unless it is due before.
// It does nothing when the last run succeeded, an operator stopped it, or the schedule is not
// overdue.
func (d *scheduled) retryAfter(end, now time.Time) {
	if d.state.Tries == 0 || d.running || d.missed().After(now) {
		return
	}
	backoff := retry.Backoff{First: firstRetry, Longest: d.interval(now) / 2, Jitter: true}
	if at := end.Add(backoff.Wait(d.state.Tries)); at.Before(d.due) {
		d.due, d.retry = at, true
	}
}

// next returns the first time after t at which the schedule is due, delayed by its jitter. Due and
// overdue are both counted by next.
func (d *scheduled) next(t time.Time) time.Time {
	due := d.cron.Next(t)
	return due.Add(d.delay(due))
}

// delay returns the jitter of the run that the expression makes due. It is random between schedules
// and daemons, since these recorded the schedule at different times. It is the same after a
// restart.
func (d *scheduled) delay(due time.Time) time.Duration {
	longest := min(d.Jitter, d.cron.Next(due).Sub(due)/2)
	if longest <= 0 {
		return 0
	}
	seed := fnv.New64a()
	_, _ = fmt.Fprintf(seed, "%s %d %d", d.Name, d.state.Seen.UnixNano(), due.Unix())
	random := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // jitter
	return time.Duration(random.Int64N(int64(longest) + 1))
}

// missed returns the earliest time at which a run was or will be due of which no later snapshot is
// in the store.
func (d *scheduled) missed() time.Time {
	last := d.lastGood()
	switch {
	case !last.IsZero():
		return d.next(last.Local())
	case d.SkipImmediately:
		return d.next(d.state.Seen.Local())
	}
	return d.state.Seen
}

// overdueSince returns the earliest time at which a run was due of which no later snapshot is in
// the store; zero when there is none.
func (d *scheduled) overdueSince(now time.Time) time.Time {
	since := d.missed()
	if d.paused() || !since.Before(now) {
		return time.Time{}
	}
	return since
}

// interval returns the time between two runs, as of now.
func (d *scheduled) interval(now time.Time) time.Duration {
	next := d.cron.Next(now)
	return d.cron.Next(next).Sub(next)
}

func (d *scheduled) status(now time.Time) Status {
	return Status{
		Schedule: d.Schedule, Paused: d.paused(), Due: d.due,
		LastRun: d.state.LastRun, LastSuccess: d.state.LastSuccess, LastError: d.state.LastError,
		LastOperation: d.state.LastOperation, Skipped: d.skipped, Newest: d.lastGood(),
		Overdue: !d.overdueSince(now).IsZero(),
	}
}
