package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/task"
)

const (
	// dialTimeout bounds the dial of a management cluster that may be dead. A live one answers within
	// milliseconds, and an operator waits for it in an outage.
	dialTimeout = 5 * time.Second
	// listTimeout bounds the list of the Clusters of one that answered.
	listTimeout = 30 * time.Second
)

// dialer dials the management clusters whose kubeconfigs are known.
type dialer struct{ options []kube.Options }

func (s *Server) dialer() *dialer {
	d := &dialer{}
	for _, o := range slices.Concat(s.cfg.Sources, s.cfg.Targets) {
		if o.KubeconfigFile != "" && !slices.Contains(d.options, o) {
			d.options = append(d.options, o)
		}
	}
	return d
}

// dial asks all of them at once, and returns the answers of those that are wanted, by the UID of
// their kube-system namespace. A name says nothing: a new management cluster may have that of a
// lost one. What does not answer could be any that is wanted.
func (d *dialer) dial(ctx context.Context, wanted ...object.Side) map[string]preflight.Dial {
	var mu sync.Mutex
	answers := map[string]preflight.Dial{}
	silent, refuses := map[string]string{}, map[string]bool{} // by name
	var g task.Group
	g.SetLimit(mgmtRequests)
	for _, o := range d.options {
		g.Go(func() error {
			m, err := connectWithin(ctx, o, dialTimeout)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				silent[o.Name] = err.Error()
				refuses[o.Name] = apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
				return nil
			}
			if !slices.ContainsFunc(wanted, func(w object.Side) bool { return w.UID == m.UID() }) {
				return nil
			}
			answer := preflight.Dial{Answers: true}
			answer.Unread = task.Call(func() (err error) {
				answer.Clusters, err = clusterStates(ctx, m)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			answers[m.UID()] = answer
			return nil
		})
	}
	g.Finish()
	for _, w := range wanted {
		if _, ok := answers[w.UID]; !ok {
			answers[w.UID] = preflight.Dial{Silent: silentText(silent, w.Name),
				Refuses: refuses[w.Name] || refuses[""]} // one without a name may be that one
		}
	}
	return answers
}

// silentText describes the dials that got no answer: that of the management cluster itself when one
// has its name, else all of them.
func silentText(silent map[string]string, name string) string {
	if why, ok := silent[name]; ok {
		return why
	}
	texts := make([]string, 0, len(silent))
	for _, why := range silent {
		texts = append(texts, why)
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// connectWithin is kube.Connect that returns in time. A program in the kubeconfig that fetches
// credentials knows no deadline, so that the connect may go on after the return.
func connectWithin(ctx context.Context, o kube.Options, d time.Duration) (*kube.Mgmt, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	c := beginCall(func() (*kube.Mgmt, error) { return kube.Connect(ctx, o) })
	m, ended, err := c.wait(ctx)
	if !ended {
		return nil, fmt.Errorf("reach management cluster %s: no answer within %s", o.Name, d)
	}
	return m, err
}

// call is a call that may know no deadline, and goes on when nobody waits for it any more.
type call[T any] struct {
	ended chan struct{} // closed when what follows is set
	value T
	err   error
}

func beginCall[T any](fn func() (T, error)) *call[T] {
	c := &call[T]{ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.err = task.Call(func() (err error) {
			c.value, err = fn()
			return err
		})
	}()
	return c
}

// wait returns what the call has returned; ended is false when ctx ended first.
func (c *call[T]) wait(ctx context.Context) (value T, ended bool, err error) {
	select {
	case <-c.ended:
		return c.value, true, c.err
	case <-ctx.Done():
		return value, false, context.Cause(ctx)
	}
}

// isOver reports whether the call has returned.
func (c *call[T]) isOver() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// clusterStates lists the Clusters of a management cluster, by unit.
func clusterStates(ctx context.Context, m *kube.Mgmt) (map[string]preflight.ClusterState, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	r := m.Reader()
	kinds, err := r.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]preflight.ClusterState{}
	kind, ok := kube.FindKind(kinds, capi.Cluster)
	if !ok {
		return states, nil
	}
	_, err = r.List(ctx, kind, kube.ListOptions{}, func(raw []byte) error {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("decode Cluster: %w", err)
		}
		paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		why := u.GetAnnotations()[capi.AnnotationFenced]
		states[object.Key{Namespace: u.GetNamespace(), Name: u.GetName()}.String()] =
			preflight.ClusterState{Paused: paused, Fenced: why != "",
				Lifting:        strings.HasSuffix(why, capi.FenceLifting),
				Unacknowledged: capi.NotAcknowledged(u.Object, "True")}
		return nil
	})
	return states, err
}
