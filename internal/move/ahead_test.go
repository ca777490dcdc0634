package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// counted answers each LIST with a number, in one buffer for all.
type counted struct {
	restore.Reader
	n     int
	item  []byte // that follows the number
	error error
}

func (c *counted) List(_ context.Context, _ kube.Kind, _ kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	c.n++
	buffer := append([]byte("0"), c.item...)
	for i := range 2 {
		buffer[0] = byte('0' + 2*c.n + i)
		if err := fn(buffer); err != nil {
			return kube.ListResult{}, err
		}
	}
	return kube.ListResult{Items: 2, ResourceVersion: fmt.Sprint(c.n)}, c.error
}

// TestListsThatWereReadAheadAreNotReadAgain, unless something else is copied by then, or a list
// failed, or another one is needed.
func TestListsThatWereReadAheadAreNotReadAgain(t *testing.T) {
	read := func(r restore.Reader, o kube.ListOptions) (items []string, err error) {
		_, err = r.List(t.Context(), kube.SecretKind, o, func(raw []byte) error {
			items = append(items, string(raw))
			return nil
		})
		return items, err
	}
	target := &counted{}
	lists := &remembered{Reader: target, lists: map[string]list{}}
	some := kube.ListOptions{Namespaces: []string{"a", "b"}, Metadata: true}
	first, err := read(lists, some)
	if err != nil {
		t.Fatal(err)
	}
	target.error = errors.New("it breaks off")
	broken := kube.ListOptions{Namespaces: []string{"c"}}
	if _, err := read(lists, broken); err == nil {
		t.Error("an error is lost")
	}
	target.error = nil

	secret := object.Ref{Kind: "Secret", Name: "copied"}
	copied := func(uid string) map[object.Ref]string { return map[object.Ref]string{secret: uid} }
	nodes := []*graph.Node{{Ref: secret}}
	before := &ahead{lists, time.Now(), copied("uid"), map[object.Ref]bool{secret: true}}
	r := before.reader(copied("uid"), nodes)
	again, err := read(r, some)
	if err != nil || !slices.Equal(again, first) || target.n != 2 {
		t.Errorf("%v after %v, %v; asked %d times", again, first, err, target.n)
	}
	stop := errors.New("stop")
	if _, err := r.List(t.Context(), kube.SecretKind, some,
		func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of a caller is lost: %v", err)
	}
	for i, o := range []kube.ListOptions{broken, {Namespaces: []string{"a", "b"}},
		{Namespaces: []string{"a", "b"}, Metadata: true, Labels: "x"}} {
		if items, err := read(r, o); err != nil || len(items) != 2 || target.n != 3+i {
			t.Errorf("%+v: %v, %v; asked %d times", o, items, err, target.n)
		}
	}
	late := *before
	late.at = time.Now().Add(-aheadAge)
	came := append(nodes, &graph.Node{Ref: object.Ref{Kind: "Secret", Name: "came"}})
	for name, r := range map[string]restore.Reader{
		"too old":                 late.reader(copied("uid"), nodes),
		"a copy that was removed": before.reader(nil, nodes),
		"another copy":            before.reader(copied("other"), nodes),
		"something new":           before.reader(copied("uid"), came),
		"none were read":          (*ahead)(nil).reader(nil, nil),
	} {
		if r != nil {
			t.Errorf("%s: the lists count", name)
		}
	}
}

// TestListsThatAreLongAreNotRemembered, but passed on.
func TestListsThatAreLongAreNotRemembered(t *testing.T) {
	target := &counted{item: bytes.Repeat([]byte("x"), mostAhead/3)}
	lists := &remembered{Reader: target, lists: map[string]list{}}
	for i := range 3 {
		o := kube.ListOptions{Name: fmt.Sprint(i)}
		seen := 0
		if _, err := lists.List(t.Context(), kube.SecretKind, o,
			func([]byte) error { seen++; return nil }); err != nil || seen != 2 {
			t.Fatalf("%d of 2 objects, %v", seen, err)
		}
	}
	if len(lists.lists) != 1 || lists.size > mostAhead {
		t.Errorf("%d lists with %d bytes are remembered", len(lists.lists), lists.size)
	}
}
