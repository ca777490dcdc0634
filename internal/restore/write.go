package restore

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// Writer creates and changes objects of the target.
type Writer interface {
	Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
		*unstructured.Unstructured, error)
}

// checkOurs: only what carries the mark of this operation, or whose UID is journaled, may be
// changed.
func (r *run) checkOurs(ref object.Ref, live *unstructured.Unstructured) error {
	known := r.uid(ref)
	if known == string(live.GetUID()) || known == "" && r.isMarked(live) {
		return nil
	}
	return &notOwnedError{ref}
}

// converge repeats a write to live until it succeeds. Controllers of the target touch objects
// within milliseconds, so the resourceVersion is often stale: then it reads live again.
func (r *run) converge(ctx context.Context, k kube.Kind, live *unstructured.Unstructured,
	write func(live *unstructured.Unstructured) (*unstructured.Unstructured, error)) (
	*unstructured.Unstructured, error) {
	uid := live.GetUID()
	stale := false
	return request(ctx, k.GroupKind, func() (*unstructured.Unstructured, error) {
		if stale {
			newer, err := r.Reader.Get(ctx, k, live.GetNamespace(), live.GetName())
			if err != nil {
				return nil, err
			}
			if newer.GetUID() != uid || newer.GetDeletionTimestamp() != nil {
				return nil, &deletedError{}
			}
			live = newer
			// What another host has written since, which has taken the operation over, is not ours.
			if err := r.Journal.Alive(ctx); err != nil {
				return nil, err
			}
		}
		stale = true // whatever comes back, an answer may have been lost
		return write(live)
	})
}

// change writes what fn changes in an object of ours. It writes nothing when fn changes nothing, or
// when another host has taken the operation over.
func (r *run) change(ctx context.Context, o Object, fn func(live *unstructured.Unstructured) (
	changed bool)) error {
	k := r.kinds[o.GroupKind()]
	_, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		live, err := r.Reader.Get(ctx, k, o.Namespace, o.Name)
		if err != nil {
			return nil, err
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, &deletedError{}
		}
		if err := r.checkOurs(o.Ref, live); err != nil {
			return nil, err
		}
		if err := r.checkLock(ctx, o.Ref, live); err != nil {
			return nil, err
		}
		if !fn(live) {
			return live, nil
		}
		// After the read: what the other host writes after this makes the write fail.
		if err := r.Journal.Alive(ctx); err != nil {
			return nil, err
		}
		return r.Writer.Update(ctx, k, live)
	})
	return err
}

// lockHolder returns the operation that moves an object away from here, by its lock, and whether
// one does.
func (r *run) lockHolder(live *unstructured.Unstructured) (operation string, locked bool) {
	operation, _, locked = strings.Cut(live.GetAnnotations()[annotationOperation], "/")
	return operation, locked && operation != r.Operation
}

// checkLock returns an *OperationAtWorkError when a move away from here works on an object. The
// Cluster of a unit is locked first and unlocked last: where it has no lock, those of other objects
// were left behind.
func (r *run) checkLock(ctx context.Context, ref object.Ref,
	live *unstructured.Unstructured) error {
	holder, locked := r.lockHolder(live)
	if !locked {
		return nil
	}
	unit, err := object.ParseKey(r.unitOf[ref])
	if err != nil || ref.GroupKind() == capi.Cluster { // what units share has no Cluster
		return &OperationAtWorkError{holder}
	}
	cluster, err := r.Reader.Get(ctx, r.kinds[capi.Cluster], unit.Namespace, unit.Name)
	if apierrors.IsNotFound(err) {
		return &OperationAtWorkError{holder}
	}
	if err != nil {
		return err
	}
	if holder, locked = r.lockHolder(cluster); locked {
		return &OperationAtWorkError{holder}
	}
	return nil
}

// request sends a request, and again while its failure may pass (kube.Retry), unless the limit of
// ctx has passed. Its errors hold no values of Secrets.
func request(ctx context.Context, gk object.GroupKind, send func() (*unstructured.Unstructured,
	error)) (obj *unstructured.Unstructured, err error) {
	err = kube.Retry(ctx, func() (err error) {
		if err = pastLimit(ctx); err != nil {
			return err
		}
		obj, err = send()
		return err
	})
	if err != nil {
		err = kube.SafeError(gk, err)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = &terminatingError{err}
		}
		return nil, err
	}
	return obj, nil
}
