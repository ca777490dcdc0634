package restore

import (
	"context"
	"errors"
	"sync"
)

// errNotReleased ends a unit that is copied and stays paused, because the run stopped before its
// release. It is no failure of the unit.
var errNotReleased = errors.New("the run stopped before its release")

// stages limits how many units are released and not yet seen at work: one at first, and one more
// for each unit that was seen at work, up to a limit. So releases come in stages of 1, 2, 4 units
// and so on. What is wrong with the controllers of the target then shows on few workload clusters.
// It may be used concurrently.
type stages struct {
	limit int

	mu      sync.Mutex
	size    int           // units that may be inside
	inside  int           // units that entered and did not leave
	changed chan struct{} // closed when there is a new place, or the run stops
	stopped bool
}

// newStages returns stages that begin with one unit, or with limit when together is set.
func newStages(limit int, together bool) *stages {
	s := &stages{limit: limit, size: 1, changed: make(chan struct{})}
	if together {
		s.size = limit
	}
	return s
}

// enter waits until there is a place for one more unit. Errors: errNotReleased when the run
// stopped; the cause of ctx.
func (s *stages) enter(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return errNotReleased
		}
		if s.inside < s.size {
			s.inside++
			s.mu.Unlock()
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// leave ends a unit that has entered. One that was seen at work makes a place for one more.
func (s *stages) leave(atWork bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside--
	if atWork {
		s.size = min(s.size+1, s.limit)
	}
	if !s.stopped {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// stop lets no further unit enter.
func (s *stages) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.changed)
	}
}

func (s *stages) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}
