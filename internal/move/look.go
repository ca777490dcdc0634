package move

import (
	"context"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// view is what a look at the source saw.
type view struct {
	began    time.Time
	graph    *graph.Graph
	contents *snapshot.Contents
	source   *snapshot.Snapshot
	done     chan struct{}
	err      error
}

// looks shares captures of the source: many units ask at the same time for one that began after a
// moment of theirs.
type looks struct {
	look func(ctx context.Context) (*snapshot.Snapshot, *snapshot.Contents, error)
	seen func(g *graph.Graph) // may be nil; called before anybody else has the graph

	mu     sync.Mutex
	latest *view // finished or under way
}

// after returns a look at the source that began after t.
func (l *looks) after(ctx context.Context, t time.Time) (*view, error) {
	l.mu.Lock()
	v := l.latest
	mine := v == nil || v.began.Before(t) || v.finished() && v.err != nil
	if mine {
		v = &view{began: time.Now(), done: make(chan struct{})}
		l.latest = v
	}
	l.mu.Unlock()
	if mine {
		v.source, v.contents, v.err = l.look(ctx)
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

func (v *view) finished() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}
