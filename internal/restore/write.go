package restore

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Writer is what carrying out a plan needs of the target besides reading.
type Writer interface {
	Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
}

// tries bounds the requests for one object: with the back-off of kube.Backoff about a minute of an
// API server that does not answer, and any number of conflicts that matter.
const tries = 16

// checkOurs: only what carries the mark of this operation, or whose UID is journaled, may be
// changed.
func (r *run) checkOurs(ref object.Ref, live *unstructured.Unstructured) error {
	known := r.uid(ref)
	if known == string(live.GetUID()) || known == "" &&
		live.GetAnnotations()[annotationOperation] == r.Operation {
		return nil
	}
	return &StrangerError{ref}
}

// converge writes to live until it works. Controllers of the target touch objects within
// milliseconds, so the resourceVersion of a moment ago is often stale: then it looks again.
func (r *run) converge(ctx context.Context, k kube.Kind, live *unstructured.Unstructured,
	write func(live *unstructured.Unstructured) (*unstructured.Unstructured, error)) (
	*unstructured.Unstructured, error) {
	uid := live.GetUID()
	stale := false
	return retry(ctx, k.GroupKind, func() (*unstructured.Unstructured, error) {
		if stale {
			newer, err := r.Reader.Get(ctx, k, live.GetNamespace(), live.GetName())
			if err != nil {
				return nil, err
			}
			if newer.GetUID() != uid || newer.GetDeletionTimestamp() != nil {
				return nil, &GoneError{}
			}
			live = newer
		}
		stale = true // whatever comes back, an answer may have been lost
		return write(live)
	})
}

// change writes what fn does to an object of ours; nothing when that is nothing.
func (r *run) change(ctx context.Context, o Object, fn func(live *unstructured.Unstructured) (
	changed bool)) error {
	k := r.kinds[o.GroupKind()]
	_, err := retry(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if err != nil {
			return nil, err
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, &GoneError{}
		}
		if err := r.checkOurs(o.Ref, live); err != nil {
			return nil, err
		}
		if holder, _, locked := strings.Cut(live.GetAnnotations()[annotationOperation], "/"); locked &&
			holder != r.Operation {
			return nil, &HeldError{holder} // a move away from here
		}
		if !fn(live) {
			return live, nil
		}
		return r.Writer.Update(ctx, k, live)
	})
	return err
}

// retry sends a request again while its failure may pass: conflicts at once, the rest with
// back-off. A permanent error comes back at once.
func retry(ctx context.Context, gk object.GroupKind, request func() (*unstructured.Unstructured,
	error)) (*unstructured.Unstructured, error) {
	for attempt := 1; ; attempt++ {
		obj, err := request()
		if err == nil {
			return obj, nil
		}
		conflict := apierrors.IsConflict(err)
		if attempt == tries || !conflict && !kube.Transient(err) {
			return nil, &apiError{text: safe(gk, err), err: err}
		}
		if conflict && attempt < 6 {
			continue
		}
		if err := kube.Sleep(ctx, kube.Backoff(attempt, err)); err != nil {
			return nil, err
		}
	}
}

// apiError hides the text of an API error behind a safe one and keeps the error for errors.As.
type apiError struct {
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }

func (e *apiError) Unwrap() error { return e.err }
