package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
)

func configMaps(names ...string) (objects []LabeledObject) {
	for _, name := range names {
		objects = append(objects, LabeledObject{Kind: ConfigMapKind, Label: "a=b",
			Ref: object.Ref{Kind: "ConfigMap", Namespace: "n", Name: name}})
	}
	return objects
}

func refsOf(objects []LabeledObject) (refs []object.Ref) {
	for _, o := range objects {
		refs = append(refs, o.Ref)
	}
	return refs
}

func stateOf(name string, version int) []byte {
	return fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"%d"}}`, name, version)
}

// followedBy returns the Followed of a server whose watches show nothing.
func followedBy(t *testing.T, objects []LabeledObject) *Followed {
	t.Helper()
	server := hostile(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	f := server.Follow(t.Context(), objects)
	t.Cleanup(f.Close)
	return f
}

// newsOf returns what a wait for an object would judge: its state, "read" when it would read it,
// and "" when nothing has changed since.
func newsOf(t *testing.T, w *Waiting[object.Ref]) (news string) {
	t.Helper()
	w.Judge = func(_ context.Context, refs []object.Ref, known map[object.Ref][]byte) (
		[]object.Ref, string, error) {
		for _, ref := range refs {
			news += cmp.Or(string(known[ref]), "read")
		}
		return refs, "", nil
	}
	if err := w.judgeNews(t.Context()); err != nil {
		t.Fatal(err)
	}
	return news
}

func waitFor(f *Followed, refs ...object.Ref) *Waiting[object.Ref] {
	return &Waiting[object.Ref]{Followed: f, left: refs, seen: map[object.Ref]string{},
		Ref: func(ref object.Ref) object.Ref { return ref }}
}

// TestNothingOlderIsShown: a watch begins with what its API server remembers, which may be older
// than what was read, and events of several watches come in any order.
func TestNothingOlderIsShown(t *testing.T) {
	objects := configMaps("x")
	x := objects[0].Ref
	f := followedBy(t, objects)
	w := waitFor(f, x)
	state := func(version int) string { return string(stateOf("x", version)) }
	for i, step := range []struct {
		do      string // what happens
		version int
		news    string
		wakes   bool
	}{
		{do: "nothing", news: "read"}, // nothing is known of it
		{do: "nothing"},               // it was read once
		{do: "read", version: 10, news: state(10), wakes: true},
		{do: "watch", version: 9, wakes: true}, // it begins to be shown
		{do: "watch", version: 9}, {do: "watch", version: 10}, {do: "gone", version: 9},
		{do: "watch", version: 100, news: state(100), wakes: true},
		{do: "gone", version: 101, news: "read", wakes: true},
		{do: "read", version: 101, news: "", wakes: true}, // it has lost its label alone
		{do: "watch", version: 100, wakes: true},
		{do: "watch", version: 102, news: state(102), wakes: true},
		{do: "read gone", news: "read"},
		{do: "watch", version: 103}, // may be older than what was read
		{do: "nothing"},
		{do: "read", version: 104, news: state(104), wakes: true},
	} {
		before := f.wake()
		switch step.do {
		case "watch", "gone":
			f.note(x, stateOf("x", step.version), step.do == "watch", true)
		case "read":
			f.Note(x, stateOf("x", step.version))
		case "read gone":
			f.NoteGone(x)
		}
		if news := newsOf(t, w); news != step.news {
			t.Errorf("step %d: %q, want %q", i, news, step.news)
		}
		woken := false
		select {
		case <-before:
			woken = true
		default:
		}
		if woken != step.wakes {
			t.Errorf("step %d: woken %v", i, woken)
		}
	}
	f.Note(configMaps("other")[0].Ref, stateOf("other", 1))
	if len(f.states) != 1 {
		t.Errorf("%d states", len(f.states))
	}
}

// TestAWatchThatBreaksBeginsFromScratch: it may break off before it has shown all states. What was
// not asked for is not kept.
func TestAWatchThatBreaksBeginsFromScratch(t *testing.T) {
	var requests atomic.Int32
	server := hostile(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("resourceVersion") != "0" || r.URL.Query().Get("labelSelector") != "a=b" {
			t.Errorf("%s", r.URL)
		}
		event := func(name string, version int) {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, stateOf(name, version))
			w.(http.Flusher).Flush()
		}
		if requests.Add(1) == 1 {
			event("a", 50)
			event("unknown", 51)
			return
		}
		event("b", 40)
		<-r.Context().Done()
	})
	objects := configMaps("a", "b")
	f := server.Follow(t.Context(), objects)
	defer f.Close()
	refs := refsOf(objects)
	for changed := f.wake(); !f.shows(refs[1:]); changed = f.wake() {
		<-changed
	}
	if news := newsOf(t, waitFor(f, refs...)); f.shows(refs[:1]) || len(f.states) != 2 ||
		news != string(stateOf("a", 50))+string(stateOf("b", 40)) {
		t.Errorf("%d states; after the end of its watch it shows %v; news %s", len(f.states),
			f.shows(refs[:1]), news)
	}
}

// TestWhatIsNotFollowedIsPolled: without the right to watch, after the end of a watch, and for
// objects that are too many, watches show nothing. A reader that cannot watch follows nothing.
func TestWhatIsNotFollowedIsPolled(t *testing.T) {
	var requests atomic.Int32
	server := hostile(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if requests.Add(1); query.Get("labelSelector") != "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, name, _ := strings.Cut(query.Get("fieldSelector"), "=")
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, stateOf(name, 1))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	objects := configMaps("a")
	f := server.Follow(t.Context(), objects)
	f.Shown(t.Context(), time.Hour)
	if f.shows(refsOf(objects)) || requests.Load() != 1 { // it is asked for once
		t.Errorf("shown %v after %d requests", f.shows(refsOf(objects)), requests.Load())
	}
	f.Close()
	var unlabeled []LabeledObject
	for i := range mostUnlabeled + 1 {
		unlabeled = append(unlabeled, configMaps(fmt.Sprint(i))...)
		unlabeled[i].Label = ""
	}
	f = server.Follow(t.Context(), unlabeled)
	f.Shown(t.Context(), time.Minute) // those that are followed
	refs := refsOf(unlabeled)
	if !f.shows(refs[:mostUnlabeled]) || f.shows(refs[mostUnlabeled:]) {
		t.Error("it does not follow as many as it can")
	}
	f.Close()
	if f.following() {
		t.Error("it follows after its end")
	}
	none := Follow(t.Context(), struct{}{}, unlabeled)
	none.Note(refs[0], stateOf("0", 1))
	none.NoteGone(refs[0])
	none.Shown(t.Context(), time.Hour)
	if none.Close(); none.shows(refs[:1]) {
		t.Error("it follows without a watch")
	}
}

// TestAWaitForWhatIsFollowed: it judges what is known at first, and each change at once, reads what
// is not known once, and polls seldom while watches show all that is left.
func TestAWaitForWhatIsFollowed(t *testing.T) {
	objects := configMaps("paused", "late", "gone")
	refs := refsOf(objects)
	f := followedBy(t, objects)
	f.Note(refs[0], stateOf("paused", 10))
	f.note(refs[0], stateOf("paused", 10), true, true)
	f.note(refs[1], stateOf("late", 10), true, true)
	f.NoteGone(refs[2])
	var log []string
	var events sync.Once
	sent := make(chan struct{})
	ready := map[string]string{"paused": "10", "late": "12", "gone": ""}
	w := Waiting[object.Ref]{Objects: refs, Limit: time.Minute, Longest: time.Millisecond,
		Followed: f,
		Ref:      func(ref object.Ref) object.Ref { return ref },
		Judge: func(_ context.Context, refs []object.Ref, known map[object.Ref][]byte) (
			left []object.Ref, why string, err error) {
			judged := "news:"
			if known == nil {
				judged = "poll:"
			}
			for _, ref := range refs {
				version := gjson.GetBytes(known[ref], "metadata.resourceVersion").String()
				judged += " " + ref.Name + version
				if version != ready[ref.Name] {
					left, why = append(left, ref), ref.Name
				}
			}
			log = append(log, judged)
			events.Do(func() {
				go func() {
					defer close(sent)
					f.note(refs[1], stateOf("late", 11), true, true)
					time.Sleep(100 * time.Millisecond)
					f.note(refs[1], stateOf("late", 12), true, true)
				}()
			})
			return left, why, nil
		}}
	left, why, err := w.Await(t.Context())
	<-sent
	want := []string{"news: paused10 late10 gone", "news: late11", "news: late12"}
	if err != nil || len(left) > 0 || !slices.Equal(log, want) {
		t.Errorf("%v, %s, %v: %q, want %q", left, why, err, log, want)
	}
	log, w.Fresh, w.Limit = nil, true, 0
	if left, why, err = w.Await(t.Context()); err != nil || len(left) != 2 || why != "late" ||
		!slices.Equal(log, []string{"poll: paused late gone"}) {
		t.Errorf("fresh: %v, %s, %v: %q", left, why, err, log)
	}
}
