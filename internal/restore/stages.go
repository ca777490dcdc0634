package restore

import (
	"context"
	"errors"
	"sync"
)

// errNotReleased ends a unit that is copied and stays paused, because the run stopped before its
// release. It is no failure of the unit.
var errNotReleased = errors.New("the run stopped before its release")

// stages divides releases into stages of 1, 2, 4 units and so on, up to a limit. A stage begins
// when the post-flights of all units of the one before have ended. What is wrong with the
// controllers of the target then shows on few workload clusters. It may be used concurrently.
type stages struct {
	limit int

	mu              sync.Mutex
	size            int           // of the present stage
	admitted, ended int           // units of the present stage
	changed         chan struct{} // closed when the next stage begins, or the run stops
	stopped         bool
}

// newStages returns stages that begin with one unit of at most limit, or with limit when together
// is set.
func newStages(limit int, together bool) *stages {
	s := &stages{limit: limit, size: 1, changed: make(chan struct{})}
	if together {
		s.size = limit
	}
	return s
}

// enter waits until the present stage has a place for one more unit. Errors: errNotReleased when
// the run stopped; the cause of ctx.
func (s *stages) enter(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return errNotReleased
		}
		if s.admitted < s.size {
			s.admitted++
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

// leave ends a unit that has entered. The last one of a full stage begins the next one.
func (s *stages) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	if s.ended < s.size || s.stopped {
		return
	}
	s.size, s.admitted, s.ended = min(2*s.size, s.limit), 0, 0
	close(s.changed)
	s.changed = make(chan struct{})
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
