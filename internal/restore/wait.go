package restore

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// WaitError says what the target's controllers did not do in time.
type WaitError struct {
	What  string
	Left  int
	First string
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("wait for %s: %d objects are left, the first: %s", e.What, e.Left, e.First)
}

// Hint tells the operator what to do.
func (e *WaitError) Hint() string {
	return "look at the logs of the target's controllers, then resume the operation"
}

// wait looks at objects again and again until problem finds none with any of them. A missing object
// is a problem too.
func (r *run) wait(ctx context.Context, objects []Object, what string,
	problem func(o Object, source, live *unstructured.Unstructured) string) error {
	deadline := time.Now().Add(r.Tuning.Wait)
	pause := 100 * time.Millisecond
	for {
		left, first, err := r.look(ctx, objects, problem)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return &WaitError{What: what, Left: len(left), First: first}
		}
		if err := kube.Sleep(ctx, pause); err != nil {
			return err
		}
		objects, pause = left, min(pause*3/2, 2*time.Second)
	}
}

// look returns the objects that have a problem, and the text of one of them.
func (r *run) look(ctx context.Context, objects []Object, problem func(o Object, source,
	live *unstructured.Unstructured) string) (left []Object, first string, err error) {
	err = r.each(objects, func(o Object) error {
		source, err := decodeObject(r.Contents, o.Ref)
		if err != nil {
			return err
		}
		live, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		var why string
		switch {
		case apierrors.IsNotFound(err):
			why = "it is gone"
		case err != nil:
			return err
		case string(live.GetUID()) != r.uid(o.Ref):
			why = "it was deleted and made anew by somebody else"
		case live.GetDeletionTimestamp() != nil:
			why = "it is being deleted"
		default:
			why = problem(o, source, live)
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
