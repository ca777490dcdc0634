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

// What happens to an object.
const (
	Born  = "created"
	Dying = "being deleted" // shown to controllers with a deletion timestamp
	Died  = "deleted"
)

// Event is the birth or the death of an object, or that its deletion was shown
// to controllers, who may then delete a machine.
type Event struct {
	Time time.Time
	Ref  Ref
	UID  string
	What string
}

// Watcher sees every Event of a Machine, an infrastructure object or a Secret of
// a certificate authority, from its start to its Stop.
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
	list, err := v.client.Resource(k.resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list %s: %w", k.resource.Resource, err)
	}
	return v.follow(ctx, &w.done, k, list.GetResourceVersion(), func(what watch.EventType,
		o *unstructured.Unstructured) {
		w.take(k, what, o)
	}, w.fail)
}

// follow tells take what happens to objects of a kind from a resourceVersion on
// until ctx ends, and fail when it cannot.
func (v *view) follow(ctx context.Context, done *sync.WaitGroup, k kind, from string,
	take func(watch.EventType, *unstructured.Unstructured), fail func(error)) error {
	// It begins again where it was when the API server ends a watch, so nothing is missed.
	retry, err := toolswatch.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface,
			error) {
			return v.client.Resource(k.resource).Watch(ctx, opts)
		},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.resource.Resource, err)
	}
	done.Go(func() {
		defer retry.Stop()
		for event := range retry.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if event.Type == watch.Error || !ok {
				fail(fmt.Errorf("watch %s: %v", k.resource.Resource, event.Object))
				continue
			}
			take(event.Type, o)
		}
		if ctx.Err() == nil {
			fail(fmt.Errorf("watch %s: it ended too early", k.resource.Resource))
		}
	})
	return nil
}

func (w *Watcher) take(k kind, event watch.EventType, o *unstructured.Unstructured) {
	if k.GroupKind == secretKind && !isAuthority(o) {
		return
	}
	var what string
	switch {
	case event == watch.Added:
		what = Born
	case event == watch.Deleted:
		what = Died
	case event == watch.Modified && o.GetDeletionTimestamp() != nil:
		what = Dying
	default:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, Event{Time: time.Now(), Ref: RefOf(o), UID: string(o.GetUID()),
		What: what})
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

// Events are those so far, of the objects in namespaces if there are any.
func (w *Watcher) Events(namespaces ...string) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.events), func(e Event) bool {
		return len(namespaces) > 0 && !slices.Contains(namespaces, e.Ref.Namespace)
	})
}

// Births counts the objects that have come, of a kind if it is not empty.
func Births(events []Event, kind string) int {
	n := 0
	for _, e := range events {
		if e.What == Born && (kind == "" || e.Ref.Kind == kind) {
			n++
		}
	}
	return n
}

// Anew says what of events a restore of before cannot explain: it creates each
// object once and deletes none. With an empty before every event is unexplained.
func Anew(events []Event, before Objects) []string {
	var problems []string
	born := map[Ref]bool{}
	for _, e := range events {
		switch {
		case e.What != Born:
			problems = append(problems, e.Ref.String()+" was "+e.What)
		case born[e.Ref]:
			problems = append(problems, e.Ref.String()+" was created again")
		case before[e.Ref] == nil:
			problems = append(problems, e.Ref.String()+" was created and is not one of before")
		}
		born[e.Ref] = true
	}
	return problems
}

// Lives says what of events is not explained by moves of before: they create and
// delete each of its objects so many times, no other, and never show a deletion.
func Lives(events []Event, before Objects, births, deaths int) []string {
	var problems []string
	seen := map[Ref]map[string]int{}
	for _, e := range events {
		if seen[e.Ref] == nil {
			seen[e.Ref] = map[string]int{}
		}
		if seen[e.Ref][e.What]++; e.What == Dying {
			problems = append(problems, e.Ref.String()+" was shown to controllers as being deleted")
		} else if before[e.Ref] == nil {
			problems = append(problems, e.Ref.String()+" was "+e.What+" and is not one of before")
		}
	}
	for _, ref := range before.Refs() {
		kind := schema.GroupKind{Group: ref.Group, Kind: ref.Kind}
		if !keptAlive(kind) || kind == secretKind && !isAuthority(before[ref]) {
			continue
		}
		if got := seen[ref]; got[Born] != births || got[Died] != deaths {
			problems = append(problems, fmt.Sprintf("%s was created %d times and deleted %d times, "+
				"not %d and %d", ref, got[Born], got[Died], births, deaths))
		}
	}
	return problems
}
