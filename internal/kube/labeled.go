package kube

import (
	"bytes"
	"context"
	"sync"

	"github.com/tidwall/gjson"
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

// Labeled reads several objects that have one label with one LIST, in place of a GET of each. It
// may be used concurrently.
type Labeled struct {
	Lists Lists

	mu sync.Mutex
	// sizes are the numbers of objects in the last answers.
	sizes map[labeledList]int
}

type labeledList struct{ path, label string }

// Read returns the bytes of those of names, in one namespace, that have a label ("key=value"). It
// has none of what is gone, or has lost the label. It returns nil, perhaps without a request, when
// a LIST does not pay, or fails. The caller reads what it has not got one by one, which gives the
// answer, or the error.
func (l *Labeled) Read(ctx context.Context, k Kind, namespace, label string,
	names map[string]bool) map[string][]byte {
	list := labeledList{k.Path(namespace), label}
	l.mu.Lock()
	size := l.sizes[list]
	l.mu.Unlock()
	if len(names) < fewLabeled || len(names)*mostUnwanted < size {
		return nil
	}
	size = 0
	read := make(map[string][]byte, len(names))
	_, err := l.Lists.List(ctx, k, ListOptions{Namespace: namespace, Labels: label, Whole: true},
		func(raw []byte) error {
			if name := gjson.GetBytes(raw, "metadata.name").String(); names[name] {
				read[name] = bytes.Clone(raw)
			}
			size++
			return nil
		})
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sizes == nil {
		l.sizes = map[labeledList]int{}
	}
	l.sizes[list] = size
	return read
}
