package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// VerifyOptions say how the newest snapshot of each source in each location is verified. The zero
// value verifies nothing.
type VerifyOptions struct {
	// Every is how often, at Level.
	Every time.Duration
	Level store.VerifyLevel
	// FullEvery is how often at level full, in the place of Level; 0 for never.
	FullEvery time.Duration
	// Identity gives the text of an identity file, for levels above structure; it is not kept. nil
	// where no store is encrypted, or the level is structure alone. No request is served with it:
	// whoever can reach the API does not get to read snapshots by that.
	Identity func() ([]byte, error)
}

const (
	// verifyRetry is when a verify that did not come to a result is tried again, and a location
	// that did not answer asked: a store is rarely away for long.
	verifyRetry = 10 * time.Minute
)

// verifyStates records the states of the verifies; the catalog does.
type verifyStates interface {
	VerifyState(ctx context.Context, name string) (catalog.VerifyState, error)
	UpdateVerify(ctx context.Context, name string, change func(*catalog.VerifyState)) (
		catalog.VerifyState, error)
}

// verifier verifies by itself, in each location one snapshot after the other, so that one that is
// due while another is going waits.
//
// It is due when that much time has passed since it last began; for a source that never was
// verified, at once. So what was missed while the daemon was down is made up for, once. What is
// verified is the newest snapshot by then. Which sources there are it asks the store, as often as
// it verifies, and the snapshots of this daemon tell.
type verifier struct {
	VerifyOptions
	sources func(ctx context.Context, location string) ([]string, error)
	begin   func(context.Context, wantedVerify) (*mgmtv1.Operation, error)
	states  verifyStates
	// known is told when a source last was found good, as the catalog remembers.
	known     func(location, source string, level store.VerifyLevel, last time.Time)
	log       *slog.Logger
	locations map[string]*verifiedLocation
}

// verifiedLocation is worked on by one goroutine.
type verifiedLocation struct {
	name    string
	look    time.Time                 // when the store is asked for sources again
	sources map[string][]*verifyCycle // by UID
	// sources that have a new snapshot; holds some, and loses what does not fit
	told chan string
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

func (s *Server) newVerifier(c *catalog.Catalog) *verifier {
	v := &verifier{VerifyOptions: s.cfg.Verify, begin: s.beginVerify, states: c,
		log: s.cfg.Log, locations: map[string]*verifiedLocation{}}
	v.sources = func(ctx context.Context, location string) ([]string, error) {
		st, err := s.openStore(ctx, location, nil)
		if err != nil {
			return nil, err
		}
		return st.Sources(ctx)
	}
	v.known = func(location, source string, level store.VerifyLevel, last time.Time) {
		// else anybody who can write to the store could make series
		if name := sourceName(s.ctx, c, source); name != "" {
			s.metrics.verifySucceeded(location, name, level, last)
		}
	}
	for _, l := range s.cfg.Locations {
		v.add(l.Name)
	}
	return v
}

func (v *verifier) add(location string) {
	v.locations[location] = &verifiedLocation{name: location, sources: map[string][]*verifyCycle{},
		told: make(chan string, 16)}
}

// taken says that a location has a new snapshot of a source. It returns at once.
func (v *verifier) taken(location, source string) {
	select {
	case v.locations[location].told <- source:
	default: // it is found when the store is asked next
	}
}

// run verifies until the context ends, and waits for what it began.
func (v *verifier) run(ctx context.Context) {
	if v.Every <= 0 {
		return
	}
	var all sync.WaitGroup
	for _, l := range v.locations {
		all.Go(func() { v.runLocation(ctx, l) })
	}
	all.Wait()
}

func (v *verifier) runLocation(ctx context.Context, l *verifiedLocation) {
	for ctx.Err() == nil {
		wait := v.step(ctx, l)
		t := time.NewTimer(min(wait, longestSleep))
		select {
		case <-ctx.Done():
		case source := <-l.told:
			v.know(ctx, l, source)
		case <-t.C:
		}
		t.Stop()
	}
}

// step does what is due, one thing after the other, and returns how long to sleep.
func (v *verifier) step(ctx context.Context, l *verifiedLocation) time.Duration {
	if now := time.Now().Round(0); !l.look.After(now) {
		l.look = now.Add(v.ask(ctx, l))
	}
	for _, source := range slices.Sorted(maps.Keys(l.sources)) {
		for _, c := range l.sources[source] {
			if ctx.Err() == nil && !c.due.After(time.Now()) {
				v.verify(ctx, l, c)
			}
		}
	}
	next := l.look
	for _, cycles := range l.sources {
		for _, c := range cycles {
			if c.due.Before(next) {
				next = c.due
			}
		}
	}
	return max(0, time.Until(next))
}

// ask asks the store for its sources, and returns when to ask again.
func (v *verifier) ask(ctx context.Context, l *verifiedLocation) time.Duration {
	sources, err := v.sources(ctx, l.name)
	if err != nil {
		// which the first snapshot makes
		if ctx.Err() == nil && !errors.Is(err, store.ErrStoreMissing) {
			v.log.Warn("cannot look for snapshots to verify", "location", l.name, "error", err)
		}
		return min(v.Every, verifyRetry)
	}
	for _, source := range sources {
		v.know(ctx, l, source)
	}
	return v.Every
}

// know begins to verify the snapshots of a source, unless it does so already.
func (v *verifier) know(ctx context.Context, l *verifiedLocation, source string) {
	if l.sources[source] != nil {
		return
	}
	name := l.name + "/" + source
	// The deeper one comes first: it spares the other.
	var cycles []*verifyCycle
	if v.FullEvery > 0 && v.Level != store.LevelFull {
		cycles = append(cycles, &verifyCycle{name: name + "/full", level: store.LevelFull,
			every: v.FullEvery})
	}
	cycles = append(cycles, &verifyCycle{name: name, level: v.Level, every: v.Every})
	for _, c := range cycles {
		var err error
		c.state, err = v.states.VerifyState(ctx, c.name)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			v.log.Error("read state of verify", "location", l.name, "source", source, "error", err)
			return // the next snapshot, or the next look, tries again
		}
		c.source = source
		if now := time.Now().Round(0); c.state.LastRun.IsZero() || c.state.LastRun.After(now) {
			c.due = now
		} else {
			c.due = c.state.LastRun.Add(c.every)
		}
		v.known(l.name, source, c.level, c.state.LastSuccess)
	}
	l.sources[source] = cycles
}

