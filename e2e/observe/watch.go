package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Values of Event.What.
const (
	Created  = "created"
	Deleting = "being deleted" // it has a deletion timestamp
	Deleted  = "deleted"
)

// Event is the creation or the deletion of an object, or the moment when it got a deletion
// timestamp: controllers see it then and may delete a machine.
type Event struct {
	Time time.Time
	Ref  Ref
	UID  string
	What string
}

// Watcher records every Event of Machines, infrastructure objects and Secrets of certificate
// authorities between its start and its Stop.
type Watcher struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	events []Event
	err    error
}

// Watch starts a Watcher. Objects that exist already have no Event. The caller must Stop it.
func Watch(ctx context.Context, kubeconfig string) (*Watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{cancel: cancel}
	if err := eachKind(ctx, kubeconfig, isTracked, w.follow); err != nil {
		_ = w.Stop()
		return nil, err
	}
	return w, nil
}

// eachKind calls follow for each kind that is wanted.
func eachKind(ctx context.Context, kubeconfig string, wanted func(k schema.GroupKind) bool,
	follow func(ctx context.Context, v *view, k kind) error) error {
	v, err := newView(kubeconfig)
	if err != nil {
		return err
	}
	kinds, err := v.kinds(ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if !wanted(k.GroupKind) {
			continue
		}
		if err := follow(ctx, v, k); err != nil {
			return err
		}
	}
	return nil
}

// isTracked reports whether the Watcher records objects of this kind: a creation or deletion of
// one may mean that a machine was created or deleted.
func isTracked(k schema.GroupKind) bool {
	return k == schema.GroupKind{Group: coreGroup, Kind: "Machine"} || k == secretKind ||
		k.Group == infraGroup && !strings.HasSuffix(k.Kind, "Template")
}

func (w *Watcher) follow(ctx context.Context, v *view, k kind) error {
	return v.follow(ctx, &w.done, k, func(*unstructured.Unstructured) {}, func(what watch.EventType,
		o *unstructured.Unstructured) {
		w.record(k, what, o)
	}, w.fail)
}

// follower follows the objects of one kind.
type follower struct {
	view    *view
	kind    kind
	known   map[Ref]*unstructured.Unstructured
	onEvent func(watch.EventType, *unstructured.Unstructured)
}

// follow calls initial for each object of a kind, then onEvent for each of their events until ctx
// ends, and onError when events may be missing. An API server that was killed and started again
// may not have the last events before that: what has changed meanwhile is an event of a list then.
func (v *view) follow(ctx context.Context, done *sync.WaitGroup, k kind,
	initial func(*unstructured.Unstructured), onEvent func(watch.EventType,
		*unstructured.Unstructured), onError func(error)) error {
	f := &follower{view: v, kind: k, known: map[Ref]*unstructured.Unstructured{}, onEvent: func(
		_ watch.EventType, o *unstructured.Unstructured) {
		initial(o)
	}}
	from, err := f.list(ctx)
	if err != nil {
		return err
	}
	f.onEvent = onEvent
	done.Go(func() {
		for {
			err := f.watch(ctx, from)
			if apierrors.IsResourceExpired(err) {
				from, err = f.list(ctx)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				onError(err)
				return
			}
		}
	})
	return nil
}

// list lists the objects, and makes events of what has changed since they were known.
func (f *follower) list(ctx context.Context) (version string, err error) {
	list, err := f.view.client.Resource(f.kind.resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.kind.resource.Resource, err)
	}
	live := map[Ref]*unstructured.Unstructured{}
	for i := range list.Items {
		live[RefOf(&list.Items[i])] = &list.Items[i]
	}
	for ref, was := range f.known {
		if is := live[ref]; is == nil || is.GetUID() != was.GetUID() {
			f.note(watch.Deleted, was)
		}
	}
	for ref, is := range live {
		if was := f.known[ref]; was == nil {
			f.note(watch.Added, is)
		} else if was.GetResourceVersion() != is.GetResourceVersion() {
			f.note(watch.Modified, is)
		}
	}
	return list.GetResourceVersion(), nil
}

