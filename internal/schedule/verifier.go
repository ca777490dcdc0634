package schedule

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/store"
)

// verifyRetry is when a verify that did not come to a result is retried, and a location that did
// not answer is listed again: a store is rarely away for long.
const verifyRetry = 10 * time.Minute

// VerifyOptions say how the newest snapshot of each source in each location is verified. The zero
// value verifies nothing.
type VerifyOptions struct {
	// Every is how often, at Level.
	Every time.Duration
	Level store.VerifyLevel
	// FullEvery is how often at level full, instead of Level; 0 for never.
	FullEvery time.Duration
	// Identity returns the text of an identity file, for levels above structure; the text is not
	// retained. nil where no store is encrypted, or where the level is structure alone. No request
	// is served with it: access to the API does not give access to the content of snapshots.
	Identity func() ([]byte, error)
}

// VerifyRequest is a verify of the newest snapshot of each scope of a source.
type VerifyRequest struct {
	Location string
	Source   string // UID
	Level    store.VerifyLevel
	Identity []byte
}

// VerifyRun is a verify that was begun. Its beginner waits for it.
type VerifyRun interface {
	// Operation returns the operation as it was when the run began: the first one of several.
	Operation() catalog.Operation
	// Wait returns the result, once it is recorded: "" when the verify came to none.
	Wait() (store.VerifyOutcome, error)
	// PassFailed reports, after Wait, that the part of what all snapshots of the source name came
	// to no result. VerifyPass does it again.
	PassFailed() bool
}

// Verifies lists what there is to verify and begins verifies.
type Verifies interface {
	// Sources returns the UIDs of the sources that have snapshots in a location.
	Sources(ctx context.Context, location string) ([]string, error)
	// BeginVerify begins a verify. ctx bounds the beginning, not the run.
	BeginVerify(ctx context.Context, r VerifyRequest) (VerifyRun, error)
	// VerifyPass verifies the next part of what all snapshots of a source name, as a verify by
	// schedule does at its end, and reports whether it came to a result.
	VerifyPass(ctx context.Context, location, source string) bool
	// VerifyKnown reports that a source is verified from now on, and when a verify at this level
	// last found it good; zero when none did.
	VerifyKnown(location, source string, level store.VerifyLevel, lastSuccess time.Time)
}

// VerifyStates records the states of verifies; *catalog.Catalog does.
type VerifyStates interface {
	VerifyState(ctx context.Context, name string) (catalog.VerifyState, error)
	UpdateVerify(ctx context.Context, name string, change func(*catalog.VerifyState)) (
		catalog.VerifyState, error)
}

// Verifier verifies the newest snapshot of each source in each location, one after the other in
// each location.
//
// A source is due when Every has passed since its last verify began, and at once when it was never
// verified. So the verifier makes up once for what was missed while the daemon was down. It lists
// the sources of a location as often as it verifies; NewSnapshot reports new ones in between.
type Verifier struct {
	// Panicked logs and counts a panic; nil to log it only. It is set before Run.
	Panicked func(error)

	options   VerifyOptions
	verifies  Verifies
	states    VerifyStates
	log       *slog.Logger
	locations map[string]*verifiedLocation
}

// verifiedLocation is the state of one location. Only one goroutine uses it.
type verifiedLocation struct {
	name    string
	list    time.Time                 // when the sources are listed again
	sources map[string][]*verifyCycle // by UID
	passes  map[string]failedPass     // by UID
	// sources with a new snapshot; what does not fit is dropped
	changed chan string
}

// failedPass is a part of what all snapshots of a source name that came to no result. A cycle has
// no part to spare: without another try before the next verify it would take a day longer.
type failedPass struct {
	failures int
	due      time.Time
}

// verifyCycle is a level at which a source is verified again and again.
type verifyCycle struct {
	name   string // of its state
	source string
	level  store.VerifyLevel
	every  time.Duration
	state  catalog.VerifyState
	due    time.Time
}

