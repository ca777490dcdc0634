package move

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// sourceCapture is a capture of the source, finished or under way.
type sourceCapture struct {
	began time.Time
	// namespaces are those that were listed; none when all were.
	namespaces []string
	graph      *graph.Graph
	contents   *snapshot.Contents
	source     *snapshot.Snapshot
	enough     bool
	dropped    bool // its contents were
	done       chan struct{}
	err        error
	// cut off: the context of the caller that captures has ended; the others try again.
	cutOff bool
}

// captureCache shares captures of the source. Many units ask at the same time for a capture that
// began after some moment. No two run at once: those for which the one under way began too early,
// or lists other namespaces, wait for its end, and share the next one.
type captureCache struct {
	// capture lists some namespaces, or all when none is named.
	capture func(ctx context.Context, namespaces []string) (*snapshot.Snapshot, *snapshot.Contents,
		error)
	// prepare makes the graph that is used of that of a capture, whose snapshot has it then, and says
	// whether that is enough (neighbours.complete). It is called once for each. Without it the graph
	// is used.
	prepare func(g *graph.Graph) (used *graph.Graph, enough bool)
	// wide is asked instead when a capture is not enough. It leaves out nothing.
	wide *captureCache

	mu     sync.Mutex
	latest *sourceCapture // finished or under way
	// wanted are the namespaces that those who wait need in the next capture; all: one needs all.
	wanted map[string]bool
	all    bool
}

// capturesOf returns a cache of captures of a side without what narrow leaves out.
func capturesOf(side Mgmt, narrow capture.Narrow) *captureCache {
	return &captureCache{capture: func(ctx context.Context, namespaces []string) (*snapshot.Snapshot,
		*snapshot.Contents, error) {
		return side.capture(ctx, namespaces, narrow)
	}}
}

// finishedCapture returns a capture of a whole source that has come to an end.
func finishedCapture(began time.Time, source *snapshot.Snapshot,
	contents *snapshot.Contents) *sourceCapture {
	v := &sourceCapture{began: began, source: source, contents: contents, done: make(chan struct{})}
	close(v.done)
	return v
}

// add puts a capture of the whole source into the cache, as if the cache had made it.
func (l *captureCache) add(v *sourceCapture) {
	v.source.Graph = v.source.Graph.WithoutRelated()
	l.use(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = v
}

// use sets the graph of a capture.
func (l *captureCache) use(v *sourceCapture) {
	v.graph, v.enough = v.source.Graph, true
	if l.prepare != nil {
		v.graph, v.enough = l.prepare(v.graph)
		v.source.Graph = v.graph
	}
}

// after returns a capture of the whole source that began after t.
func (l *captureCache) after(ctx context.Context, t time.Time) (*sourceCapture, error) {
	return l.of(ctx, t, nil)
}

// of returns a capture that began after t and lists some namespaces, or all when there are none.
// What is seen of other namespaces is what their objects name there.
func (l *captureCache) of(ctx context.Context, t time.Time, namespaces []string) (*sourceCapture,
	error) {
	return l.get(ctx, t, namespaces, true)
}

// graphOf is of for a caller that needs the graph alone: the contents may have been dropped.
func (l *captureCache) graphOf(ctx context.Context, t time.Time, namespaces []string) (
	*sourceCapture, error) {
	return l.get(ctx, t, namespaces, false)
}

func (l *captureCache) get(ctx context.Context, t time.Time, namespaces []string, contents bool) (
	*sourceCapture, error) {
	v, err := l.share(ctx, t, namespaces, contents)
	if err == nil && !v.enough && l.wide != nil {
		return l.wide.get(ctx, t, namespaces, contents)
	}
	return v, err
}

// dropContents frees the contents of a capture, but for those who have it, unless there is a newer
// one. Its graph stays: the next group has its neighbours from there.
func (l *captureCache) dropContents(of *sourceCapture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of != nil && of.finished() && l.latest == of {
		without := *l.latest
		without.contents, without.source, without.dropped = nil, nil, true
		l.latest = &without
	}
}

// dropLatest is dropContents for the latest capture.
func (l *captureCache) dropLatest() {
	l.mu.Lock()
	latest := l.latest
	l.mu.Unlock()
	l.dropContents(latest)
}

// share is get for captures of this cache.
func (l *captureCache) share(ctx context.Context, t time.Time, namespaces []string,
	contents bool) (*sourceCapture, error) {
	for {
		l.mu.Lock()
		v := l.latest
		if v == nil || v.finished() && !v.serves(t, namespaces, contents) {
			l.want(namespaces)
			v = &sourceCapture{began: time.Now(), namespaces: l.next(), done: make(chan struct{})}
			l.latest = v
			l.mu.Unlock()
			l.run(ctx, v)
			return v, v.err
		}
		if !v.finished() && !v.has(t, namespaces) {
			l.want(namespaces)
		}
		l.mu.Unlock()
		select {
		case <-v.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if v.has(t, namespaces) && !v.cutOff {
			return v, v.err
		}
	}
}

// want adds to the next capture.
func (l *captureCache) want(namespaces []string) {
	if l.wanted == nil {
		l.wanted = map[string]bool{}
	}
	for _, namespace := range namespaces {
		l.wanted[namespace] = true
	}
	l.all = l.all || len(namespaces) == 0
}

// next returns what the next capture lists.
func (l *captureCache) next() []string {
	wanted := slices.Sorted(maps.Keys(l.wanted))
	if l.all || len(wanted) > kube.ManyNamespaces {
		wanted = nil
	}
	l.wanted, l.all = nil, false
	return wanted
}

// has reports whether a capture began after t and lists namespaces, or all when there are none.
func (v *sourceCapture) has(t time.Time, namespaces []string) bool {
	if v.began.Before(t) || len(v.namespaces) == 0 {
		return !v.began.Before(t)
	}
	return len(namespaces) > 0 && !slices.ContainsFunc(namespaces,
		func(namespace string) bool { return !slices.Contains(v.namespaces, namespace) })
}

// serves reports whether a finished capture is an answer.
func (v *sourceCapture) serves(t time.Time, namespaces []string, contents bool) bool {
	return v.err == nil && v.has(t, namespaces) && !(contents && v.dropped)
}

// run captures the source. The others that wait for it are released in any case.
func (l *captureCache) run(ctx context.Context, v *sourceCapture) {
	defer close(v.done)
	v.cutOff, v.err = true, errors.New("the capture did not come to an end") // such as a panic
	v.source, v.contents, v.err = l.capture(ctx, v.namespaces)
	v.cutOff = v.err != nil && ctx.Err() != nil
	if v.err == nil {
		l.use(v)
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
