package move

import (
	"context"
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
}

// captureCache shares captures of the source. Many units ask at the same time for a capture that
// began after some moment: one capture serves all of them.
type captureCache struct {
	capture func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error)
	seen    func(g *graph.Graph) // may be nil; called once per capture, before after returns it

	mu     sync.Mutex
	latest *sourceCapture // finished or under way
}

// after returns a capture of the source that began after t.
func (l *captureCache) after(ctx context.Context, t time.Time) (*sourceCapture, error) {
	l.mu.Lock()
	v := l.latest
	mine := v == nil || v.began.Before(t) || v.finished() && v.err != nil
	if mine {
		v = &sourceCapture{began: time.Now(), done: make(chan struct{})}
		l.latest = v
	}
	l.mu.Unlock()
	if mine {
		v.source, v.contents, v.err = l.capture(ctx)
		if v.err == nil {
			v.graph = v.source.Graph
			if l.seen != nil {
				l.seen(v.graph)
			}
		}
		close(v.done)
		return v, v.err
	}
	select {
	case <-v.done:
		return v, v.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