// NewVerifier makes a verifier of these locations.
func NewVerifier(o VerifyOptions, locations []string, v Verifies, states VerifyStates,
	log *slog.Logger) *Verifier {
	r := &Verifier{options: o, verifies: v, states: states, log: log,
		locations: map[string]*verifiedLocation{}}
	for _, l := range locations {
		r.locations[l] = &verifiedLocation{name: l, sources: map[string][]*verifyCycle{},
			passes: map[string]failedPass{}, changed: make(chan string, 16)}
	}
	return r
}

// NewSnapshot reports a new snapshot of a source in a location. It returns at once.
func (v *Verifier) NewSnapshot(location, source string) {
	l := v.locations[location]
	if l == nil {
		return
	}
	select {
	case l.changed <- source:
	default: // the next list finds it
	}
}

// Run verifies until the context ends, which must also end the verifies. It returns once they have
// ended.
func (v *Verifier) Run(ctx context.Context) {
	if v.options.Every <= 0 {
		return
	}
	var all sync.WaitGroup
	for _, l := range v.locations {
		all.Go(func() {
			again(ctx, v.log, v.Panicked, func() { v.runLocation(ctx, l) })
		})
	}
	all.Wait()
}

func (v *Verifier) runLocation(ctx context.Context, l *verifiedLocation) {
	for ctx.Err() == nil {
		wait := v.step(ctx, l)
		t := time.NewTimer(min(wait, longestSleep))
		select {
		case <-ctx.Done():
		case source := <-l.changed:
			v.addSource(ctx, l, source)
		case <-t.C:
		}
		t.Stop()
	}
}

// step does what is due, one thing after the other, and returns how long to sleep.
func (v *Verifier) step(ctx context.Context, l *verifiedLocation) time.Duration {
	if now := time.Now().Round(0); reachedOrAhead(l.list, now, v.options.Every) {
		l.list = now.Add(v.listSources(ctx, l))
	}
	for _, source := range slices.Sorted(maps.Keys(l.sources)) {
		for _, c := range l.sources[source] {
			if ctx.Err() == nil && reachedOrAhead(c.due, time.Now().Round(0), c.every) {
				v.verify(ctx, l, c)
			}
		}
	}
	for _, source := range slices.Sorted(maps.Keys(l.passes)) {
		p := l.passes[source]
		if ctx.Err() == nil && reachedOrAhead(p.due, time.Now().Round(0), v.options.Every) {
			v.passed(l, source, !v.verifies.VerifyPass(ctx, l.name, source))
		}
	}
	next := l.list
	for _, p := range l.passes {
		if p.due.Before(next) {
			next = p.due
		}
	}
	for _, cycles := range l.sources {
		for _, c := range cycles {
			if c.due.Before(next) {
				next = c.due
			}
		}
	}
	return max(0, time.Until(next))
}

// passed remembers whether the part of what all snapshots of a source name has to be verified
// again, and when.
func (v *Verifier) passed(l *verifiedLocation, source string, failed bool) {
	if !failed {
		delete(l.passes, source)
		return
	}
	p := l.passes[source]
	p.failures++
	longest := max(v.options.Every, verifyRetry)
	wait := retry.Backoff{First: verifyRetry, Longest: longest}.Wait(p.failures)
	p.due = time.Now().Round(0).Add(wait)
	l.passes[source] = p
}

// reachedOrAhead reports whether a time that recurs after every is reached, or lies so far ahead
// that the clock was ahead when it was set.
func reachedOrAhead(at, now time.Time, every time.Duration) bool {
	return !at.After(now) || at.After(now.Add(every+clockTolerance))
}

// listSources adds the sources of a location, and returns when to list them again.
func (v *Verifier) listSources(ctx context.Context, l *verifiedLocation) time.Duration {
	sources, err := v.verifies.Sources(ctx, l.name)
	if err != nil {
		// A store that is missing is made by the first snapshot.
		if ctx.Err() == nil && !errors.Is(err, store.ErrStoreMissing) {
			v.log.Warn("list snapshots to verify", "location", l.name, "error", err)
		}
		return min(v.options.Every, verifyRetry)
	}
	for _, source := range sources {
		v.addSource(ctx, l, source)
	}
	return v.options.Every
}

