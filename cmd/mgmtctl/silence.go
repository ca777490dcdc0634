package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// firstSilence is how long an operation may have no event until that is said: an operator who
	// waits beside it wants to know what it waits for. After that it is said in intervals that double
	// up to longestSilence.
	firstSilence   = 15 * time.Second
	longestSilence = time.Minute
)

// silence says what an operation is at while it has no events, as when its store hangs.
type silence struct {
	say func(format string, args ...any)
	// pausedSince returns since when workload clusters are paused, by name. It may take seconds.
	pausedSince func() map[string]time.Time

	mu    sync.Mutex
	timer *time.Timer
	last  time.Time // of the last event
	wait  time.Duration
	steps []string // those that are begun
}

// listen begins to wait for silence. The caller calls stop at the end.
func (p *program) listen(ctx context.Context, c *connection, id string) *silence {
	s := &silence{say: p.say, pausedSince: func() map[string]time.Time {
		ctx, cancel := context.WithTimeout(ctx, lastWord)
		defer cancel()
		resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: id})
		if err != nil {
			return nil // what is known is said without it
		}
		paused := map[string]time.Time{}
		for unit, since := range resp.GetOperation().GetPausedSince() {
			paused[unit] = since.AsTime()
		}
		return paused
	}}
	s.begin()
	return s
}

func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.wait = time.Now(), firstSilence
	s.timer = time.AfterFunc(s.wait, s.tell)
}

// note takes an event: the silence is over.
func (s *silence) note(e *mgmtv1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.wait = time.Now(), firstSilence
	s.timer.Reset(s.wait)
	if e.GetType() != mgmtv1.EventType_EVENT_TYPE_STEP {
		return
	}
	step := e.GetStep()
	if e.GetUnit() != "" {
		step += " [" + e.GetUnit() + "]"
	}
	s.steps = slices.DeleteFunc(s.steps, func(begun string) bool { return begun == step })
	if state := e.GetStepState(); state == "begun" || state == "undoing" {
		s.steps = append(s.steps, step)
	}
}

// tell says that there was no event, and waits on.
func (s *silence) tell() {
	paused := s.pausedSince()
	s.mu.Lock()
	defer s.mu.Unlock()
	quiet := time.Since(s.last)
	if s.wait == 0 || quiet < firstSilence { // it has ended, or an event came meanwhile
		return
	}
	text := "nothing new for " + duration.HumanDuration(quiet)
	if len(s.steps) > 0 {
		text += "; running: " + some(s.steps)
	}
	if len(paused) > 0 {
		names := make([]string, 0, len(paused))
		for unit, since := range paused {
			names = append(names, fmt.Sprintf("%s for %s", unit, duration.HumanDuration(time.Since(since))))
		}
		slices.SortFunc(names, strings.Compare)
		text += "; paused: " + some(names)
	}
	s.say("%s", text)
	s.wait = min(2*s.wait, longestSilence)
	s.timer.Reset(s.wait)
}

// stop ends it. Nothing is said after that.
func (s *silence) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = 0
	s.timer.Stop()
}

// named is how many names some has.
const named = 3

// some returns the first names of a list, and how many more there are.
func some(list []string) string {
	if more := len(list) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), more)
	}
	return strings.Join(list, ", ")
}
