package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
)

// heldBytes limits the bytes of changed objects that are in memory; of a kind for which there is no
// room all objects are read again.
const heldBytes = 64 << 20

// errTooManyChanges reports that it is better, or the only way, to read all objects of a kind.
var errTooManyChanges = errors.New("much has changed")

// kindState is what a source has of a kind at a resourceVersion.
type kindState struct {
	at    string
	nodes []*graph.Node
	raw   map[object.Key][]byte // of the objects that changed; nil for a deleted one
}

func (s *kindState) each(namespace, name string, fn func(*graph.Node, []byte) error) error {
	for _, n := range s.nodes {
		if namespace != "" && n.Namespace != namespace || name != "" && n.Name != name {
			continue
		}
		if err := fn(n, s.raw[n.Key()]); err != nil {
			return err
		}
	}
	return nil
}

// watchReader reads the kinds that were brought to the cut from memory, and all others with exact
// lists.
type watchReader struct {
	*exactReader
	kinds map[object.GroupKind]*kindState
}

func (r *watchReader) each(ctx context.Context, k kube.Kind, namespace, name string,
	fn func(*graph.Node, []byte) error) error {
	s := r.kinds[k.GroupKind]
	if s == nil || name != "" && r.relation.is(k.GroupKind) && !s.has(namespace, name) {
		return r.exactReader.each(ctx, k, namespace, name, fn) // perhaps an owner that was dropped
	}
	return s.each(namespace, name, fn)
}

func (s *kindState) has(namespace, name string) bool {
	return slices.ContainsFunc(s.nodes, func(n *graph.Node) bool {
		return n.Namespace == namespace && n.Name == name
	})
}

// unchanged reports whether all these kinds were brought to the cut and none of their objects
// changed.
func (r *watchReader) unchanged(kinds []kube.Kind) bool {
	for _, k := range kinds {
		if s := r.kinds[k.GroupKind]; s == nil || len(s.raw) > 0 {
			return false
		}
	}
	return true
}

// catchUp brings kinds to the cut by calling find for each, concurrently. Kinds for which find
// returns errTooManyChanges or kube.ErrExactRefused are left to exact lists.
func catchUp(ctx context.Context, at *exactReader, kinds []kube.Kind, find func(context.Context,
	*changeTracker, kube.Kind) (*kindState, error)) (*watchReader, error) {
	r := &watchReader{exactReader: at, kinds: map[object.GroupKind]*kindState{}}
	tracker := &changeTracker{reader: at.reader}
	var mu sync.Mutex
	g, ctx := task.WithContext(ctx)
	for _, k := range kinds {
		g.Go(func() error {
			s, err := find(ctx, tracker, k)
			if errors.Is(err, errTooManyChanges) || errors.Is(err, kube.ErrExactRefused) ||
				at.relation.skips(k, err) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.kinds[k.GroupKind] = s
			return nil
		})
	}
	return r, g.Wait()
}

// changeTracker finds out what changed in kinds, and limits the memory that the changes of all
// kinds take.
type changeTracker struct {
	reader
	held atomic.Int64
}

// hold copies the bytes of a changed object.
func (t *changeTracker) hold(raw []byte) ([]byte, error) {
	if t.held.Add(int64(len(raw))) > heldBytes {
		return nil, errTooManyChanges
	}
	return slices.Clone(raw), nil
}

// watch returns a kind at a later resourceVersion: it watches what changed since was.
func (t *changeTracker) watch(ctx context.Context, k kube.Kind, was *kindState, to string) (
	*kindState, error) {
	changed := map[object.Key][]byte{} // nil: deleted
	drops := t.droppedFrom(k, was, changed)
	err := t.source.Changes(ctx, k, was.at, to, func(deleted bool, raw []byte) error {
		key, meta := keyOf(raw)
		if drops(key, meta) {
			return nil
		}
		t.held.Add(-int64(len(changed[key])))
		changed[key] = nil
		if deleted {
			return nil
		}
		held, err := t.hold(raw)
		changed[key] = held
		return err
	})
	if errors.Is(err, kube.ErrExpired) || errors.Is(err, kube.ErrUnproven) {
		return nil, fmt.Errorf("%w: %w", errTooManyChanges, err)
	}
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		return &kindState{at: to, nodes: was.nodes}, nil
	}
	s := &kindState{at: to, raw: changed}
	for _, n := range was.nodes {
		if _, is := changed[n.Key()]; !is {
			s.nodes = append(s.nodes, n)
		}
	}
	for _, raw := range changed {
		if raw != nil {
			s.nodes = append(s.nodes, t.nodes.Node(k, raw))
		}
	}
	return s, nil
}

// droppedFrom returns the function that reports which changes of a related kind are dropped: those
// of objects that cannot be related, unless a node or an earlier change of them is known.
func (t *changeTracker) droppedFrom(k kube.Kind, was *kindState,
	changed map[object.Key][]byte) func(object.Key, gjson.Result) bool {
	known := map[object.Key]bool{}
	if t.relation.is(k.GroupKind) {
		for _, n := range was.nodes {
			known[n.Key()] = true
		}
	}
	return func(key object.Key, meta gjson.Result) bool {
		_, is := changed[key]
		return !is && !known[key] && t.relation.drops(k, key, meta)
	}
}

// errManyDropped reports that listing a related kind is mostly in vain.
var errManyDropped = errors.New("many unrelated objects")

// compare lists the metadata of a kind, with options o, and reads the objects that are not as in
// nodes. It returns ErrHistory if an object is older than its node, and errManyDropped if more than
// so many objects are dropped since they cannot be related.
func (t *changeTracker) compare(ctx context.Context, k kube.Kind, nodes []*graph.Node,
	o kube.ListOptions, mostDropped int) (*kindState, error) {
	known := map[object.Key]*graph.Node{}
	for _, n := range nodes {
		known[n.Key()] = n
	}
	s := &kindState{raw: map[object.Key][]byte{}}
	var changed []object.Key
	dropped := 0
	o.Metadata = true
	list, err := t.source.List(ctx, k, o, func(raw []byte) error {
		key, meta := keyOf(raw)
		n, version := known[key], meta.Get("resourceVersion").String()
		switch {
		case n == nil && t.relation.drops(k, key, meta):
			if dropped++; dropped > mostDropped {
				return errManyDropped
			}
			return nil
		case n == nil || n.UID != meta.Get("uid").String():
		case n.ResourceVersion == version:
			s.nodes = append(s.nodes, n)
			return nil
		case !isLater(version, n.ResourceVersion):
			return fmt.Errorf("%w: %s", ErrHistory, n.Ref)
		}
		if changed = append(changed, key); len(changed) > 50+len(known)/20 {
			return errTooManyChanges
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.at = list.ResourceVersion
	return s, t.fetch(ctx, k, changed, o.Exact, func(n *graph.Node, raw []byte) error {
		held, err := t.hold(raw)
		s.nodes = append(s.nodes, n)
		s.raw[n.Key()] = held
		return err
	})
}

// keyOf returns the key of an object and its metadata.
func keyOf(raw []byte) (object.Key, gjson.Result) {
	meta := gjson.GetBytes(raw, "metadata")
	return object.Key{Namespace: text(meta.Get("namespace")), Name: text(meta.Get("name"))}, meta
}
