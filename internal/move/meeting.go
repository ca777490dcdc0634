package move

import (
	"context"
	"sync"
)

// meeting waits for all units of a batch to come to a point. So none is paused while another one
// still waits for its slowest controller.
type meeting struct {
	mu     sync.Mutex
	absent map[string]bool
	once   sync.Once
	all    chan struct{} // closed once all have come, or left
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

// end takes all units off the list.
func (t *meeting) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.absent)
	t.once.Do(func() { close(t.all) })
}

// leave takes a unit off the list of those that the others wait for.
func (t *meeting) leave(unit string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.absent, unit); len(t.absent) == 0 {
		t.once.Do(func() { close(t.all) })
	}
}
