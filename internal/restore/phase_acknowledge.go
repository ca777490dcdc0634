package restore

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/retry"
)

// waitAcknowledged waits until the target's controllers have seen every object of the unit and
// acknowledge its pause. A controller that lags behind its watch would, once the pause ends, act on
// the Machines that it can see: too few.
func (r *run) waitAcknowledged(ctx context.Context, u Unit) error {
	var publish []Object
	for _, o := range early(u.Objects) {
		source, err := decodeObject(r.Rows, r.Contents, o.Ref)
		if err != nil {
			return err
		}
		if capi.PublishesPause(source.Object) {
			publish = append(publish, o)
		}
	}
	err := r.wait(ctx, publish, "the target's controllers to acknowledge the pause",
		func(_ Object, source, live *unstructured.Unstructured) string {
			return capi.NotAcknowledged(live.Object, "True")
		})
	if err != nil {
		return err
	}
	// for controllers that publish nothing, and for the caches of those that do
	return retry.Sleep(ctx, r.Tuning.Settle)
}

// pausedByUs reports whether the unit's Cluster carries a pause that an operation set, which the
// release ends.
func (r *run) pausedByUs(ctx context.Context, u Unit) (bool, error) {
	for _, o := range early(u.Objects) {
		if o.GroupKind() != capi.Cluster {
			continue
		}
		live, err := request(ctx, o.GroupKind(), func() (*unstructured.Unstructured, error) {
			return r.Reader.Get(ctx, r.kinds[o.GroupKind()], o.Namespace, o.Name)
		})
		if err != nil {
			return false, fmt.Errorf("%s: %w", o.Ref, err)
		}
		return capi.PausedByUs(live.Object), nil
	}
	return false, nil
}
