package kubetest

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// InstallMetal3 installs the CRDs of the Bare Metal Operator on all servers for the time of one
// test. None of its controllers and webhooks run.
func (s *Servers) InstallMetal3(t testing.TB) {
	t.Helper()
	all, err := ProviderCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.n {
		var crds []*unstructured.Unstructured
		for _, crd := range all {
			if strings.HasSuffix(kindOf(crd), ".metal3.io") &&
				!strings.HasSuffix(kindOf(crd), ".ipam.metal3.io") {
				crds = append(crds, crd.DeepCopy())
			}
		}
		install(t, s.Connect(t, i), crds)
	}
}

var crdKind = kube.Kind{GroupKind: object.GroupKind{Group: "apiextensions.k8s.io",
	Kind: "CustomResourceDefinition"}, Version: "v1", Resource: "customresourcedefinitions"}

// install creates CRDs and waits until each one is served.
func install(t testing.TB, m *kube.Mgmt, crds []*unstructured.Unstructured) {
	t.Helper()
	for _, crd := range crds {
		made, err := m.Writer().Create(t.Context(), crdKind, crd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := m.Writer().Delete(context.Background(), crdKind, "", made.GetName(), made.GetUID(), "")
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	for _, crd := range crds {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		for deadline := time.Now().Add(startTimeout); ; {
			kinds, err := m.Reader().Kinds(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if k, ok := kube.FindKind(kinds, object.GroupKind{Group: group, Kind: kind}); ok {
				if _, err = m.Reader().List(t.Context(), k, kube.ListOptions{Limit: 1},
					func([]byte) error { return nil }); err == nil {
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not served: %v", crd.GetName(), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}
