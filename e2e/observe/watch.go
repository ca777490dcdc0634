package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Event is the birth or the death of an object.
type Event struct {
	Time    time.Time
	Ref     Ref
	UID     string
	Deleted bool
}

// Watcher sees every birth and death of a Machine, an infrastructure object or
// a Secret of a certificate authority, from its start to its Stop.
type Watcher struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	events []Event
	err    error
}

// Watch starts a Watcher. What is there already is no birth. The caller must Stop it.
func Watch(ctx context.Context, kubeconfig string) (*Watcher, error) {
	v, err := newView(kubeconfig)
	if err != nil {
		return nil, err
	}
	kinds, err := v.kinds(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{cancel: cancel}
	for _, k := range kinds {
		if !keptAlive(k.GroupKind) {
			continue
		}
		if err := w.follow(ctx, v, k); err != nil {
			_ = w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// keptAlive are the kinds of which an object made anew, or one less, means a
// machine made anew, or one less.
func keptAlive(k schema.GroupKind) bool {
	return k == schema.GroupKind{Group: coreGroup, Kind: "Machine"} || k == secretKind ||
		k.Group == infraGroup && !strings.HasSuffix(k.Kind, "Template")
}

func (w *Watcher) follow(ctx context.Context, v *view, k kind) error {
	client := v.client.Resource(k.resource)
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list %s: %w", k.resource.Resource, err)
	}
	// It begins again where it was when the API server ends a watch, so nothing is missed.
	retry, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, opts)
		},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.resource.Resource, err)
	}
	w.done.Go(func() {
		defer retry.Stop()
		for event := range retry.ResultChan() {
			w.take(k, event)
		}
		if ctx.Err() == nil {
			w.fail(fmt.Errorf("watch %s: it ended too early", k.resource.Resource))
		}
	})
	return nil
}

func (w *Watcher) take(k kind, event watch.Event) {
	o, ok := event.Object.(*unstructured.Unstructured)
	switch {
	case event.Type == watch.Error || !ok:
		w.fail(fmt.Errorf("watch %s: %v", k.resource.Resource, event.Object))
	case event.Type != watch.Added && event.Type != watch.Deleted, k.GroupKind == secretKind && !isAuthority(o):
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, Event{Time: time.Now(), Ref: RefOf(o), UID: string(o.GetUID()), Deleted: event.Type == watch.Deleted})
	}
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// Stop ends the watching. An error means that something may have been missed.
func (w *Watcher) Stop() error {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Events are all births and deaths so far.
func (w *Watcher) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// Anew says what of events a restore of before cannot explain: it creates each
// object once and deletes none. With an empty before every event is unexplained.
func Anew(events []Event, before Objects) []string {
	var problems []string
	born := map[Ref]bool{}
	for _, e := range events {
		switch {
		case e.Deleted:
			problems = append(problems, e.Ref.String()+" was deleted")
		case born[e.Ref]:
			problems = append(problems, e.Ref.String()+" was created again")
		case before[e.Ref] == nil:
			problems = append(problems, e.Ref.String()+" was created and is not one of before")
		}
		born[e.Ref] = true
	}
	return problems
}
