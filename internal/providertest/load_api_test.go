//go:build api

package providertest_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// side is one management cluster.
type side struct {
	*kube.Mgmt
	kinds  []kube.Kind
	client dynamic.Interface
}

func connect(t *testing.T, i int) *side {
	t.Helper()
	s := &side{Mgmt: servers.Connect(t, i)}
	var err error
	if s.kinds, err = s.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kinds = append(s.kinds, kube.DeploymentKind)
	config, err := clientcmd.BuildConfigFromFlags("", servers.Options(i).KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) kind(t *testing.T, gk object.GroupKind) kube.Kind {
	t.Helper()
	k, ok := kube.FindKind(s.kinds, gk)
	if !ok {
		t.Fatalf("%s is not served: is its CRD among those of e2e/tools/crds?", gk)
	}
	return k
}

// get returns an object, or nil.
func (s *side) get(t *testing.T, r object.Ref) *unstructured.Unstructured {
	t.Helper()
	u, err := s.Reader().Get(t.Context(), s.kind(t, r.GroupKind()), r.Namespace, r.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *side) resource(k kube.Kind, namespace string) dynamic.ResourceInterface {
	r := s.client.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Version,
		Resource: k.Resource})
	if k.Namespaced {
		return r.Namespace(namespace)
	}
	return r
}

// create creates an object with all of its fields, and its status. A field that its CRD does not
// have is an error.
func (s *side) create(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	k := s.kind(t, refOf(u).GroupKind())
	u = u.DeepCopy()
	if strings.HasSuffix(u.GetAPIVersion(), "/VERSION") {
		u.SetAPIVersion(k.APIVersion())
	}
	if u.GetAPIVersion() != k.APIVersion() {
		t.Fatalf("%s is of version %s, and its kind is stored at %s", refOf(u), u.GetAPIVersion(),
			k.APIVersion())
	}
	made, err := s.resource(k, u.GetNamespace()).Create(t.Context(), u,
		metav1.CreateOptions{FieldValidation: "Strict", FieldManager: "manager"})
	if err != nil {
		t.Errorf("create %s: %v", refOf(u), err)
		return u
	}
	if status, ok := u.Object["status"]; ok && k.Status {
		made.Object["status"] = status
		made, err = s.resource(k, u.GetNamespace()).UpdateStatus(t.Context(), made,
			metav1.UpdateOptions{FieldValidation: "Strict", FieldManager: "manager"})
		if err != nil {
			t.Errorf("write status of %s: %v", refOf(u), err)
		}
	}
	return made
}

// load creates the objects of graphs, owners first, and completes them with what the server made of
// them.
func (s *side) load(t *testing.T, graphs []*graph) {
	t.Helper()
	made := map[object.Ref]*unstructured.Unstructured{}
	var left []*unstructured.Unstructured
	for _, g := range graphs {
		for _, u := range g.objects {
			if refOf(u).GroupKind() == kube.NamespaceKind.GroupKind {
				made[refOf(u)] = s.create(t, u)
			} else {
				left = append(left, u)
			}
		}
	}
	for len(left) > 0 {
		var next []*unstructured.Unstructured
		for _, u := range left {
			owned := u.DeepCopy()
			if own(t, owned, made, s.namespaced(t)) != "" {
				next = append(next, u)
				continue
			}
			if r := refOf(u); made[r] != nil {
				t.Fatalf("%s is there twice", r)
			}
			made[refOf(u)] = s.create(t, owned)
		}
		if len(next) == len(left) {
			t.Fatalf("the owner %s of %s is in no file", own(t, left[0].DeepCopy(), made, s.namespaced(t)),
				refOf(left[0]))
		}
		left = next
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, g := range graphs {
		for i, u := range g.objects {
			g.objects[i] = made[refOf(u)]
		}
	}
}

// apply creates the objects that no snapshot has: those of tools that make them by themselves.
func (s *side) apply(t *testing.T, g *graph) {
	t.Helper()
	for _, u := range g.objects {
		if r := refOf(u); !g.captured(r) && s.get(t, r) == nil {
			u = u.DeepCopy()
			u.SetResourceVersion("")
			s.create(t, u)
		}
	}
}

// namespaced reports whether a kind is namespaced.
func (s *side) namespaced(t *testing.T) func(object.GroupKind) bool {
	return func(gk object.GroupKind) bool { return s.kind(t, gk).Namespaced }
}

// install creates the inventory and the namespaces of the providers.
func (s *side) install(t *testing.T) {
	t.Helper()
	for _, p := range installed {
		namespace := namespaceOf(p.label, p.namespace)
		s.create(t, namespace)
		_, name, _ := strings.Cut(p.label, "-")
		s.create(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
			"metadata": map[string]any{"name": p.label, "namespace": p.namespace,
				"labels": namespace.Object["metadata"].(map[string]any)["labels"]},
			"providerName": name, "type": p.kind, "version": "v1.0.0"}})
	}
}
