package fence

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// labeled is a management cluster with Machines of the workload cluster w.
type labeled struct {
	machines map[string]bool // by name: whether it has the label
	broken   bool            // LISTs break off

	mu   sync.Mutex
	read []string // one by one
}

func (l *labeled) machine(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(capi.Machine.Group + "/v1beta2")
	u.SetKind(capi.Machine.Kind)
	u.SetNamespace("n")
	u.SetName(name)
	return u
}

func (l *labeled) Get(_ context.Context, _ kube.Kind, _, name string) (*unstructured.Unstructured,
	error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = append(l.read, name)
	if _, ok := l.machines[name]; !ok {
		return nil, apierrors.NewNotFound(resourceOf(object.Ref{Group: capi.Machine.Group,
			Kind: capi.Machine.Kind}), name)
	}
	return l.machine(name), nil
}

func (l *labeled) List(_ context.Context, _ kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	for name, label := range l.machines {
		if raw, err := l.machine(name).MarshalJSON(); label && o.Namespace == "n" &&
			o.Labels == "cluster.x-k8s.io/cluster-name=w" {
			if err := errors.Join(err, fn(raw)); err != nil {
				return kube.ListResult{}, err
			}
		}
	}
	if l.broken {
		return kube.ListResult{}, errors.New("broken off")
	}
	return kube.ListResult{}, nil
}

// TestMachinesOfAWorkloadClusterAreReadTogether: a poll of acknowledgements reads them with one
// LIST. What has lost its label, or is gone, is read by itself, and so is everything when the LIST
// fails.
func TestMachinesOfAWorkloadClusterAreReadTogether(t *testing.T) {
	var nodes []*graph.Node
	for _, name := range []string{"a", "b", "c", "d"} {
		nodes = append(nodes, &graph.Node{Ref: object.Ref{Group: capi.Machine.Group,
			Kind: capi.Machine.Kind, Namespace: "n", Name: name}, Cluster: "w"})
	}
	kinds := []kube.Kind{{GroupKind: capi.Machine, Version: "v1beta2", Namespaced: true}}
	for name, tt := range map[string]struct {
		target *labeled
		read   []string
		left   int
	}{
		"all are there": {&labeled{machines: map[string]bool{"a": true, "b": true, "c": true, "d": true}},
			nil, 4},
		"one has lost its label": {&labeled{machines: map[string]bool{"a": true, "b": false, "c": true,
			"d": true}}, []string{"b"}, 4},
		"one is gone": {&labeled{machines: map[string]bool{"a": true, "b": true, "d": true}},
			[]string{"c"}, 3},
		"the LIST breaks off": {&labeled{machines: map[string]bool{"a": true, "b": true, "c": true,
			"d": true}, broken: true}, []string{"a", "b", "c", "d"}, 4},
	} {
		left, _, err := NewPauser(tt.target, nil, kinds, nil).Problems(t.Context(), nodes,
			func(n *graph.Node, u *unstructured.Unstructured) string {
				if u.GetName() != n.Name {
					return ""
				}
				return "not yet"
			})
		slices.Sort(tt.target.read)
		if err != nil || len(left) != tt.left || !slices.Equal(tt.target.read, tt.read) {
			t.Errorf("%s: read %v one by one, want %v; %d are left: %v", name, tt.target.read, tt.read,
				len(left), err)
		}
	}
}
