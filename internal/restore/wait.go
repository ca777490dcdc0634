package restore

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
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

// Wait waits for objects of one side, and adds what is left to an error. Errors: those of w.Judge;
// *WaitError after w.Limit; the cause of ctx.
func Wait[T any](ctx context.Context, e WaitError, w kube.Waiting[T]) error {
	left, why, err := w.Await(ctx)
	if err == nil && len(left) > 0 {
		e.Left, e.First = len(left), why
		return &e
	}
	return err
}

// wait waits until problem finds none with any of some objects of the target. A missing object is a
// problem too. fresh: it reads them as they are now at first; otherwise what watches show counts.
func (r *run) wait(ctx context.Context, objects []Object, what string, fresh bool,
	problem problemFunc) error {
	f := r.follow(ctx, objects, fresh)
	defer f.Close()
	return Wait(ctx, WaitError{Side: "target", What: what},
		r.waiting(f, objects, r.Tuning.Wait, fresh, problem))
}

// waiting returns a wait of at most limit for objects of the target.
func (r *run) waiting(f *kube.Followed, objects []Object, limit time.Duration, fresh bool,
	problem problemFunc) kube.Waiting[Object] {
	if fresh {
		f.Versions().Forget()
	}
	return kube.Waiting[Object]{Objects: objects, Limit: limit, Followed: f, Fresh: fresh,
		Ref: func(o Object) object.Ref { return o.Ref },
		Judge: func(ctx context.Context, objects []Object, known map[object.Ref][]byte) ([]Object,
			string, error) {
			return r.judge(ctx, objects, known, f, problem)
		}}
}

// Problems of objects that do not come back.
const (
	whyGone     = "it is gone"
	whyDeleting = "it is being deleted"
)

// problemFunc says what is wrong with a live object; "" when nothing is.
type problemFunc func(o Object, source, live *unstructured.Unstructured) string

// problems returns the objects that have a problem, and the text of one of them. None is read older
// than it was read before (f.Versions); with nil all are read as they are now.
func (r *run) problems(ctx context.Context, objects []Object, f *kube.Followed, find problemFunc) (
	left []Object, first string, err error) {
	return r.judge(ctx, objects, nil, f, find)
}

// judge is problems for a caller that knows states of some objects, or nothing: by nil.
func (r *run) judge(ctx context.Context, objects []Object, known map[object.Ref][]byte,
	f *kube.Followed, find problemFunc) (left []Object, first string, err error) {
	if known == nil {
		if known, err = r.readTogether(ctx, objects, f.Versions()); err != nil {
			return objects, "", err
		}
	}
	err = r.eachWithin(r.polls, objects, func(o Object) error {
		why, err := r.problem(ctx, o, known[o.Ref], f, find)
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

// problem says what is wrong with an object of the target; "" when nothing is. read is what is
// known of it; it is read here when that is nil. An object that is missing, or another one, is a
// problem too.
func (r *run) problem(ctx context.Context, o Object, read []byte, f *kube.Followed,
	find problemFunc) (why string, err error) {
	source, err := decodeObject(r.Rows, r.Contents, o.Ref)
	if err != nil {
		return "", err
	}
	live := &unstructured.Unstructured{}
	if read != nil {
		err = kube.SafeError(o.GroupKind(), live.UnmarshalJSON(read))
		f.Note(o.Ref, read)
	} else {
		live, err = request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			return f.Versions().Get(ctx, r.Reader, r.kinds[o.GroupKind()], o.Ref)
		})
		switch {
		case err == nil:
			f.NoteObject(o.Ref, live)
		case apierrors.IsNotFound(err):
			f.NoteGone(o.Ref)
		}
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
