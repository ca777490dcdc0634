package observe

import (
	"context"
	"fmt"
	"time"
)

// StableInventory returns the Inventory once nothing in it, status included, has changed for four
// seconds. Controllers report a workload cluster Available before they have written the last
// replica counts and conditions.
func StableInventory(ctx context.Context, kubeconfig string, namespaces ...string) (Objects,
	error) {
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
			return nil, fmt.Errorf("wait until no object changes: %w", err)
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

// Await reads the Inventory once a second until problems returns none, and returns it. When ctx
// ends first, the error names the number of problems and the first of them.
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
			return objects, fmt.Errorf("wait: %w; %d problems are left, the first: %s", err, len(left),
				left[0])
		}
	}
}

// Readiness measures since when all control planes have been Ready.
//
// Seeing them Ready once proves nothing: a restored status says so, and the controllers overwrite
// it when they begin to work.
type Readiness struct {
	cancel context.CancelFunc
	done   chan struct{}
	since  time.Time // zero while some are not Ready
	left   string    // a control plane that is not Ready
}

// StartReadiness polls the control planes of before on another management cluster. The caller must
// Stop it.
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
			// One kind only: the polls run while the restore is measured.
			objects, err := v.inventoryOf(ctx, func(k kind) bool {
				return k.Group == controlPlaneGroup && k.Kind == "KubeadmControlPlane"
			}, nil)
			if ctx.Err() != nil {
				return
			}
			r.record(ControlPlanesReady(before, objects), err)
			if sleep(ctx, 500*time.Millisecond) != nil {
				return
			}
		}
	}()
	return r, nil
}

func (r *Readiness) record(problems []string, err error) {
	switch {
	case err != nil:
		r.since, r.left = time.Time{}, err.Error()
	case len(problems) > 0:
		r.since, r.left = time.Time{}, problems[0]
	case r.since.IsZero():
		r.since = time.Now()
	}
}

// Stop ends the polls and returns since when all control planes have been Ready. It is an error
// when one of them is not.
func (r *Readiness) Stop() (time.Time, error) {
	r.cancel()
	<-r.done
	if r.since.IsZero() {
		return r.since, fmt.Errorf("check control planes: not all are Ready: %s", r.left)
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
