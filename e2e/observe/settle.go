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
func Await(ctx context.Context, kubeconfig string, problems func(Objects) []string,
	namespaces ...string) (Objects, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	for {
		objects, err := v.inventory(ctx, namespaces)
		if err != nil {
			return nil, err
		}
		left := problems(objects)
		if len(left) == 0 {
			return objects, nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return objects, fmt.Errorf("wait: %w; %d are left, the first: %s", err, len(left), left[0])
		}
	}
}

// Readiness finds out when all control planes became Ready to stay so.
//
// To see them Ready once proves nothing: a restored status says so, and the
// controllers overwrite it when they begin to work.
type Readiness struct {
	cancel context.CancelFunc
	done   chan struct{}
	since  time.Time // zero while some are not Ready
	left   string    // one that is not
}

// StartReadiness looks at the control planes that before has, on another
// management cluster, all the time. The caller must Stop it.
func StartReadiness(ctx context.Context, kubeconfig string, before Objects) (*Readiness, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Readiness{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for {
			// No more than is needed: it runs beside what is measured.
			objects, err := v.inventoryOf(ctx, func(k kind) bool {
				return k.Group == controlPlaneGroup && k.Kind == "KubeadmControlPlane"
			}, nil)
			if ctx.Err() != nil {
				return
			}
			r.take(ControlPlanesReady(before, objects), err)
			if sleep(ctx, 500*time.Millisecond) != nil {
				return
			}
		}
	}()
	return r, nil
}

func (r *Readiness) take(problems []string, err error) {
	switch {
	case err != nil:
		r.since, r.left = time.Time{}, err.Error()
	case len(problems) > 0:
		r.since, r.left = time.Time{}, problems[0]
	case r.since.IsZero():
		r.since = time.Now()
	}
}

// Stop returns since when all control planes have been Ready, and an error when
// they are not.
func (r *Readiness) Stop() (time.Time, error) {
	r.cancel()
	<-r.done
	if r.since.IsZero() {
		return r.since, fmt.Errorf("look for control planes: not all are Ready: %s", r.left)
	}
	return r.since, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
