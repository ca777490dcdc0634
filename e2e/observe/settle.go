package observe

import (
	"context"
	"fmt"
	"time"
)

// Settled returns the Inventory once nothing in it has changed, status
// included, for a few seconds: controllers say that a workload cluster is
// Available before they have written the last counts and conditions.
func Settled(ctx context.Context, kubeconfig string, namespaces ...string) (Objects, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	last, err := v.inventory(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	for {
		if err := sleep(ctx, 4*time.Second); err != nil {
			return nil, fmt.Errorf("wait until objects rest: %w", err)
		}
		objects, err := v.inventory(ctx, namespaces)
		if err != nil {
			return nil, err
		}
		if len(Compare(last, objects, Options{})) == 0 {
			return objects, nil
		}
		last = objects
	}
}

// Await reads the Inventory again and again until problems finds none in it, and
// returns it. When ctx ends first, the error says what was left.
func Await(ctx context.Context, kubeconfig string, problems func(Objects) []string, namespaces ...string) (Objects, error) {
	return await(ctx, kubeconfig, problems, func(kind) bool { return true }, namespaces)
}

// AwaitControlPlanes is Await for ControlPlanesReady, and reads no more than
// that needs: it may run beside what is measured.
func AwaitControlPlanes(ctx context.Context, kubeconfig string, before Objects) error {
	_, err := await(ctx, kubeconfig, func(after Objects) []string { return ControlPlanesReady(before, after) }, func(k kind) bool {
		return k.Group == controlPlaneGroup && k.Kind == "KubeadmControlPlane"
	}, nil)
	return err
}

func await(ctx context.Context, kubeconfig string, problems func(Objects) []string, wanted func(kind) bool, namespaces []string) (Objects, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	for {
		objects, err := v.inventoryOf(ctx, wanted, namespaces)
		if err != nil {
			return nil, err
		}
		left := problems(objects)
		if len(left) == 0 {
			return objects, nil
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return objects, fmt.Errorf("wait: %w; %d are left, the first: %s", err, len(left), left[0])
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