// watch notes the events since a resourceVersion. A RetryWatcher resumes at its last
// resourceVersion when the API server ends a watch.
func (f *follower) watch(ctx context.Context, from string) error {
	name := f.kind.resource.Resource
	retry, err := toolswatch.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface,
			error) {
			return f.view.client.Resource(f.kind.resource).Watch(ctx, opts)
		},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", name, err)
	}
	defer retry.Stop()
	for event := range retry.ResultChan() {
		o, ok := event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Error || !ok {
			return fmt.Errorf("watch %s: %w", name, apierrors.FromObject(event.Object))
		}
		f.note(event.Type, o)
	}
	return fmt.Errorf("watch %s: it ended too early", name)
}

// note calls onEvent, and remembers the object.
func (f *follower) note(what watch.EventType, o *unstructured.Unstructured) {
	switch what {
	case watch.Added, watch.Modified:
		f.known[RefOf(o)] = o
	case watch.Deleted:
		delete(f.known, RefOf(o))
	default:
		return
	}
	f.onEvent(what, o)
}

func (w *Watcher) record(k kind, event watch.EventType, o *unstructured.Unstructured) {
	if k.GroupKind == secretKind && !isAuthority(o) {
		return
	}
	var what string
	switch {
	case event == watch.Added:
		what = Created
	case event == watch.Deleted:
		what = Deleted
	case event == watch.Modified && o.GetDeletionTimestamp() != nil:
		what = Deleting
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

// Stop ends the watches. An error means that events may have been missed.
func (w *Watcher) Stop() error {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Events returns the events so far. With namespaces it returns those of objects in them.
func (w *Watcher) Events(namespaces ...string) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.events), func(e Event) bool {
		return len(namespaces) > 0 && !slices.Contains(namespaces, e.Ref.Namespace)
	})
}

// CountCreated counts the Created events of a kind, or of all kinds when kind is empty.
func CountCreated(events []Event, kind string) int {
	n := 0
	for _, e := range events {
		if e.What == Created && (kind == "" || e.Ref.Kind == kind) {
			n++
		}
	}
	return n
}

// UnexplainedByRestore reports the events that a restore of before does not explain. A restore
// creates each object of before at most once, and deletes none.
func UnexplainedByRestore(events []Event, before Objects) []string {
	var problems []string
	born := map[Ref]bool{}
	for _, e := range events {
		switch {
		case e.What != Created:
			problems = append(problems, e.Ref.String()+" was "+e.What)
		case born[e.Ref]:
			problems = append(problems, e.Ref.String()+" was created again")
		case before[e.Ref] == nil:
			problems = append(problems, e.Ref.String()+" was created and did not exist before")
		}
		born[e.Ref] = true
	}
	return problems
}

// UnexplainedByMoves reports what moves of before do not explain. They create and delete each
// tracked object of before exactly so often, touch no other object, and set no deletion timestamp.
func UnexplainedByMoves(events []Event, before Objects, creations, deletions int) []string {
	var problems []string
	seen := map[Ref]map[string]int{}
	for _, e := range events {
		if seen[e.Ref] == nil {
			seen[e.Ref] = map[string]int{}
		}
		if seen[e.Ref][e.What]++; e.What == Deleting {
			problems = append(problems, e.Ref.String()+" got a deletion timestamp")
		} else if before[e.Ref] == nil {
			problems = append(problems, e.Ref.String()+" was "+e.What+" and did not exist before")
		}
	}
	for _, ref := range before.Refs() {
		kind := schema.GroupKind{Group: ref.Group, Kind: ref.Kind}
		if !isTracked(kind) || kind == secretKind && !isAuthority(before[ref]) {
			continue
		}
		if got := seen[ref]; got[Created] != creations || got[Deleted] != deletions {
			problems = append(problems, fmt.Sprintf("%s was created %d times and deleted %d times, "+
				"not %d and %d", ref, got[Created], got[Deleted], creations, deletions))
		}
	}
	return problems
}
