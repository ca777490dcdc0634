package kubetest

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstallMetal3 installs the CRDs of the Bare Metal Operator, and those of other kinds
// ("Kind.group"), on all servers for the time of one test. None of their controllers and webhooks
// run.
func (s *Servers) InstallMetal3(t testing.TB, others ...string) {
	t.Helper()
	all, err := ProviderCRDs()
	if err != nil {
		t.Fatal(err)
	}
	var kinds, names []string
	for _, crd := range all {
		if kind := kindOf(crd); slices.Contains(others, kind) || strings.HasSuffix(kind, ".metal3.io") &&
			!strings.HasSuffix(kind, ".ipam.metal3.io") {
			kinds, names = append(kinds, kind), append(names, crd.GetName())
		}
	}
	t.Cleanup(func() {
		for i := range s.n {
			client := s.dynamic(t, i).Resource(crds)
			for _, name := range names {
				err := client.Delete(context.Background(), name, metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		}
	})
	s.InstallProviders(t, kinds)
}
