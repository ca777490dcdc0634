package providertest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// memory is a management cluster in memory that accepts every object. With it hundreds of plans are
// made in seconds. What an API server answers is tested by the API tests.
type memory struct {
	kinds   []kube.Kind
	objects map[object.Ref]*unstructured.Unstructured
}

var (
	_ capture.Source = (*memory)(nil)
	_ restore.Reader = (*memory)(nil)
	_ restore.Prober = (*memory)(nil)
)

// newMemory makes a management cluster with the namespaces of all providers and the objects of
// graphs.
func newMemory(t *testing.T, graphs []*graph) *memory {
	t.Helper()
	m := &memory{objects: map[object.Ref]*unstructured.Unstructured{}}
	var all []*unstructured.Unstructured
	for _, p := range installed {
		all = append(all, namespaceOf(p.label, p.namespace))
	}
	for _, g := range graphs {
		all = append(all, g.objects...)
	}
	for _, u := range all {
		u = u.DeepCopy()
		if group, ok := strings.CutSuffix(u.GetAPIVersion(), "/VERSION"); ok {
			u.SetAPIVersion(group + "/v1beta2")
		}
		u.SetUID(types.UID(fmt.Sprintf("uid-%04d", len(m.objects))))
		u.SetResourceVersion("1")
		u.SetGeneration(1)
		encodeData(u)
		m.objects[refOf(u)] = u
		m.addKind(u)
	}
	for ref, u := range m.objects {
		if missing := own(t, u, m.objects, m.namespaced); missing != "" {
			t.Fatalf("the owner %s of %s is in no file", missing, ref)
		}
	}
	return m
}

// without returns a copy of a management cluster that lacks an object.
func (m *memory) without(r object.Ref) *memory {
	out := &memory{kinds: m.kinds, objects: maps.Clone(m.objects)}
	delete(out.objects, r)
	return out
}

// addKind adds the kind of an object to those that are served. Those of Cluster API have the labels
// of their installers, others have none.
func (m *memory) addKind(u *unstructured.Unstructured) {
	gvk := u.GroupVersionKind()
	if slices.ContainsFunc(m.kinds, func(k kube.Kind) bool { return k.GroupKind == refOf(u).GroupKind() }) {
		return
	}
	m.kinds = append(m.kinds, kube.Kind{GroupKind: refOf(u).GroupKind(), Version: gvk.Version,
		Resource: strings.ToLower(gvk.Kind) + "s", Namespaced: u.GetNamespace() != "",
		Status: gvk.Group != "", Served: []string{gvk.Version},
		Contract: strings.HasSuffix(gvk.Group, "cluster.x-k8s.io")})
}

func (m *memory) namespaced(gk object.GroupKind) bool {
	k, ok := kube.FindKind(m.kinds, gk)
	return ok && k.Namespaced
}

// Kinds implements capture.Source.
func (m *memory) Kinds(context.Context) ([]kube.Kind, error) { return m.kinds, nil }

// List implements capture.Source.
func (m *memory) List(_ context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	result := kube.ListResult{ResourceVersion: "1"}
	label, value, labelled := strings.Cut(o.Labels, "=")
	for _, r := range slices.SortedFunc(maps.Keys(m.objects), object.CompareRefs) {
		u := m.objects[r]
		if r.GroupKind() != k.GroupKind || o.Name != "" && r.Name != o.Name ||
			o.Namespace != "" && r.Namespace != o.Namespace ||
			labelled && u.GetLabels()[label] != value {
			continue
		}
		raw, err := u.MarshalJSON()
		if err == nil {
			err = fn(raw)
		}
		if err != nil {
			return result, err
		}
		result.Items++
	}
	return result, nil
}

// Changes implements capture.Source.
func (m *memory) Changes(context.Context, kube.Kind, string, string,
	func(deleted bool, raw []byte) error) error {
	return nil
}

// Get implements restore.Reader.
func (m *memory) Get(_ context.Context, k kube.Kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	r := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}
	if u := m.objects[r]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Resource}, name)
}

// DryRunCreate implements restore.Prober.
func (m *memory) DryRunCreate(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return u.DeepCopy(), nil
}

// DryRunUpdate implements restore.Prober.
func (m *memory) DryRunUpdate(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return u.DeepCopy(), nil
}

// DryRunUpdateStatus implements restore.Prober.
func (m *memory) DryRunUpdateStatus(_ context.Context, _ kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return u.DeepCopy(), nil
}

// Allowed implements restore.Prober.
func (m *memory) Allowed(context.Context, string, kube.Kind, string) (bool, error) {
	return true, nil
}
