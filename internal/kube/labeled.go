package kube

import (
	"bytes"
	"context"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// A LIST of a label costs an API server more than a GET, as it looks at every object of the
// namespace, and much less than fewLabeled of them. It reads all that has the label: at most
// mostUnwanted for each object that is wanted.
const (
	fewLabeled   = 4
	mostUnwanted = 4
)

// Lists are what Reader.List reads.
type Lists interface {
	List(ctx context.Context, k Kind, o ListOptions, fn func(raw []byte) error) (ListResult, error)
}

// LabeledObject is an object, and a label ("key=value") that it should have.
type LabeledObject struct {
	Kind Kind
	object.Ref
	Label string
}

// Labeled reads the objects of one kind, namespace and label with one LIST, in place of a GET of
// each. It may be used concurrently.
type Labeled struct {
	Lists Lists
	Slots chan struct{} // one a LIST in flight

	mu sync.Mutex
	// sizes are the numbers of objects in the last answers.
	sizes map[labeledList]int
}

type labeledList struct {
	kind                   object.GroupKind
	path, namespace, label string
}

// Read returns the bytes of objects, none of them older than it was seen before. It has none of
// what is gone, or has not the label, nor of those for which a LIST does not pay, or fails. The
// caller reads what it has not got one by one, which gives the answer, or the error.
func (l *Labeled) Read(ctx context.Context, objects []LabeledObject,
	seen *Seen) map[object.Ref][]byte {
	wanted, kinds := map[labeledList]map[string]bool{}, map[labeledList]Kind{}
	for _, o := range objects {
		list := labeledList{o.GroupKind(), o.Kind.Path(o.Namespace), o.Namespace, o.Label}
		if wanted[list] == nil {
			wanted[list], kinds[list] = map[string]bool{}, o.Kind
		}
		wanted[list][o.Name] = true
	}
	var mu sync.Mutex
	read := map[object.Ref][]byte{}
	var g task.Group
	for list, names := range wanted {
		if !l.pays(list, len(names)) {
			continue
		}
		l.Slots <- struct{}{}
		g.Go(func() error {
			defer func() { <-l.Slots }()
			var refs []object.Ref
			for name := range names {
				refs = append(refs, list.ref(name))
			}
			found, err := l.list(ctx, kinds[list], list, names, seen.newest(refs))
			if err != nil {
				seen.forget(refs)
			}
			mu.Lock()
			defer mu.Unlock()
			for name, raw := range found {
				read[list.ref(name)] = raw
				seen.note(list.ref(name), gjson.GetBytes(raw, "metadata.resourceVersion").String())
			}
			return nil
		})
	}
	g.Finish()
	return read
}

func (l labeledList) ref(name string) object.Ref {
	return object.Ref{Group: l.kind.Group, Kind: l.kind.Kind, Namespace: l.namespace, Name: name}
}

// pays reports whether a LIST costs less than so many GETs.
func (l *Labeled) pays(list labeledList, wanted int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wanted >= fewLabeled && wanted*mostUnwanted >= l.sizes[list]
}

// list returns the objects of names that have the label.
func (l *Labeled) list(ctx context.Context, k Kind, list labeledList,
	names map[string]bool, since string) (map[string][]byte, error) {
	size, found := 0, make(map[string][]byte, len(names))
	_, err := l.Lists.List(ctx, k, ListOptions{Namespace: list.namespace, Labels: list.label,
		Whole: true, Since: since}, func(raw []byte) error {
		if name := gjson.GetBytes(raw, "metadata.name").String(); names[name] {
			found[name] = bytes.Clone(raw)
		}
		size++
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sizes == nil {
		l.sizes = map[labeledList]int{}
	}
	l.sizes[list] = size
	return found, nil
}
