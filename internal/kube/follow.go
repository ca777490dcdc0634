package kube

import (
	"bytes"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retry"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// followSeconds is how long one request of a Followed watches. The API server sends a bookmark
	// each minute, so it is never silent for maxSilence.
	followSeconds = 90
	// followTries is how often in a row a watch may fail before it is given up.
	followTries = 5
	// mostUnlabeled is how many objects without a label are followed, each by a watch of its own.
	mostUnlabeled = 8
)

// Followed has the newest states of objects that a caller has read, or watches have shown. They
// wake a caller that waits for the objects (Waiting), and spare it most polls. They prove nothing
// of an object that they do not show: a watch may lag, or have ended. The zero value follows
// nothing, and is used for its Versions. It may be used concurrently.
type Followed struct {
	versions Seen
	stop     context.CancelFunc
	watches  task.Group

	mu      sync.Mutex
	states  map[object.Ref]*followedState // of the objects that are followed; nil without any
	open    int                           // watches that were not given up
	changed chan struct{}                 // closed when one of the above changes
}

// followedState is what is known of an object: nothing at first.
type followedState struct {
	version string
	raw     []byte // nil when it has to be read: a watch says that it is gone, or has lost its label
	// gone: it was read, and is gone. Until it is read again, what watches show may be older.
	gone  bool
	shown bool // by a watch that is open
}

// Watches are readers that can follow objects.
type Watches interface {
	Follow(ctx context.Context, objects []LabeledObject) *Followed
}

// Follow follows objects if their reader can; otherwise it follows nothing. The caller closes what
// it returns.
func Follow(ctx context.Context, from any, objects []LabeledObject) *Followed {
	if w, ok := from.(Watches); ok && len(objects) > 0 {
		return w.Follow(ctx, objects)
	}
	return &Followed{}
}

// Follow watches objects until ctx ends or the Followed is closed, and returns at once. It opens
// one watch for those of one kind, namespace and label.
func (r *Reader) Follow(ctx context.Context, objects []LabeledObject) *Followed {
	ctx, stop := context.WithCancel(ctx)
	f := &Followed{stop: stop, states: map[object.Ref]*followedState{},
		changed: make(chan struct{})}
	watchers, unlabeled := map[labeledList]*watcher{}, 0
	refs := map[labeledList][]object.Ref{}
	for _, o := range objects {
		list := labeledList{o.GroupKind(), o.Kind.Path(o.Namespace), o.Namespace, o.Label}
		w := &watcher{reader: r, kind: o.Kind, namespace: o.Namespace, labels: o.Label,
			seconds: followSeconds, to: math.MaxUint64}
		if o.Label == "" {
			if unlabeled++; unlabeled > mostUnlabeled {
				continue
			}
			list.path += "/" + o.Name
			w.name = o.Name
		}
		f.states[o.Ref] = &followedState{}
		refs[list] = append(refs[list], o.Ref)
		w.fn = func(deleted bool, raw []byte) error {
			ref := list.ref(gjson.GetBytes(raw, "metadata.name").String())
			f.note(ref, raw, !deleted, true)
			return nil
		}
		watchers[list] = w
	}
	f.open = len(watchers)
	for list, w := range watchers {
		f.watches.Go(func() error {
			f.follow(ctx, refs[list], w)
			return nil
		})
	}
	return f
}

// follow watches one list until ctx ends. Each request begins with the states that the API server
// remembers, whatever the one before has shown: it may have broken off in the middle of them.
func (f *Followed) follow(ctx context.Context, refs []object.Ref, w *watcher) {
	defer f.giveUp()
	for failures := 0; failures < followTries; {
		w.at = 0
		began := time.Now()
		err := w.once(ctx)
		f.hide(refs)
		if ctx.Err() != nil {
			return
		}
		if err == nil && time.Since(began) > time.Second {
			failures = 0
			continue
		}
		if failures++; err != nil && !Transient(err) {
			return // such as a missing right
		}
		if retry.Sleep(ctx, Backoff(failures, err)) != nil {
			return
		}
	}
}

// giveUp notes that a watch has ended for good.
func (f *Followed) giveUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
	f.wakeAll()
}

// hide notes that no watch shows some objects any more.
func (f *Followed) hide(refs []object.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ref := range refs {
		f.states[ref].shown = false
	}
	f.wakeAll()
}

// wakeAll wakes those who wait. The caller has f.mu.
func (f *Followed) wakeAll() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// note notes a state, unless one that is as new is known. there: it is not gone, and has its label.
func (f *Followed) note(ref object.Ref, raw []byte, there, watched bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, followed := f.states[ref]
	if !followed || s.gone && watched {
		return
	}
	s.gone = false
	appears := watched && there && !s.shown
	if watched {
		s.shown = there
	}
	version := gjson.GetBytes(raw, "metadata.resourceVersion").String()
	newer := s.replacedBy(version, there)
	if newer {
		if s.version, s.raw = version, nil; there {
			s.raw = bytes.Clone(raw)
		}
	}
	if newer || appears {
		f.wakeAll()
	}
}

// replacedBy reports whether a state of another version is to be noted in place of this one.
// Versions that cannot be compared count as newer.
func (s *followedState) replacedBy(version string, there bool) bool {
	if s.version == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, s.version)
	return err != nil || order > 0 || order == 0 && s.raw == nil && there
}

// Note notes what was read of an object.
func (f *Followed) Note(ref object.Ref, raw []byte) {
	if f.follows(ref) {
		f.note(ref, raw, true, false)
	}
}

// NoteObject is Note for an object that is decoded.
func (f *Followed) NoteObject(ref object.Ref, u *unstructured.Unstructured) {
	if !f.follows(ref) {
		return
	}
	if raw, err := u.MarshalJSON(); err == nil {
		f.note(ref, raw, true, false)
	}
}

// NoteGone notes that an object was read and is gone. Until it is read again, what watches show of
// it does not count, since it may be older.
func (f *Followed) NoteGone(ref object.Ref) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, followed := f.states[ref]; followed {
		*s = followedState{gone: true}
	}
}

func (f *Followed) following() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states != nil
}

// follows reports whether an object is followed.
func (f *Followed) follows(ref object.Ref) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states[ref] != nil
}

// Versions are those in which objects were read. A nil Followed has nil, which knows none.
func (f *Followed) Versions() *Seen {
	if f == nil {
		return nil
	}
	return &f.versions
}

// wake returns a channel that is closed when a newer state is noted, and when watches begin or
// cease to show one.
func (f *Followed) wake() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// shows reports whether watches that are open show all of some objects that are not gone.
func (f *Followed) shows(refs []object.Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ref := range refs {
		if s, followed := f.states[ref]; !followed || !s.shown && !s.gone {
			return false
		}
	}
	return true
}

// Shown waits until watches show all objects that are followed, for limit at most. It ends when no
// watch is left.
func (f *Followed) Shown(ctx context.Context, limit time.Duration) {
	if !f.following() {
		return
	}
	f.mu.Lock()
	refs := slices.Collect(maps.Keys(f.states))
	f.mu.Unlock()
	_, _ = retry.PollOrWake(ctx, func(int) time.Duration { return limit }, limit, f.wake,
		func(context.Context, bool) (bool, error) { return f.shows(refs) || !f.watching(), nil })
}

// watching reports whether a watch is left.
func (f *Followed) watching() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open > 0
}

// Close ends the watches. From then on nothing is followed.
func (f *Followed) Close() {
	if f.following() {
		f.stop()
		f.watches.Finish()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.states = nil
	}
}
