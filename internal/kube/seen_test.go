package kube

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mgmtd/mgmtd/internal/object"
)

// onceWritten is a management cluster with one object, of which it remembers the versions.
type onceWritten struct {
	version int // 0: it is gone
	forgets bool
	asked   []string
}

func (w *onceWritten) raw() []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Machine","metadata":{"name":"m",
		"namespace":"n","resourceVersion":"%d"}}`, w.version)
}

func (w *onceWritten) Get(context.Context, Kind, string, string) (*unstructured.Unstructured,
	error) {
	w.asked = append(w.asked, "get")
	if w.version == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "m")
	}
	return decode(w.raw())
}

func (w *onceWritten) List(_ context.Context, _ Kind, o ListOptions,
	fn func(raw []byte) error) (ListResult, error) {
	w.asked = append(w.asked, "list "+o.Name+o.Labels+" since "+o.Since)
	if w.forgets {
		return ListResult{}, apierrors.NewTimeoutError("Too large resource version", 1)
	}
	if w.version == 0 {
		return ListResult{}, nil
	}
	return ListResult{Items: 1}, fn(w.raw())
}

// TestNoReadIsOlderThanOneBefore: an object is read as it is now at first, and then since the
// version that was seen last. When the API server does not answer that, it is read as it is now.
func TestNoReadIsOlderThanOneBefore(t *testing.T) {
	k := Kind{GroupKind: object.GroupKind{Kind: "Machine"}, Resource: "machines", Namespaced: true}
	ref := object.Ref{Kind: "Machine", Namespace: "n", Name: "m"}
	w, seen := &onceWritten{version: 9}, &Seen{}
	for i, version := range []int{9, 10, 11, 12, 13, 0} {
		w.version, w.forgets = version, i == 2
		u, err := seen.Get(t.Context(), w, k, ref)
		if version == 0 {
			if !apierrors.IsNotFound(err) {
				t.Errorf("it is gone: %v", err)
			}
		} else if err != nil || u.GetResourceVersion() != fmt.Sprint(version) {
			t.Errorf("version %d: %v, %v", version, u, err)
		}
	}
	want := []string{"get", "list m since 9", "list m since 10", "get", "list m since 11",
		"list m since 12", "list m since 13"}
	if fmt.Sprint(w.asked) != fmt.Sprint(want) {
		t.Errorf("asked %q, want %q", w.asked, want)
	}
	if version := seen.version(ref); version != "" {
		t.Errorf("one of that name is made again: it would be read since %s", version)
	}
	if _, err := (*Seen)(nil).Get(t.Context(), w, k, ref); !apierrors.IsNotFound(err) {
		t.Errorf("without versions: %v", err)
	}
}

// TestATogetherReadIsNotOlderThanAnyBefore: a LIST is as new as the newest of the objects that it
// is for, and reads what is now when one of them was not seen.
func TestATogetherReadIsNotOlderThanAnyBefore(t *testing.T) {
	ref := func(name string) object.Ref { return object.Ref{Kind: "Machine", Name: name} }
	seen := &Seen{}
	seen.note(ref("a"), "9")
	seen.note(ref("b"), "10")
	seen.note(ref("odd"), "x")
	for _, tt := range []struct {
		refs []object.Ref
		want string
	}{
		{[]object.Ref{ref("a")}, "9"},
		{[]object.Ref{ref("a"), ref("b")}, "10"},
		{[]object.Ref{ref("b"), ref("a")}, "10"},
		{[]object.Ref{ref("a"), ref("c")}, ""},
		{[]object.Ref{ref("a"), ref("odd")}, ""},
		{nil, ""},
	} {
		if got := seen.newest(tt.refs); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.refs, got, tt.want)
		}
	}
	w := &onceWritten{version: 11}
	l := &Labeled{Lists: w, Slots: make(chan struct{}, 1)}
	k := Kind{GroupKind: object.GroupKind{Kind: "Machine"}, Resource: "machines", Namespaced: true}
	var together []LabeledObject
	for _, name := range []string{"m", "a", "b", "c"} {
		object := ref(name)
		object.Namespace = "n"
		together = append(together, LabeledObject{Kind: k, Ref: object, Label: "l=v"})
		if name != "m" {
			seen.note(object, "9")
		}
	}
	for range 2 { // the first one notes the version of m
		l.Read(t.Context(), together, seen)
	}
	w.forgets = true
	for range 2 { // the first one is refused
		l.Read(t.Context(), together, seen)
	}
	want := "[list l=v since  list l=v since 11 list l=v since 11 list l=v since ]"
	if fmt.Sprint(w.asked) != want {
		t.Errorf("asked %q, want %s", w.asked, want)
	}
}
