package fence

import (
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
