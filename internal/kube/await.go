package kube

import (
	"cmp"
	"context"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// longestPoll is the longest time between two polls of a wait: they do not delay the controllers of
// a busy API server.
const longestPoll = 2 * time.Second

// Waiting is a wait for objects to come to a state.
type Waiting[T any] struct {
	Objects []T
	// Judge returns the objects that have not come to the state, and says of one of them why, for
	// people. known are states of some of them that were just read, or shown; it reads the others.
	Judge func(ctx context.Context, objects []T, known map[object.Ref][]byte) (left []T, why string,
		err error)
	// Limit is how long it waits at most.
	Limit time.Duration
	// Longest is the longest time between two polls; 0 means 2 s. It is 2 s in any case while watches
	// show all objects that are left.
	Longest time.Duration

	// Followed shows objects, of which one that has changed is judged at once; nil follows nothing.
	Followed *Followed
	// Ref identifies an object; only with Followed.
	Ref func(T) object.Ref
	// Fresh: the first poll comes at once. Otherwise what Followed has counts at first, if watches
	// show all objects.
	Fresh bool

	left []T
	why  string
	seen map[object.Ref]string // the versions that were judged; "" of what is not known, or gone
}

// Await waits, and returns the objects that are left, and why one of them is. Without any left, all
// have come to the state. Errors: those of Judge; the cause of ctx.
func (w *Waiting[T]) Await(ctx context.Context) (left []T, why string, err error) {
	w.left, w.seen = w.Objects, map[object.Ref]string{}
	wake := func() <-chan struct{} { return nil }
	if w.Followed.following() {
		wake = w.Followed.wake
	}
	longest := cmp.Or(w.Longest, longestPoll)
	b := retry.Backoff{First: longest / 10, Longest: longest, Jitter: true}
	first := !w.Fresh && w.live()
	_, err = retry.PollOrWake(ctx, func(polls int) time.Duration {
		if w.live() {
			return longestPoll
		}
		return b.Wait(polls)
	}, w.Limit, wake, func(ctx context.Context, woken bool) (bool, error) {
		if woken || first {
			first = false
			if err := w.judgeNews(ctx); err != nil || woken || w.live() {
				return len(w.left) == 0, err
			}
		}
		left, why, err := w.Judge(ctx, w.left, nil)
		w.left, w.why = left, why
		return len(left) == 0, err
	})
	return w.left, w.why, err
}

// live reports whether watches show all objects that are left.
func (w *Waiting[T]) live() bool {
	if !w.Followed.following() {
		return false
	}
	var refs []object.Ref
	for _, o := range w.left {
		refs = append(refs, w.Ref(o))
	}
	return w.Followed.shows(refs)
}

// judgeNews judges the objects of which a state is known that was not judged yet. It has those read
// that may be gone, and it does so once. The others have not come to the state.
func (w *Waiting[T]) judgeNews(ctx context.Context) error {
	known := map[object.Ref][]byte{}
	var news, same []T
	w.Followed.mu.Lock()
	for _, o := range w.left {
		ref := w.Ref(o)
		s, followed := w.Followed.states[ref]
		if version, judged := w.seen[ref]; !followed || judged && version == s.version {
			same = append(same, o)
			continue
		}
		w.seen[ref] = s.version
		news = append(news, o)
		if s.raw != nil {
			known[ref] = s.raw
		}
	}
	w.Followed.mu.Unlock()
	if len(news) == 0 {
		return nil
	}
	left, why, err := w.Judge(ctx, news, known)
	if w.left = append(same, left...); why != "" {
		w.why = why
	}
	return err
}
