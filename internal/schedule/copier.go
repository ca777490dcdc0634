package schedule

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/retry"
)

const (
	// copyEvery is how often a copy run begins although nothing changed in the location, as far as
	// this daemon knows: others may write to it, too.
	copyEvery = time.Hour
	// copyPause is the least time from one run to the next. Each lists both stores.
	copyPause = time.Minute
)

// ErrLeftBehind is among the errors of a copy run that copied what it could, and left snapshots
// behind: they are damaged in the origin, for example.
var ErrLeftBehind = errors.New("snapshots were left behind")

// Copy is a location that is copied to another one.
type Copy struct {
	From, To string // names of locations
}

// Copies begins copy runs.
type Copies interface {
	// BeginCopy begins a run. ctx bounds the beginning, not the run. The run is nil when there is
	// nothing to copy yet, and when one that somebody asked for is going.
	BeginCopy(ctx context.Context, c Copy) (Run, error)
	// BeginPrune and LastPrune are those of Snapshots.
	BeginPrune(schedule, location string)
	LastPrune(location string) (began time.Time, running bool)
}

// CopierOptions are the options of a Copier.
type CopierOptions struct {
	Copies []Copy
	Begin  Copies
	// Prune reports whether rules remove snapshots from a location: then a prune follows a run that
	// copied what it could, at most once in an hour.
	Prune func(location string) bool
	Log   *slog.Logger
	// Panicked logs and counts a panic; nil to log it only.
	Panicked func(error)
}

// Copier copies locations to others, each in the background: a copy that is slow or fails delays
// nothing else.
//
// A copy is due when the daemon starts, after a change in its location (Changed), and an hour after
// its last run. A run that failed is retried after a minute, and then after twice the time each, at
// most after half an hour; changes shorten that only when the run copied what it could and left
// some snapshots behind (ErrLeftBehind). A run that an operator stopped is not
// retried before the copy is due again.
type Copier struct {
	CopierOptions
	pairs []*copyPair
}

// copyPair is the state of one copy. Only one goroutine uses it, but for changed.
type copyPair struct {
	Copy
	changed chan struct{} // holds one when the location has changed
	tries   int           // runs that failed since one succeeded
}

// NewCopier makes a copier.
func NewCopier(o CopierOptions) *Copier {
	r := &Copier{CopierOptions: o}
	for _, c := range o.Copies {
		r.pairs = append(r.pairs, &copyPair{Copy: c, changed: make(chan struct{}, 1)})
	}
	return r
}

// Changed reports that a location has something new: a snapshot, the result of a verify, or the
// record of a prune. It returns at once.
func (r *Copier) Changed(location string) {
	for _, p := range r.pairs {
		if p.From != location {
			continue
		}
		select {
		case p.changed <- struct{}{}:
		default: // the next run finds it
		}
	}
}

// Run copies until the context ends, which must also end the runs. It returns once they have ended.
func (r *Copier) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range r.pairs {
		all.Go(func() {
			again(ctx, r.Log, r.Panicked, func() { r.follow(ctx, p) })
		})
	}
	all.Wait()
}

// follow runs one copy again and again.
func (r *Copier) follow(ctx context.Context, p *copyPair) {
	for ctx.Err() == nil {
		least, most := r.run(ctx, p)
		if retry.Sleep(ctx, least) != nil {
			return
		}
		t := time.NewTimer(most - least)
		select {
		case <-ctx.Done():
		case <-p.changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// run makes one run, and returns how long to wait for the next one: at least, and at most if
// nothing changes.
func (r *Copier) run(ctx context.Context, p *copyPair) (least, most time.Duration) {
	log := r.Log.With("location", p.From, "copy", p.To)
	run, err := r.Begin.BeginCopy(ctx, p.Copy)
	if err == nil && run == nil {
		return copyPause, copyPause
	}
	stopped := false
	if err == nil {
		err, stopped = run.Wait(), run.Stopped()
	}
	switch {
	case ctx.Err() != nil:
		return 0, 0
	case stopped:
		p.tries = 0
	case err != nil:
		if errors.Is(err, ErrLeftBehind) {
			r.copied(p.To)
		}
		p.tries++
		wait := retry.Backoff{First: firstRetry, Longest: copyEvery / 2, Jitter: true}.Wait(p.tries)
		log.Error("copy of a store failed", "error", err, "retry", wait)
		if errors.Is(err, ErrLeftBehind) { // what is new can be copied all the same
			return min(copyPause, wait), wait
		}
		return wait, wait
	default:
		p.tries = 0
		r.copied(p.To)
	}
	return copyPause, copyEvery
}

// copied follows a run that copied what it could.
func (r *Copier) copied(to string) {
	r.Changed(to) // it may have a copy of its own
	r.prune(to)
}

// prune begins a prune of a copy, unless one began within the hour.
func (r *Copier) prune(location string) {
	if !r.Prune(location) {
		return
	}
	began, running := r.Begin.LastPrune(location)
	if running || !began.IsZero() && time.Since(began) < pruneEvery {
		return
	}
	r.Begin.BeginPrune("", location)
}
