package restore

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
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

// checkReady reads the objects of a unit that its release asks for, and returns a *notReadyError
// for one that must not be released. It changes nothing. What is gone is as in release.
func (r *run) checkReady(ctx context.Context, u Unit) error {
	var gated []Object
	for _, o := range u.Objects {
		if o.Action != Skip && r.Rows.Row(o.GroupKind()).Pause.Gate() != nil {
			gated = append(gated, o)
		}
	}
	if len(gated) == 0 {
		return nil
	}
	begun, err := r.releaseBegun(ctx, u)
	if err != nil {
		return err
	}
	return r.each(gated, func(o Object) error {
		return r.passLost(u, o, begun, r.checkObjectReady(ctx, o, begun))
	})
}

// releaseBegun reports whether the release of a unit was begun, by whatever run.
func (r *run) releaseBegun(ctx context.Context, u Unit) (bool, error) {
	state, err := r.Journal.State(ctx, releaseStep(u.Name))
	return state != "", err
}

// checkObjectReady is checkReady of one object.
func (r *run) checkObjectReady(ctx context.Context, o Object, begun bool) error {
	if r.Rows.Row(o.GroupKind()).Pause.Gate() == nil {
		return nil
	}
	ready, err := r.readiness(o, begun)
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

// changeReady is change for an object that fn releases. One that must not be released stays as it
// is (*notReadyError): what is written has the resourceVersion of what was examined. begun is that
// of readiness.
func (r *run) changeReady(ctx context.Context, o Object, begun bool,
	fn func(live *unstructured.Unstructured) (changed bool)) error {
	ready, err := r.readiness(o, begun)
	if err != nil {
		return err
	}
	var notReady error
	err = r.change(ctx, o, func(live *unstructured.Unstructured) bool {
		notReady = ready(live)
		return notReady == nil && fn(live)
	})
	return cmp.Or(err, notReady)
}

// readiness returns a function that returns a *notReadyError for a live copy that must not be
// released: its status is not that of the snapshot. Where the contents of the snapshot were
// dropped, its status is compared with the annotation that was written together with its pause.
// begun says that the release of the unit had begun, so that controllers may have changed the
// status since. Then the copy may also have the status of that annotation.
func (r *run) readiness(o Object, begun bool) (func(live *unstructured.Unstructured) error, error) {
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
		if begun && !capi.PausedByUs(live.Object) {
			return nil // it is released
		}
		why := gate.Unready(was, live.Object)
		if why == "" || begun && gate.Unready(nil, live.Object) == "" {
			return nil
		}
		return &notReadyError{why}
	}, nil
}
