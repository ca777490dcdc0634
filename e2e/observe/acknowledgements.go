package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// AcknowledgementWatch records when the controllers of a management cluster acknowledge the pause
// of an object that belongs to a workload cluster: when its condition Paused becomes True.
type AcknowledgementWatch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu           sync.Mutex
	acknowledged map[Ref]bool
	times        map[string][]time.Time // by workload cluster
	err          error
}

// WatchAcknowledgements starts an AcknowledgementWatch. The caller must Stop it.
func WatchAcknowledgements(ctx context.Context, kubeconfig string) (*AcknowledgementWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := newAcknowledgementWatch(cancel)
	// Core kinds have no condition Paused.
	wanted := func(k schema.GroupKind) bool { return k.Group != "" }
	if err := eachKind(ctx, kubeconfig, wanted, w.follow); err != nil {
		_ = w.Stop()
		return nil, err
	}
	return w, nil
}

func newAcknowledgementWatch(cancel context.CancelFunc) *AcknowledgementWatch {
	return &AcknowledgementWatch{cancel: cancel, acknowledged: map[Ref]bool{},
		times: map[string][]time.Time{}}
}

func (w *AcknowledgementWatch) follow(ctx context.Context, v *view, k kind) error {
	return v.follow(ctx, &w.done, k, func(o *unstructured.Unstructured) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.acknowledged[RefOf(o)] = conditionPaused(o)
	}, w.record, func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = errors.Join(w.err, err)
	})
}

func (w *AcknowledgementWatch) record(event watch.EventType, o *unstructured.Unstructured) {
	if clusterOf(o) == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ref := RefOf(o)
	is := event != watch.Deleted && conditionPaused(o)
	if is && !w.acknowledged[ref] {
		workload := o.GetNamespace() + "/" + clusterOf(o)
		w.times[workload] = append(w.times[workload], time.Now())
	}
	w.acknowledged[ref] = is
}

// Stop ends the watches. An error means that acknowledgements may have been missed.
func (w *AcknowledgementWatch) Stop() error {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// In returns how much of each pause had passed at the last acknowledgement in it, by workload
// cluster. Workload clusters that are paused together wait for each other, so the acknowledgement
// may be one of another workload cluster, whose own pause had begun by then.
func (w *AcknowledgementWatch) In(pauses map[string]Pause) map[string]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[string]time.Duration{}
	for workload, pause := range pauses {
		last[workload] = 0
		for other, begun := range pauses {
			for _, t := range w.times[other] {
				if t.After(pause.From) && t.Before(pause.To) && t.After(begun.From) {
					last[workload] = max(last[workload], t.Sub(pause.From))
				}
			}
		}
	}
	return last
}
