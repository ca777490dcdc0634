package kubetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// InstallMetal3 installs the CRDs of the Bare Metal Operator, and those of other kinds
// ("Kind.group"), on all servers for the time of one test: the next one does not find them. None of
// their controllers and webhooks run.
func (s *Servers) InstallMetal3(t testing.TB, others ...string) {
	t.Helper()
	all, err := ProviderCRDs()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(crd *unstructured.Unstructured) bool {
		kind := kindOf(crd)
		return !slices.Contains(others, kind) && (!strings.HasSuffix(kind, ".metal3.io") ||
			strings.HasSuffix(kind, ".ipam.metal3.io"))
	})
	kinds := make([]string, len(all))
	for i, crd := range all {
		kinds[i] = kindOf(crd)
	}
	mgmts := make([]*kube.Mgmt, s.n)
	for i := range mgmts {
		mgmts[i] = s.Connect(t, i)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for i, mgmt := range mgmts {
			var errs []error
			for _, crd := range all {
				errs = append(errs, removeCRD(ctx, s.dynamic(t, i), crd))
			}
			err := errors.Join(append(errs, awaitDiscovered(ctx, mgmt, kinds, false))...)
			if err != nil {
				t.Errorf("remove CRDs: %v", err)
			}
		}
	})
	s.InstallProviders(t, kinds)
}

// removeCRD removes a CRD, and takes the finalizers off its objects, which their controllers would.
func removeCRD(ctx context.Context, client dynamic.Interface,
	crd *unstructured.Unstructured) error {
	name := crd.GetName()
	err := client.Resource(crds).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	resource, group, _ := strings.Cut(name, ".")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)["name"].(string)
		if served, _ := v.(map[string]any)["served"].(bool); !served {
			continue
		}
		objects := client.Resource(schema.GroupVersionResource{Group: group, Version: version,
			Resource: resource})
		var list *unstructured.UnstructuredList
		err := kube.Retry(ctx, func() (err error) {
			list, err = objects.List(ctx, metav1.ListOptions{})
			return err
		})
		if apierrors.IsNotFound(err) {
			return nil // the CRD is gone
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
		for _, o := range list.Items {
			_, err := objects.Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("release %s %s: %w", name, o.GetName(), err)
			}
		}
		return nil
	}
	return nil
}
