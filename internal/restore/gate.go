package restore

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// notReadyError says that an object must not be released.
type notReadyError struct{ Why string }

func (e *notReadyError) Error() string {
	return "it must not be released, since it is not as it was on the source: " + e.Why
}

// Hint says what to do next.
func (e *notReadyError) Hint() string {
	return "by its status its controller decides whether it writes the disk of a machine: do not " +
		"remove its pause; find out who changed it, write the status of the snapshot back to its " +
		"status subresource by hand, then resume the operation"
}

func isNotReady(err error) bool {
	_, is := errors.AsType[*notReadyError](err)
	return is
}

// checkReady reads the objects of a unit that its release asks for, and returns a *notReadyError for
// one that must not be released. It changes nothing.
func (r *run) checkReady(ctx context.Context, u Unit) error {
	var gated []Object
	for _, o := range u.Objects {
		if o.Action != Skip && r.Rows.Row(o.GroupKind()).Pause.Gate() != nil {
			gated = append(gated, o)
		}
	}
	return r.each(gated, func(o Object) error { return r.checkObjectReady(ctx, o) })
}

// checkObjectReady is checkReady of one object.
func (r *run) checkObjectReady(ctx context.Context, o Object) error {
	if r.Rows.Row(o.GroupKind()).Pause.Gate() == nil {
		return nil
	}
	ready, err := r.readiness(o)
	if err != nil {
		return err
	}
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
	})
	if err != nil {
		return err
	}
	return ready(live)
}

// readiness returns a function that returns a *notReadyError for a live copy that must not be
// released: it does not have the status of the snapshot or, where the contents of the snapshot are
// not at hand, the one that it was created with.
func (r *run) readiness(o Object) (func(live *unstructured.Unstructured) error, error) {
	gate := r.Rows.Row(o.GroupKind()).Pause.Gate()
	if gate == nil {
		return func(*unstructured.Unstructured) error { return nil }, nil
	}
	var was map[string]any
	if r.Contents != nil {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return nil, err
		}
		was = source.Object
	}
	return func(live *unstructured.Unstructured) error {
		if why := gate.Unready(was, live.Object); why != "" {
			return &notReadyError{why}
		}
		return nil
	}, nil
}
