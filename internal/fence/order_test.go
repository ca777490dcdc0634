package fence

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestSwitchesAreSetInReverseOfTheirRelease: what makes all the rest is paused first, and is the
// last to be at work again. What acknowledges a pause slowly is paused by itself; one that is gone
// stops nothing.
func TestSwitchesAreSetInReverseOfTheirRelease(t *testing.T) {
	m := newMemory()
	var kinds []kube.Kind
	var nodes []*graph.Node
	for _, ref := range []object.Ref{
		{Group: "addons.stackhpc.com", Kind: "HelmRelease", Namespace: "ns", Name: "addon"},
		{Group: "azimuth.stackhpc.com", Kind: "Cluster", Namespace: "ns", Name: "azimuth"},
		{Group: "network.azure.com", Kind: "VirtualNetwork", Namespace: "ns", Name: "net"},
		{Kind: "Secret", Namespace: "ns", Name: "none"},
		{Group: capi.GroupCore, Kind: "MachineHealthCheck", Namespace: "ns", Name: "check"},
		{Group: capi.GroupCore, Kind: "MachineHealthCheck", Namespace: "ns", Name: "gone"},
		{Group: capi.GroupCore, Kind: "Cluster", Namespace: "ns", Name: "cluster"}} {
		k := kube.Kind{GroupKind: ref.GroupKind(), Version: "v1", Namespaced: true}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.APIVersion(),
			"kind": ref.Kind, "metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace}}}
		if ref.Name != "gone" {
			m.store(u)
		}
		kinds, nodes = append(kinds, k), append(nodes, &graph.Node{Ref: ref})
	}
	var written []string
	m.refuse = func(u *unstructured.Unstructured) error {
		written = append(written, u.GetName())
		return nil
	}
	p := NewPauser(m, m, kinds, nil)
	if changed, err := p.PauseFirst(t.Context(), nodes); err != nil || len(changed) != 1 {
		t.Fatalf("changed %v: %v", changed, err)
	}
	if changed, err := p.PauseOwn(t.Context(), nodes); err != nil || len(changed) != 3 {
		t.Fatalf("changed %v: %v", changed, err)
	}
	if want := []string{"check", "azimuth", "addon", "net"}; !slices.Equal(written, want) {
		t.Errorf("paused %v, want %v", written, want)
	}
	if changed, err := p.PauseOwn(t.Context(), nodes); err != nil || len(changed) > 0 {
		t.Errorf("once more: changed %v: %v", changed, err)
	}
	written = nil
	if err := p.UnpauseOwn(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	if want := []string{"net", "addon", "azimuth", "check"}; !slices.Equal(written, want) {
		t.Errorf("unpaused %v, want %v", written, want)
	}
}

// TestI1ASuspendedHostTakesBackWhatNoOtherRunReliesOn: a host is suspended while it sets switches,
// and a later run goes on. What that run has found set is its own from then on.
func TestI1ASuspendedHostTakesBackWhatNoOtherRunReliesOn(t *testing.T) {
	ctx := t.Context()
	m := newMemory()
	k := kube.Kind{GroupKind: object.GroupKind{Group: "addons.stackhpc.com", Kind: "HelmRelease"},
		Version: "v1", Namespaced: true}
	var nodes []*graph.Node
	for _, name := range []string{"both", "late"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.APIVersion(),
			"kind": k.Kind, "metadata": map[string]any{"name": name, "namespace": "ns"}}}
		m.store(u)
		nodes = append(nodes, &graph.Node{Ref: object.Ref{Group: k.Group, Kind: k.Kind,
			Namespace: "ns", Name: name}, Unit: "ns/w"})
	}
	paused := func() (names []string) {
		t.Helper()
		for _, n := range nodes {
			u, err := m.Get(ctx, k, n.Namespace, n.Name)
			if err != nil {
				t.Fatal(err)
			}
			if capi.PausedByUs(u.Object) {
				names = append(names, n.Name+" "+u.GetAnnotations()[capi.AnnotationOperation])
			}
		}
		return names
	}
	errLater := errors.New("a later run has it")
	run := func(lock string) *Pauser {
		return NewPauser(m, m, []kube.Kind{k}, nil).WithLock(Lock{Text: lock,
			May: func(_ context.Context, unit, held string) error {
				if held > lock || unit != "ns/w" {
					return errLater
				}
				return nil
			}})
	}
	first, second := run("op/1"), run("op/2")
	changed, err := first.PauseOwn(ctx, nodes[:1])
	if err != nil || len(changed) != 1 {
		t.Fatalf("changed %v: %v", changed, err)
	}
	if again, err := second.PauseOwn(ctx, nodes[:1]); err != nil || len(again) != 1 {
		t.Fatalf("the second run changed %v: %v", again, err)
	}
	late, err := first.PauseOwn(ctx, nodes[1:]) // it wakes up
	if err != nil || len(late) != 1 {
		t.Fatalf("changed %v: %v", late, err)
	}
	if err := first.TakeBack(ctx, append(changed, late...)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"both op/2"}; !slices.Equal(paused(), want) {
		t.Errorf("paused are %v, want %v", paused(), want)
	}
	for name, err := range map[string]error{
		"set":       func() error { _, err := first.PauseOwn(ctx, nodes); return err }(),
		"give back": first.UnpauseOwn(ctx, nodes),
	} {
		if !errors.Is(err, errLater) {
			t.Errorf("the first run may %s the switches of the second: %v", name, err)
		}
	}
	if err := second.UnpauseOwn(ctx, nodes); err != nil || len(paused()) > 0 {
		t.Errorf("paused are %v: %v", paused(), err)
	}
	u, _ := m.Get(ctx, k, "ns", "both")
	if len(u.GetAnnotations()) > 0 {
		t.Errorf("left are %v", u.GetAnnotations())
	}
}

// TestAKindThatCameHasNoSwitchToUnset: nothing keeps the others from being at work again. To pause
// one is an error.
func TestAKindThatCameHasNoSwitchToUnset(t *testing.T) {
	m := newMemory()
	p := NewPauser(m, m, nil, nil)
	nodes := []*graph.Node{{Ref: object.Ref{Group: "addons.stackhpc.com", Kind: "HelmRelease",
		Namespace: "ns", Name: "addon"}}}
	if _, err := p.PauseOwn(t.Context(), nodes); err == nil {
		t.Error("it is paused")
	}
	if err := p.UnpauseOwn(t.Context(), nodes); err != nil {
		t.Errorf("it cannot be unpaused: %v", err)
	}
}
