package move

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// sourceCapture is a capture of the source, finished or under way.
type sourceCapture struct {
	began    time.Time
	graph    *graph.Graph
	contents *snapshot.Contents
	source   *snapshot.Snapshot
	done     chan struct{}
	err      error
	// cut off: the context of the caller that captures has ended; the others try again.
	cutOff bool
}

// captureCache shares captures of the source. Many units ask at the same time for a capture that
// began after some moment. No two run at once: those for which the one under way began too early
// wait for its end, and share the next one.
type captureCache struct {
	capture func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error)
	seen    func(g *graph.Graph) // may be nil; called once per capture, before after returns it

	mu     sync.Mutex
	latest *sourceCapture // finished or under way
}

// after returns a capture of the source that began after t.
func (l *captureCache) after(ctx context.Context, t time.Time) (*sourceCapture, error) {
	for {
		l.mu.Lock()
		v := l.latest
		finished := v == nil || v.finished()
		if finished && (v == nil || v.err != nil || v.began.Before(t)) {
			v = &sourceCapture{began: time.Now(), done: make(chan struct{})}
			l.latest = v
			l.mu.Unlock()
			l.run(ctx, v)
			return v, v.err
		}
		l.mu.Unlock()
		select {
		case <-v.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !v.began.Before(t) && !v.cutOff {
			return v, v.err
		}
	}
}

// run captures the source. The others that wait for it are released in any case.
func (l *captureCache) run(ctx context.Context, v *sourceCapture) {
	defer close(v.done)
	v.cutOff, v.err = true, errors.New("the capture did not come to an end") // such as a panic
	v.source, v.contents, v.err = l.capture(ctx)
	v.cutOff = v.err != nil && ctx.Err() != nil
	if v.err != nil {
		return
	}
	v.graph = v.source.Graph
	if l.seen != nil {
		l.seen(v.graph)
	}
}

func (v *sourceCapture) finished() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}
