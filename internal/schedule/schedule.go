package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/mgmtd/mgmtd/internal/catalog"
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
	// TTL is how long a prune retains its snapshots at least, and no longer unless a rule retains
	// them; 0 leaves it to the rules.
	TTL time.Duration
	// Paused stops it from running until an operator resumes it.
	Paused bool
	// SkipImmediately lets a run that was due while the daemon was down, or the first one, wait
	// until the schedule is due next.
	SkipImmediately bool
}

// ParseCron reads a cron expression: five fields, "@daily" and the like, or "@every 30s". The
// prefix "CRON_TZ=Zone " names a time zone; the default is the local one. An expression that is
// never due is an error.
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

// Status is a schedule and its state.
type Status struct {
	Schedule
	// Paused is what holds: an operator's word, else the configuration's.
	Paused bool
	// Due is the time of the next run; also while the schedule is paused.
	Due time.Time
	// LastRun and LastSuccess are when the last run, and the last one that succeeded, began; zero
	// when there was none.
	LastRun, LastSuccess time.Time
	LastError            string
	LastOperation        catalog.OperationID
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
	running bool
	skipped int64
}

func (d *scheduled) paused() bool {
	if d.state.Paused != nil && d.state.ConfigPaused == d.Paused {
		return *d.state.Paused
	}
	return d.Paused
}

// rewind sets the time at which the schedule is due, counted from its last run.
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

// overdueSince returns the earliest time at which a run was due for which no later run succeeded;
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

// interval returns the time between two runs, as of now.
func (d *scheduled) interval(now time.Time) time.Duration {
	next := d.cron.Next(now)
	return d.cron.Next(next).Sub(next)
}

func (d *scheduled) status(now time.Time) Status {
	return Status{
		Schedule: d.Schedule, Paused: d.paused(), Due: d.due,
		LastRun: d.state.LastRun, LastSuccess: d.state.LastSuccess, LastError: d.state.LastError,
		LastOperation: d.state.LastOperation, Skipped: d.skipped,
		Overdue: !d.overdueSince(now).IsZero(),
	}
}
