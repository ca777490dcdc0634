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
		if pausedCondition(source) != nil {
			publish = append(publish, o)
		}
	}
	err := r.wait(ctx, publish, "the target's controllers to acknowledge the pause",
		func(_ Object, source, live *unstructured.Unstructured) string {
			return NotAcknowledged(live, "True")
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

// PublishesPause reports whether an object's controller publishes the condition Paused.
func PublishesPause(u *unstructured.Unstructured) bool { return pausedCondition(u) != nil }

// TopologyNotPaused says why the topology controller, which heeds the pause of a Cluster with a
// class by itself, has not acknowledged it; "" when it has, or when there is no class.
func TopologyNotPaused(cluster *unstructured.Unstructured) string {
	if _, classy, _ := unstructured.NestedMap(cluster.Object, "spec", "topology"); !classy {
		return ""
	}
	c := condition(sliceOf(cluster.Object, "status", "conditions"), "TopologyReconciled")
	if c == nil || c["reason"] == conditionPaused {
		return ""
	}
	return fmt.Sprintf("TopologyReconciled has reason %v", c["reason"])
}

func pausedCondition(u *unstructured.Unstructured) map[string]any {
	for _, path := range [][]string{{"status", "conditions"}, {"status", "v1beta2", "conditions"}} {
		if c := condition(sliceOf(u.Object, path...), conditionPaused); c != nil {
			return c
		}
	}
	return nil
}

// NotAcknowledged says why the Paused condition of live does not show status at its current
// generation; "" when it does.
func NotAcknowledged(live *unstructured.Unstructured, status string) string {
	c := pausedCondition(live)
	if c == nil {
		return "it has no Paused condition yet"
	}
	if c["status"] != status {
		return fmt.Sprintf("Paused is %v", c["status"])
	}
	if observed, ok := c["observedGeneration"].(int64); ok && observed < live.GetGeneration() {
		return fmt.Sprintf("Paused was observed at generation %d of %d", observed, live.GetGeneration())
	}
	return ""
}
