package fence

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Follow follows nodes, and reads them: it returns once nothing older counts any more for those who
// wait for them. When they cannot be read, it follows nothing. The caller closes what it returns.
func (p *Pauser) Follow(ctx context.Context, nodes []*graph.Node) *kube.Followed {
	nodes = p.WithPause(nodes)
	var objects []kube.LabeledObject
	for _, n := range nodes {
		objects = append(objects, p.labeledObject(n))
	}
	f := kube.Follow(ctx, p.reader, objects)
	left, _, err := p.judge(ctx, nodes, nil, f,
		func(*graph.Node, *unstructured.Unstructured) string { return "" })
	if err != nil || len(left) > 0 { // some were not read
		f.Close()
		return &kube.Followed{}
	}
	return f
}

// labeledObject returns a node with the label of its workload cluster, if it has one.
func (p *Pauser) labeledObject(n *graph.Node) kube.LabeledObject {
	k, _ := kube.FindKind(p.kinds, n.GroupKind())
	o := kube.LabeledObject{Kind: k, Ref: n.Ref}
	if n.Cluster != "" {
		o.Label = capi.LabelClusterName + "=" + n.Cluster
	}
	return o
}

// Await waits until no node has a problem. It polls them, with at most longest between two polls
// (kube.Waiting), and looks at what f shows of them besides; nil follows nothing. An object that is
// gone has no problem. Errors: *restore.WaitError after limit.
func (p *Pauser) Await(ctx context.Context, f *kube.Followed, nodes []*graph.Node, what string,
	limit, longest time.Duration, problem Problem) error {
	if f == nil {
		f = &kube.Followed{}
	}
	return restore.Wait(ctx, restore.WaitError{Side: "source", What: what},
		kube.Waiting[*graph.Node]{Objects: p.WithPause(nodes), Limit: limit, Longest: longest,
			Followed: f, Ref: func(n *graph.Node) object.Ref { return n.Ref },
			Judge: func(ctx context.Context, nodes []*graph.Node, known map[object.Ref][]byte) (
				[]*graph.Node, string, error) {
				return p.judge(ctx, nodes, known, f, problem)
			}})
}

// Problems returns the nodes that have a problem, and the text of one of them. Those of which
// WithPause returns none have none.
func (p *Pauser) Problems(ctx context.Context, nodes []*graph.Node, problem Problem) (
	left []*graph.Node, first string, err error) {
	return p.judge(ctx, p.WithPause(nodes), nil, nil, problem)
}

// judge is Problems for a caller that knows states of some nodes, or nothing: by nil. It reads
// nothing that is older than it was read before (f.Versions).
func (p *Pauser) judge(ctx context.Context, nodes []*graph.Node, known map[object.Ref][]byte,
	f *kube.Followed, problem Problem) (left []*graph.Node, first string, err error) {
	if known == nil {
		var labeled []kube.LabeledObject
		for _, n := range nodes {
			if n.Cluster != "" {
				labeled = append(labeled, p.labeledObject(n))
			}
		}
		known = p.labeled.Read(ctx, labeled, f.Versions())
	}
	var mu sync.Mutex
	g, ctx := task.WithContext(ctx)
	g.SetLimit(16)
	for _, n := range nodes {
		p.slots <- struct{}{}
		g.Go(func() error {
			defer func() { <-p.slots }()
			why, err := p.problem(ctx, n, known[n.Ref], f, problem)
			if err != nil {
				return fmt.Errorf("%s: %w", n.Ref, err)
			}
			if why != "" {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, n)
				if first == "" {
					first = n.Ref.String() + ": " + why
				}
			}
			return nil
		})
	}
	// first: in which order a return reads a variable and calls a function is not specified
	err = g.Wait()
	return left, first, err
}

// problem says what is wrong with an object; "" when nothing is, or when it is gone. read is what
// is known of it; it is read here when that is nil.
func (p *Pauser) problem(ctx context.Context, n *graph.Node, read []byte, f *kube.Followed,
	find Problem) (string, error) {
	if read != nil {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(read); err != nil {
			return "", kube.SafeError(n.GroupKind(), err)
		}
		f.Note(n.Ref, read)
		return find(n, u), nil
	}
	k, _ := kube.FindKind(p.kinds, n.GroupKind())
	u, err := f.Versions().Get(ctx, p.reader, k, n.Ref)
	switch {
	case apierrors.IsNotFound(err):
		f.NoteGone(n.Ref)
		return "", nil
	case err != nil && kube.Transient(err):
		return err.Error(), nil
	case err != nil:
		return "", err
	}
	f.NoteObject(n.Ref, u)
	return find(n, u), nil
}
