package move

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// This file reads the target before a pause, so that the plan of a batch does not wait for it. A
// LIST of a kind that nobody writes to waits up to a tenth of a second (k8s.io/apiserver, storage/
// cacher/progress), and a plan lists all kinds.

const (
	// aheadAge is how old the lists may be for the plan of a batch.
	aheadAge = 5 * time.Second
	// mostAhead is how many bytes are remembered at most. What a namespace has of others is listed,
	// too.
	mostAhead = 8 << 20
)

// remembered are lists of the target.
type remembered struct {
	restore.Reader
	mu    sync.Mutex
	lists map[string]list
	size  int
}

// list is the answer to one LIST.
type list struct {
	result kube.ListResult
	items  [][]byte
}

func listKey(k kube.Kind, o kube.ListOptions) string { return fmt.Sprintf("%v %+v", k, o) }

// List implements restore.Reader: it remembers what it reads, as far as there is room.
func (r *remembered) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	var l list
	size := 0
	result, err := r.Reader.List(ctx, k, o, func(raw []byte) error {
		if size += len(raw); size <= mostAhead {
			l.items = append(l.items, slices.Clone(raw))
		} else {
			l.items = nil
		}
		return fn(raw)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.size+size <= mostAhead {
		l.result = result
		r.lists[listKey(k, o)] = l
		r.size += size
	}
	return result, err
}

// ahead is a Reader that answers a LIST with what is remembered, if it is.
type ahead struct {
	*remembered
	at     time.Time             // when the lists were begun
	copied map[object.Ref]string // what was copied then, with UIDs
	refs   map[object.Ref]bool   // what was planned
}

// reader returns the Reader for the plan of nodes, of which this is copied. It is that of the
// target, by nil, when the lists are too old, or something else is copied by now, or is needed:
// another batch may have created that since.
func (r *ahead) reader(copied map[object.Ref]string, nodes []*graph.Node) restore.Reader {
	if r == nil || time.Since(r.at) > aheadAge || !maps.Equal(r.copied, copied) ||
		slices.ContainsFunc(nodes, func(n *graph.Node) bool { return !r.refs[n.Ref] }) {
		return nil
	}
	return *r
}

// List implements restore.Reader.
func (r ahead) List(ctx context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	r.mu.Lock()
	l, ok := r.lists[listKey(k, o)]
	r.mu.Unlock()
	if !ok {
		return r.Reader.List(ctx, k, o, fn)
	}
	for _, raw := range l.items {
		if err := fn(raw); err != nil {
			return l.result, err
		}
	}
	return l.result, nil
}

// readAhead plans units of a group from what was copied of them, for the lists of the target alone,
// and returns what the Reader of their plan in the pause is made of: nil when it could not, or a
// shared object that somebody uses is not on the target yet, which another batch may create
// meanwhile. What is on the target may be aheadAge older for that plan. The run verifies what it
// finds, and overwrites nothing that it does not know.
func (m *run) readAhead(ctx context.Context, of *readyGroup, units []string) *ahead {
	if of.seen == nil {
		return nil
	}
	unused, err := m.unused(ctx, units)
	if err != nil {
		return nil
	}
	copied := m.copiedOf(units)
	lists := &remembered{Reader: m.Target.Reader, lists: map[string]list{}}
	r := &ahead{remembered: lists, at: time.Now(), copied: maps.Clone(copied),
		refs: map[object.Ref]bool{}}
	var plan *restore.Plan
	err = task.Call(func() (err error) {
		plan, err = restore.NewPlan(ctx, m.toTarget(restore.Input{Snapshot: of.seen,
			Contents: readOnly{of.copied}, Before: readOnly{of.copied}, Reader: lists,
			Source: restore.Snapshot{Source: m.Plan.Source, Time: of.seen.Envelope.Time},
			Spec:   m.specIn(of.seen.Graph, units, unused), Asked: m.askedAbout(units),
			Copied: copied}))
		return err
	})
	if err != nil {
		return nil
	}
	for _, u := range append([]restore.Unit{plan.Shared}, plan.Units...) {
		for _, o := range u.Objects {
			if u.Name == "" && o.Action == restore.Create && !slices.Contains(unused, o.Ref) {
				return nil
			}
			r.refs[o.Ref] = true
		}
	}
	return r
}