// addSource begins the cycles of a source, unless they have begun.
func (v *Verifier) addSource(ctx context.Context, l *verifiedLocation, source string) {
	if l.sources[source] != nil {
		return
	}
	cycles := v.cycles(l.name + "/" + source)
	for _, c := range cycles {
		var err error
		c.state, err = v.states.VerifyState(ctx, c.name)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			v.log.Error("read state of verify", "location", l.name, "source", source, "error", err)
			return // the next snapshot, or the next list, tries again
		}
		c.source = source
		if now := time.Now().Round(0); c.state.LastRun.IsZero() || c.state.LastRun.After(now) {
			c.due = now
		} else {
			c.due = c.state.LastRun.Add(c.every)
		}
		v.verifies.VerifyKnown(l.name, source, c.level, c.state.LastSuccess)
	}
	l.sources[source] = cycles
}

// cycles returns the cycles of a source. The full one comes first: it stands for the other as well.
func (v *Verifier) cycles(name string) []*verifyCycle {
	var cycles []*verifyCycle
	if v.options.FullEvery > 0 && v.options.Level != store.LevelFull {
		cycles = append(cycles, &verifyCycle{name: name + "/full", level: store.LevelFull,
			every: v.options.FullEvery})
	}
	return append(cycles, &verifyCycle{name: name, level: v.options.Level, every: v.options.Every})
}

// verify verifies the newest snapshot of a source, waits for the end and records it.
func (v *Verifier) verify(ctx context.Context, l *verifiedLocation, c *verifyCycle) {
	began := time.Now().Round(0)
	before := c.state.LastRun
	log := v.log.With("location", l.name, "source", c.source, "level", c.level)
	outcome, err := v.run(ctx, l, c, began)
	if outcome == "" && ctx.Err() != nil {
		// The next daemon makes up for it.
		v.record(c, log, func(s *catalog.VerifyState) { s.LastRun = before })
		return
	}
	if err != nil {
		log.Error("verify found the newest snapshot damaged, or did not come to an end", "result",
			outcome, "error", err)
	}
	// A snapshot without a trusted signature will not get one soon.
	_, untrusted := errors.AsType[*store.TrustError](err)
	retry := outcome == "" && !untrusted
	for _, o := range l.sources[c.source] {
		if o != c && (outcome == "" || c.level != store.LevelFull) {
			continue // this verify says nothing about that level
		}
		if o.due = began.Add(o.every); retry {
			o.due = began.Add(min(o.every, verifyRetry))
		}
		v.record(o, log, func(s *catalog.VerifyState) {
			s.LastRun, s.LastError = began, ""
			if err != nil {
				s.LastError = err.Error()
			}
			if outcome == store.OutcomeOK {
				s.LastSuccess = began
			}
		})
	}
}

// run begins a verify and waits for it.
func (v *Verifier) run(ctx context.Context, l *verifiedLocation, c *verifyCycle,
	began time.Time) (outcome store.VerifyOutcome, err error) {
	request := VerifyRequest{Location: l.name, Source: c.source, Level: c.level}
	if c.level != store.LevelStructure && v.options.Identity != nil {
		if request.Identity, err = v.options.Identity(); err != nil {
			return "", err
		}
	}
	run, err := v.verifies.BeginVerify(ctx, request)
	if err != nil {
		return "", err
	}
	// It is recorded before it ends: a verify that kills the daemon must not be the first thing
	// that the next daemon does.
	v.record(c, v.log, func(s *catalog.VerifyState) {
		s.LastRun, s.LastOperation = began, run.Operation().ID
	})
	outcome, err = run.Wait()
	v.passed(l, c.source, run.PassFailed())
	return outcome, err
}

// record stores a change of the state. When that fails, the change holds until the daemon ends.
func (v *Verifier) record(c *verifyCycle, log *slog.Logger, change func(*catalog.VerifyState)) {
	state, err := v.states.UpdateVerify(context.Background(), c.name, change)
	if err != nil {
		log.Error("record state of verify", "error", err)
		change(&c.state)
		return
	}
	c.state = state
}
