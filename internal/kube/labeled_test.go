package kube

import (
	"context"
	"fmt"
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// labeledMachines is how many Machines a management cluster has with one label.
type labeledMachines struct{ n, lists int }

func (l *labeledMachines) List(_ context.Context, _ Kind, o ListOptions,
	fn func(raw []byte) error) (ListResult, error) {
	l.lists++
	for i := range l.n {
		if err := fn(fmt.Appendf(nil, `{"metadata":{"name":"m%d"}}`, i)); err != nil {
			return ListResult{}, err
		}
	}
	return ListResult{Items: l.n}, nil
}

// TestFewOfManyObjectsAreReadOneByOne: a LIST reads all objects of a workload cluster, so that it
// does not pay for the last ones that a wait waits for.
func TestFewOfManyObjectsAreReadOneByOne(t *testing.T) {
	machines := &labeledMachines{n: 100}
	l := &Labeled{Lists: machines, Slots: make(chan struct{}, 1)}
	k := Kind{GroupKind: object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"},
		Version: "v1beta2", Resource: "machines", Namespaced: true}
	for _, tt := range []struct{ wanted, read, lists int }{
		{3, 0, 0},
		{100, 100, 1},
		{25, 25, 2},
		{24, 0, 2}, // of 100
		{1, 0, 2},
	} {
		var wanted []LabeledObject
		for i := range tt.wanted {
			wanted = append(wanted, LabeledObject{Kind: k, Label: "a=b", Ref: object.Ref{Group: k.Group,
				Kind: k.Kind, Namespace: "n", Name: fmt.Sprint("m", i)}})
		}
		if read := l.Read(t.Context(), wanted, nil); len(read) != tt.read || machines.lists != tt.lists {
			t.Errorf("%d wanted: %d read, %d LISTs, want %d and %d", tt.wanted, len(read),
				machines.lists, tt.read, tt.lists)
		}
	}
}
