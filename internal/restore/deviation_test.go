package restore

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// droppingProber is a target whose conversion drops spec.a and status.b from what is written.
type droppingProber struct {
	Prober
	err error
}

func (p droppingProber) DryRunUpdate(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	u = u.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "spec", "a")
	return u, p.err
}

func (p droppingProber) DryRunUpdateStatus(_ context.Context, _ kube.Kind,
	u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u = u.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "status", "b")
	return u, p.err
}

func TestOnlyWhatTheConversionDropsIsNoDifference(t *testing.T) {
	machine := object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
	want := decoded(t, `{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Machine",
		"metadata":{"name":"a","namespace":"n"},"spec":{"a":"1","c":"2"},"status":{"b":"3","d":"4"}}`)
	live := decoded(t, `{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Machine",
		"metadata":{"name":"a","namespace":"n","labels":{"x":"y"}},"spec":{"c":"changed"},"status":{"d":"4"}}`)
	stored := func(version string) []kube.Kind {
		return []kube.Kind{{GroupKind: machine, Version: version, Status: true}}
	}
	accept := []object.AcceptedDifference{{GroupKind: machine, Path: "spec.c"}}
	for _, tt := range []struct {
		name string
		s    standard
		want deviation
	}{
		{"another version is stored", standard{droppingProber{}, stored("v1beta2"), nil, nil},
			deviation{lost: []string{"spec.c"}, converted: []string{"spec.a", "status.b"}}},
		{"and the rest is accepted", standard{droppingProber{}, stored("v1beta2"), accept, nil},
			deviation{accepted: []string{"spec.c"}, converted: []string{"spec.a", "status.b"}}},
		{"the version of the snapshot is stored", standard{droppingProber{}, stored("v1beta1"), nil, nil},
			deviation{lost: []string{"spec.a", "spec.c", "status.b"}}},
		{"the target does not answer", standard{droppingProber{err: errors.New("no")},
			stored("v1beta2"), nil, nil}, deviation{lost: []string{"spec.a", "spec.c", "status.b"}}},
	} {
		d := tt.s.judge(t.Context(), object.Ref{Group: machine.Group, Kind: machine.Kind}, want, live,
			equality.Values)
		if !slices.Equal(d.lost, tt.want.lost) || !slices.Equal(d.converted, tt.want.converted) ||
			!slices.Equal(d.accepted, tt.want.accepted) ||
			!slices.Equal(d.added, []string{"metadata.labels"}) {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
}
