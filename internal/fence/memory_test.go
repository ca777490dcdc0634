package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// memory is a management cluster in memory. It enforces the admission policy as far as these tests
// need it; what a real API server makes of the expression is tested by the API tests.
type memory struct {
	mu      sync.Mutex
	version int
	objects map[object.Ref]*unstructured.Unstructured
	// refuse, when set, is asked before each write.
	refuse func(u *unstructured.Unstructured) error
	// beforeGet, when set, is called before each GET.
	beforeGet func(ref object.Ref)
}

var clusterKind = kube.Kind{GroupKind: capi.Cluster, Version: "v1beta2", Resource: "clusters",
	Namespaced: true, Served: []string{"v1beta2"}, Contract: true}

var listRef = object.Ref{Kind: "ConfigMap", Namespace: policyNamespace, Name: policyName}

func newMemory() *memory { return &memory{objects: map[object.Ref]*unstructured.Unstructured{}} }

func resourceOf(ref object.Ref) schema.GroupResource {
	return schema.GroupResource{Group: ref.Group, Resource: ref.Kind}
}

func refOfObject(u *unstructured.Unstructured) object.Ref {
	gvk := u.GroupVersionKind()
	return object.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(),
		Name: u.GetName()}
}

func (m *memory) store(u *unstructured.Unstructured) *unstructured.Unstructured {
	m.version++
	u = u.DeepCopy()
	u.SetResourceVersion(strconv.Itoa(m.version))
	m.objects[refOfObject(u)] = u
	return u.DeepCopy()
}

func (m *memory) Get(_ context.Context, k kube.Kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}
	if m.beforeGet != nil {
		m.beforeGet(ref)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.objects[ref]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resourceOf(ref), name)
}

func (m *memory) List(_ context.Context, k kube.Kind, _ kube.ListOptions, fn func(raw []byte) error) (
	kube.ListResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, u := range m.objects {
		if ref.GroupKind() != k.GroupKind {
			continue
		}
		raw, err := u.MarshalJSON()
		if err := errors.Join(err, fn(raw)); err != nil {
			return kube.ListResult{}, err
		}
	}
	return kube.ListResult{}, nil
}

func (m *memory) Create(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		if err := m.refuse(u); err != nil {
			return nil, err
		}
	}
	if ref := refOfObject(u); m.objects[ref] != nil {
		return nil, apierrors.NewAlreadyExists(resourceOf(ref), ref.Name)
	}
	u = u.DeepCopy()
	u.SetUID(types.UID(fmt.Sprintf("uid-%d", m.version+1)))
	return m.store(u), nil
}

func (m *memory) Update(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		if err := m.refuse(u); err != nil {
			return nil, err
		}
	}
	ref := refOfObject(u)
	live := m.objects[ref]
	switch {
	case live == nil:
		return nil, apierrors.NewNotFound(resourceOf(ref), ref.Name)
	case live.GetResourceVersion() != u.GetResourceVersion():
		return nil, apierrors.NewConflict(resourceOf(ref), ref.Name, errors.New("it changed"))
	}
	return m.store(u), nil
}

func (m *memory) Delete(_ context.Context, k kube.Kind, namespace, name string, _ types.UID,
	version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}
	live := m.objects[ref]
	switch {
	case live == nil:
		return apierrors.NewNotFound(resourceOf(ref), name)
	case live.GetResourceVersion() != version:
		return apierrors.NewConflict(resourceOf(ref), name, errors.New("it changed"))
	}
	delete(m.objects, ref)
	return nil
}

// DryRunCreate denies what the policy denies.
func (m *memory) DryRunCreate(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		if err := m.refuse(u); err != nil {
			return nil, err
		}
	}
	ref := refOfObject(u)
	paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	if ref.GroupKind() == capi.Cluster && !paused && m.enforced() && m.listed()[policyKey(ref)] != "" {
		return nil, apierrors.NewForbidden(resourceOf(ref), ref.Name, fmt.Errorf(
			"ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request", policyName))
	}
	if m.objects[ref] != nil {
		return nil, apierrors.NewAlreadyExists(resourceOf(ref), ref.Name)
	}
	return u, nil
}

// DryRunUpdate asks refuse.
func (m *memory) DryRunUpdate(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return u, m.refuse(u)
	}
	return u, nil
}

// enforced reports whether the policy and its binding are there.
func (m *memory) enforced() bool {
	for _, k := range []kube.Kind{policyKind, bindingKind} {
		if m.objects[object.Ref{Group: k.Group, Kind: k.Kind, Name: policyName}] == nil {
			return false
		}
	}
	return true
}

// listed is the ConfigMap of the policy.
func (m *memory) listed() map[string]string {
	if m.objects[listRef] == nil {
		return nil
	}
	data, _, _ := unstructured.NestedStringMap(m.objects[listRef].Object, "data")
	return maps.Clone(data)
}

// addCluster stores a Cluster.
func (m *memory) addCluster(name string, paused bool, annotations map[string]string) Cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetAPIVersion(clusterKind.APIVersion())
	u.SetKind(clusterKind.Kind)
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetUID(types.UID("uid-of-" + name))
	u.SetAnnotations(annotations)
	if paused {
		_ = unstructured.SetNestedField(u.Object, true, "spec", "paused")
	}
	m.store(u)
	return Cluster{Ref: refOfObject(u), ID: "uid-of-" + name, UID: "uid-of-" + name, Paused: paused,
		annotations: annotations}
}

func (m *memory) fence() *Fence {
	kinds := []kube.Kind{clusterKind}
	return &Fence{Policy: &Policy{Reader: m, Writer: m, Prober: m, Kinds: kinds},
		Pauser:  NewPauser(m, m, kinds, nil),
		Capture: func(context.Context) (*graph.Graph, error) { return &graph.Graph{}, nil }}
}

func (m *memory) cluster(t *testing.T, c Cluster) *unstructured.Unstructured {
	t.Helper()
	u, err := m.Get(t.Context(), clusterKind, c.Namespace, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
