package restore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// WaitError says that objects of one side did not come to a state in time.
type WaitError struct {
	Side  string // "source" or "target"
	What  string
	Left  int
	First string
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("wait for %s: %d objects are left, the first: %s", e.What, e.Left, e.First)
}

// Hint says what to do next.
func (e *WaitError) Hint() string {
	if e.Side == "source" {
		return "read the logs of the source's controllers; then resume the operation, or roll it back"
	}
	return "read the logs of the target's controllers, then resume the operation"
}

// longestPoll is the longest time between two polls of a wait: they do not delay the controllers of
// a busy API server.
const longestPoll = 2 * time.Second

// Wait calls problems with the objects that still have one, until none is left, with at most
// longest between two calls; 0 means longestPoll. first is the problem of one of them, for people.
// Errors: those of problems; *WaitError after limit.
func Wait[T any](ctx context.Context, w WaitError, limit, longest time.Duration, objects []T,
	problems func(ctx context.Context, objects []T) (left []T, first string, err error)) error {
	longest = cmp.Or(longest, longestPoll)
	b := retry.Backoff{First: longest / 10, Longest: longest, Jitter: true}
	done, err := retry.Poll(ctx, b, limit, func(ctx context.Context) (done bool, err error) {
		objects, w.First, err = problems(ctx, objects)
		w.Left = len(objects)
		return w.Left == 0, err
	})
	if err == nil && !done {
		return &w
	}
	return err
}

// wait polls objects of the target until problem finds none with any of them. A missing object is
// a problem too.
func (r *run) wait(ctx context.Context, objects []Object, what string,
	problem func(o Object, source, live *unstructured.Unstructured) string) error {
	var seen kube.Seen
	return Wait(ctx, WaitError{Side: "target", What: what}, r.Tuning.Wait, 0, objects,
		func(ctx context.Context, objects []Object) ([]Object, string, error) {
			return r.problems(ctx, objects, &seen, problem)
		})
}

// Problems of objects that do not come back.
const (
	whyGone     = "it is gone"
	whyDeleting = "it is being deleted"
)

// problemFunc says what is wrong with a live object; "" when nothing is.
type problemFunc func(o Object, source, live *unstructured.Unstructured) string

// problems returns the objects that have a problem, and the text of one of them. None is read older
// than it was seen before; with nil all are read as they are now.
func (r *run) problems(ctx context.Context, objects []Object, seen *kube.Seen,
	find problemFunc) (left []Object, first string, err error) {
	read, err := r.readTogether(ctx, objects, seen)
	if err != nil {
		return objects, "", err
	}
	err = r.eachWithin(r.polls, objects, func(o Object) error {
		why, err := r.problem(ctx, o, read[o.Ref], seen, find)
		if err != nil {
			return err
		}
		if why != "" {
			r.mu.Lock()
			defer r.mu.Unlock()
			left = append(left, o)
			if first == "" {
				first = o.Ref.String() + ": " + why
			}
		}
		return nil
	})
	return left, first, err
}

// problem says what is wrong with an object of the target; "" when nothing is. read is what was
// just read of it; it is read here when that is nil. An object that is missing, or another one, is
// a problem too.
func (r *run) problem(ctx context.Context, o Object, read []byte, seen *kube.Seen,
	find problemFunc) (why string, err error) {
	source, err := decodeObject(r.Rows, r.Contents, o.Ref)
	if err != nil {
		return "", err
	}
	live := &unstructured.Unstructured{}
	if read != nil {
		err = kube.SafeError(o.GroupKind(), live.UnmarshalJSON(read))
	} else {
		live, err = request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			return seen.Get(ctx, r.Reader, r.kinds[o.GroupKind()], o.Ref)
		})
	}
	switch {
	case apierrors.IsNotFound(err):
		return whyGone, nil
	case err != nil:
		return "", err
	case string(live.GetUID()) != r.uid(o.Ref):
		return "it was deleted and created again by somebody else", nil
	case live.GetDeletionTimestamp() != nil:
		return whyDeleting, nil
	}
	return find(o, source, live), nil
}
