package move

import (
	"context"
	"sync"
	"time"
)

// meeting waits for all units of a batch to come to a point. So none is paused while another one
// still waits for its slowest controller.
type meeting struct {
	mu     sync.Mutex
	absent map[string]bool
	all    chan struct{} // closed once all have come, or left
	at     time.Time     // of that
}

func newMeeting(units []string) *meeting {
	t := &meeting{absent: map[string]bool{}, all: make(chan struct{})}
	for _, unit := range units {
		t.absent[unit] = true
	}
	return t
}

// wait waits for all units that have not left. It may be called again.
func (t *meeting) wait(ctx context.Context, unit string) error {
	t.leave(unit)
	return t.over(ctx)
}

// over waits for all units that have not left, without being one of them.
func (t *meeting) over(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isOver reports whether all units have come, or left.
func (t *meeting) isOver() bool {
	select {
	case <-t.all:
		return true
	default:
		return false
	}
}

// end takes all units off the list.
func (t *meeting) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.absent)
	t.close()
}

// since returns when a meeting that is over was over, so that its units share a capture.
func (t *meeting) since() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// leave takes a unit off the list of those that the others wait for.
func (t *meeting) leave(unit string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.absent, unit)
	t.close()
}

// close closes all, unless somebody is absent.
func (t *meeting) close() {
	if len(t.absent) == 0 && t.at.IsZero() {
		t.at = time.Now()
		close(t.all)
	}
}
