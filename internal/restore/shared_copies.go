package restore

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// This file keeps a shared object from work on copies of other operations. A ClusterResourceSet
// acts on each Cluster of its namespace that it selects, also on a paused one that another
// operation has made. Where two operations have copies in one namespace, the one that ends last
// releases what both share (I1). A copy that is made right after the look is not seen.

// actsOnCopyError means that a shared object stays paused since it acts on a paused Cluster that is
// not of this operation.
type actsOnCopyError struct{ Unit string }

func (e *actsOnCopyError) Error() string {
	return "it stays paused: it acts on workload cluster " + e.Unit + ", which another operation, " +
		"or a fence, has paused on this management cluster"
}

// Hint says what the operator can do.
func (e *actsOnCopyError) Hint() string {
	return "end the operation, or the fence, that has paused " + e.Unit + " there, then resume " +
		"this operation"
}

func actsOnCopy(err error) bool {
	_, is := errors.AsType[*actsOnCopyError](err)
	return is
}

// checkCopies returns an *actsOnCopyError when a shared object acts on a Cluster of the target that
// we have paused, and that is not of this operation: waitsFor decides about its own.
func (r *run) checkCopies(ctx context.Context, o Object, own map[string]bool) error {
	path := r.Rows.Row(o.GroupKind()).ClusterSelector
	clusters, served := kube.FindKind(r.Kinds, capi.Cluster)
	if path == "" || !served {
		return nil
	}
	live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
		return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	raw, err := live.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode %s: %w", o.Ref, err)
	}
	selector := clusterSelector(raw, path)
	err = kube.Retry(ctx, func() error {
		_, err := r.Reader.List(ctx, clusters, kube.ListOptions{Namespace: o.Namespace},
			func(raw []byte) error {
				cluster := &unstructured.Unstructured{}
				if err := cluster.UnmarshalJSON(raw); err != nil {
					return fmt.Errorf("decode Cluster: %w", jsonError(err))
				}
				unit := object.Key{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}.String()
				if !own[unit] && isPaused(cluster) && capi.PausedByUs(cluster.Object) &&
					selector.Matches(labels.Set(cluster.GetLabels())) {
					return &actsOnCopyError{unit}
				}
				return nil
			})
		return err
	})
	if err != nil && !actsOnCopy(err) {
		return fmt.Errorf("list the workload clusters of the target: %w", err)
	}
	return err
}

// ownUnits returns the units of the operation that may be on the target: those of its plan that
// pre-flight did not block, and those whose states released has.
func (r *run) ownUnits(released map[string]bool) map[string]bool {
	own := map[string]bool{}
	for _, u := range r.Plan.Units {
		own[u.Name] = !r.shared.preflight[u.Name]
	}
	for unit := range released {
		own[unit] = true
	}
	return own
}
