package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// state says what a management cluster does with a workload cluster.
type state string

const (
	absent      state = "absent"      // it has no such Cluster
	paused      state = "paused"      // it has the Cluster, and its controllers are paused
	reconciling state = "reconciling" // its controllers work on the workload cluster
)

// change is one change of state.
type change struct {
	time           time.Time
	workload, mgmt string
	from, to       state
}

// ReconcilerWatch records which management clusters reconcile each workload cluster. Two must never
// do so at once (invariant I1).
//
// Each management cluster has a watch of its own. The order of events of two management clusters is
// therefore only known up to the difference in delay of their watches, which is milliseconds on one
// machine.
type ReconcilerWatch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	states    map[string]map[string]state // by workload cluster, then by management cluster
	changes   []change
	conflicts []string
	err       error
}

// WatchReconcilers starts a ReconcilerWatch over management clusters, given as name to kubeconfig.
// The caller must Stop it.
func WatchReconcilers(ctx context.Context, mgmts map[string]string) (*ReconcilerWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &ReconcilerWatch{cancel: cancel, states: map[string]map[string]state{}}
	for name, kubeconfig := range mgmts {
		if err := w.follow(ctx, name, kubeconfig); err != nil {
			_ = w.Stop()
			return nil, fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return w, nil
}

func (w *ReconcilerWatch) follow(ctx context.Context, mgmt, kubeconfig string) error {
	v, err := newView(kubeconfig)
	if err != nil {
		return err
	}
	kinds, err := v.kinds(ctx)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(kinds, func(k kind) bool {
		return k.Group == coreGroup && k.Kind == "Cluster"
	})
	if index < 0 {
		return errors.New("the kind Cluster is not installed")
	}
	record := func(event watch.EventType, o *unstructured.Unstructured) { w.record(mgmt, event, o) }
	return v.follow(ctx, &w.done, kinds[index], func(o *unstructured.Unstructured) {
		record(watch.Added, o)
	}, record, w.fail)
}

func (w *ReconcilerWatch) record(mgmt string, event watch.EventType, o *unstructured.Unstructured) {
	to := reconciling
	switch {
	case event == watch.Deleted:
		to = absent
	case Paused(o):
		to = paused
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	workload := o.GetNamespace() + "/" + o.GetName()
	states := w.states[workload]
	if states == nil {
		states = map[string]state{}
		w.states[workload] = states
	}
	from, seen := states[mgmt]
	if !seen {
		from = absent
	}
	if states[mgmt] = to; from == to {
		return
	}
	w.changes = append(w.changes, change{time: time.Now(), workload: workload, mgmt: mgmt, from: from,
		to: to})
	for _, other := range slices.Sorted(maps.Keys(states)) {
		if to == reconciling && other != mgmt && states[other] == reconciling {
			w.conflicts = append(w.conflicts, fmt.Sprintf("%s was reconciled by %s and %s at once",
				workload, other, mgmt))
		}
	}
}

func (w *ReconcilerWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}

// Stop ends the watches. An error means that events may have been missed.
func (w *ReconcilerWatch) Stop() error {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Conflicts reports the workload clusters that two management clusters reconciled at once.
func (w *ReconcilerWatch) Conflicts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.conflicts)
}

// Pause is the time in which a workload cluster was reconciled by neither management cluster: from
// the moment when the source stopped to the moment when the target started.
type Pause struct{ From, To time.Time }

// Length of the pause.
func (p Pause) Length() time.Duration { return p.To.Sub(p.From) }

// Pauses returns how long each workload cluster was paused, by namespace/name. Of several pauses it
// returns the last one. A workload cluster that source never reconciled has none.
func (w *ReconcilerWatch) Pauses(source, target string) map[string]time.Duration {
	lengths := map[string]time.Duration{}
	for workload, pause := range w.PauseTimes(source, target) {
		lengths[workload] = pause.Length()
	}
	return lengths
}

// PauseTimes returns the pauses of which Pauses returns the lengths.
func (w *ReconcilerWatch) PauseTimes(source, target string) map[string]Pause {
	w.mu.Lock()
	defer w.mu.Unlock()
	pauses, since := map[string]Pause{}, map[string]time.Time{}
	for _, c := range w.changes {
		if begun, ok := since[c.workload]; ok && c.mgmt == target && c.to == reconciling {
			pauses[c.workload] = Pause{From: begun, To: c.time}
			delete(since, c.workload)
		}
		if c.mgmt == source && c.from == reconciling {
			since[c.workload] = c.time
		}
	}
	return pauses
}
