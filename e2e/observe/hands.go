package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// hold is what a management cluster has to do with a workload cluster.
type hold string

const (
	away   hold = "away"    // it has no such Cluster
	paused hold = "paused"  // its controllers let it alone
	inHand hold = "in hand" // its controllers are at work on it
)

// change is a moment in which a management cluster changed its hold.
type change struct {
	time           time.Time
	workload, mgmt string
	from, to       hold
}

// Hands sees at every moment which management clusters have a workload cluster
// in hand: never two may (invariant I1). Each is watched by itself, so what it
// sees of two of them is as far from their order as the two watches differ in
// their delay, which is milliseconds on one machine.
type Hands struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	holds   map[string]map[string]hold // by workload cluster, by management cluster
	changes []change
	twice   []string
	err     error
}

// WatchHands starts Hands over management clusters, name to kubeconfig. The caller must Stop it.
func WatchHands(ctx context.Context, mgmts map[string]string) (*Hands, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &Hands{cancel: cancel, holds: map[string]map[string]hold{}}
	for name, kubeconfig := range mgmts {
		if err := h.follow(ctx, name, kubeconfig); err != nil {
			_ = h.Stop()
			return nil, fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return h, nil
}

func (h *Hands) follow(ctx context.Context, mgmt, kubeconfig string) error {
	v, err := newView(kubeconfig)
	if err != nil {
		return err
	}
	kinds, err := v.kinds(ctx)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(kinds, func(k kind) bool {
		return k.Group == coreGroup &&
			k.Kind == "Cluster"
	})
	if index < 0 {
		return errors.New("the kind Cluster is not installed")
	}
	list, err := v.client.Resource(kinds[index].resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	for i := range list.Items {
		h.take(mgmt, watch.Added, &list.Items[i])
	}
	return v.follow(ctx, &h.done, kinds[index], list.GetResourceVersion(), func(event watch.EventType,
		o *unstructured.Unstructured) {
		h.take(mgmt, event, o)
	}, h.fail)
}

func (h *Hands) take(mgmt string, event watch.EventType, o *unstructured.Unstructured) {
	to := inHand
	switch {
	case event == watch.Bookmark:
		return
	case event == watch.Deleted:
		to = away
	case Paused(o):
		to = paused
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	workload := o.GetNamespace() + "/" + o.GetName()
	holds := h.holds[workload]
	if holds == nil {
		holds = map[string]hold{}
		h.holds[workload] = holds
	}
	from, known := holds[mgmt]
	if !known {
		from = away
	}
	if holds[mgmt] = to; from == to {
		return
	}
	h.changes = append(h.changes, change{time: time.Now(), workload: workload, mgmt: mgmt, from: from,
		to: to})
	for _, other := range slices.Sorted(maps.Keys(holds)) {
		if to == inHand && other != mgmt && holds[other] == inHand {
			h.twice = append(h.twice, fmt.Sprintf("%s was in the hands of %s and %s at once", workload,
				other, mgmt))
		}
	}
}

func (h *Hands) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = errors.Join(h.err, err)
}

// Stop ends the watching. An error means that something may have been missed.
func (h *Hands) Stop() error {
	h.cancel()
	h.done.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Twice says which workload clusters two management clusters had in hand at once.
func (h *Hands) Twice() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.twice)
}

// Pauses are the times from the moment in which source let go of a workload
// cluster to the one in which target took it up, the last ones if there are
// several, by namespace/name. Who was never in hand has none.
func (h *Hands) Pauses(source, target string) map[string]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	pauses, since := map[string]time.Duration{}, map[string]time.Time{}
	for _, c := range h.changes {
		if begun, ok := since[c.workload]; ok && c.mgmt == target && c.to == inHand {
			pauses[c.workload] = c.time.Sub(begun)
			delete(since, c.workload)
		}
		if c.mgmt == source && c.from == inHand {
			since[c.workload] = c.time
		}
	}
	return pauses
}