// verify verifies the newest snapshot of a source and waits for the end.
func (v *verifier) verify(ctx context.Context, l *verifiedLocation, c *verifyCycle) {
	began := time.Now().Round(0)
	before := c.state.LastRun
	log := v.log.With("location", l.name, "source", c.source, "level", c.level)
	outcome, err := v.wait(ctx, l, c, began)
	again := outcome == "" && !as[*store.TrustError](err) // who signed it will not change soon
	if outcome == "" && ctx.Err() != nil {
		// the next daemon makes up for it
		v.remember(c, log, func(s *catalog.VerifyState) { s.LastRun = before })
		return
	}
	if err != nil {
		log.Error("verify found the newest snapshot damaged, or did not come to an end", "result",
			outcome, "error", err)
	}
	for _, o := range l.sources[c.source] {
		if o != c && (outcome == "" || c.level != store.LevelFull) {
			continue // this one says nothing about that one
		}
		if o.due = began.Add(o.every); again {
			o.due = began.Add(min(o.every, verifyRetry))
		}
		v.remember(o, log, func(s *catalog.VerifyState) {
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

// wait begins a verify and waits for it.
func (v *verifier) wait(ctx context.Context, l *verifiedLocation, c *verifyCycle, began time.Time) (
	outcome store.VerifyOutcome, err error) {
	w := wantedVerify{location: l.name, source: c.source, id: latest, level: c.level}
	if c.level != store.LevelStructure && v.Identity != nil {
		if w.identity, err = v.Identity(); err != nil {
			return "", err
		}
	}
	done := make(chan struct{})
	var failed error
	w.ended = func(o store.VerifyOutcome, err error) {
		outcome, failed = o, err
		close(done)
	}
	op, err := v.begin(ctx, w)
	if err != nil {
		return "", err
	}
	// On record before it ends: a verify that kills the daemon must not be the first thing that the
	// next one does.
	v.remember(c, v.log, func(s *catalog.VerifyState) {
		s.LastRun, s.LastOperation = began,
			catalog.OperationID(op.GetId())
	})
	<-done
	return outcome, failed
}

// remember stores the state; where that fails, it is at least known until the daemon ends.
func (v *verifier) remember(c *verifyCycle, log *slog.Logger, change func(*catalog.VerifyState)) {
	state, err := v.states.UpdateVerify(context.Background(), c.name, change)
	if err != nil {
		log.Error("record state of verify", "error", err)
		change(&c.state)
		return
	}
	c.state = state
}
